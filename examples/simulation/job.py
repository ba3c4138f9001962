"""The training job: a four-layer transformer under DistributedDataParallel, one optimizer step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from simulation import kernels
from simulation.kernels import Kernel
from simulation.rank import Rank, Row, Shapes, finish

LAYERS, BATCH, LENGTH, WIDTH, HEADS, VOCABULARY = 4, 16, 1024, 2048, 16, 50_304
TOKENS, INNER = BATCH * LENGTH, 4 * WIDTH
SIZE = 2 * TOKENS * WIDTH  # Bytes of the residual stream.
LAYER_PARAMETERS = 12 * WIDTH * WIDTH + 13 * WIDTH
EMBEDDING_PARAMETERS = (VOCABULARY + LENGTH + 2) * WIDTH
PARAMETERS = LAYERS * LAYER_PARAMETERS + EMBEDDING_PARAMETERS
HIDDEN = (BATCH, LENGTH, WIDTH)

NVLINK_BYTES_PER_SECOND = 340e9
FIRST_STEP = 10
STALLED_STEP, STALL_US = 12, 25_000.0
SLOW_RANK, SLOWNESS = 2, 1.09
CLOCKS_NS = (0, 2_300, -1_700, 3_100)


Work: TypeAlias = tuple[str, Kernel]  # An operator and the kernel it launches.


@dataclass(frozen=True, slots=True)
class Gradient:
    """What autograd does for one forward operator. `bucket` is how many gradients are then ready to be reduced."""

    name: str
    work: Sequence[Work] = ()
    bucket: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """An entry of autograd's tape."""

    gradient: Gradient
    forward: Row
    sequence: int


@dataclass(slots=True)
class Forward:
    """Runs the forward pass on the host and keeps the tape for the backward pass."""

    rank: Rank
    tape: list[Node] = field(default_factory=list)

    def run(self, path: str, shapes: Shapes, kernel: Kernel, gradient: Gradient, views: Sequence[str] = ()) -> None:
        """Run the nested operators of `path`, outermost first; the innermost launches the kernel."""
        outer, *inner = path.split(" > ")
        sequence = next(self.rank.sequence)
        with self.rank.op(outer, shapes, args={"Sequence number": sequence, "Fwd thread id": 0}) as row:
            for name in views:
                with self.rank.op(name, shapes[1:2], us=1.2):
                    pass
            self._descend(inner, shapes, kernel)
        self.tape.append(Node(gradient, row, sequence))

    def _descend(self, names: Sequence[str], shapes: Shapes, kernel: Kernel) -> None:
        if not names:
            self.rank.launch(kernel)
            return
        with self.rank.op(names[0], shapes, us=1.8):
            self._descend(names[1:], shapes, kernel)

    def linear(self, inputs: int, outputs: int) -> None:
        """Run a linear layer."""
        work = (
            ("aten::mm", kernels.gemm(TOKENS, inputs, outputs, "nn")),
            ("aten::mm", kernels.gemm(outputs, inputs, TOKENS, "nt")),
            ("aten::sum", kernels.column_sum(TOKENS, outputs)),
        )
        shapes = [(outputs,), (TOKENS, inputs), (inputs, outputs)]
        kernel = kernels.gemm(TOKENS, outputs, inputs, bias=True)
        self.run("aten::linear > aten::addmm", shapes, kernel, Gradient("AddmmBackward0", work), ["aten::t"])

    def layer_norm(self, bucket: int = 0) -> None:
        """Run a layer norm, whose gradient joins that of the residual stream."""
        work = [("aten::native_layer_norm_backward", each) for each in kernels.layer_norm_backward(TOKENS, WIDTH)]
        work.append(("aten::add_", kernels.add(SIZE)))
        gradient = Gradient("NativeLayerNormBackward0", work, bucket)
        kernel = kernels.layer_norm(TOKENS, WIDTH)
        self.run("aten::layer_norm > aten::native_layer_norm", [HIDDEN, (WIDTH,)], kernel, gradient)

    def dropout_and_add(self) -> None:
        """Run the end of a residual branch."""
        work = ("aten::native_dropout_backward", kernels.dropout(SIZE, backward=True))
        gradient = Gradient("NativeDropoutBackward0", [work])
        self.run("aten::dropout > aten::native_dropout", [HIDDEN], kernels.dropout(SIZE), gradient)
        self.run("aten::add", [HIDDEN, HIDDEN], kernels.add(SIZE), Gradient("AddBackward0"))

    def attention(self) -> None:
        """Run causal attention."""
        sizes = (BATCH, HEADS, LENGTH, WIDTH // HEADS)
        name = "aten::_scaled_dot_product_flash_attention"
        work = [(f"{name}_backward", kernel) for kernel in kernels.flash_backward(*sizes)]
        gradient = Gradient("ScaledDotProductFlashAttentionBackward0", work)
        path = f"aten::scaled_dot_product_attention > {name} > aten::_flash_attention_forward"
        self.run(path, [sizes] * 3, kernels.flash_forward(*sizes), gradient)

    def gelu(self) -> None:
        """Run the activation."""
        work = ("aten::gelu_backward", kernels.gelu(2 * TOKENS * INNER, backward=True))
        kernel = kernels.gelu(2 * TOKENS * INNER)
        self.run("aten::gelu", [(BATCH, LENGTH, INNER)], kernel, Gradient("GeluBackward0", [work]))

    def layer(self) -> None:
        """Run one transformer layer; its gradients are ready with those of its first operator."""
        self.layer_norm(bucket=LAYER_PARAMETERS)
        self.linear(WIDTH, 3 * WIDTH)
        self.attention()
        self.linear(WIDTH, WIDTH)
        self.dropout_and_add()
        self.layer_norm()
        self.linear(WIDTH, INNER)
        self.gelu()
        self.linear(INNER, WIDTH)
        self.dropout_and_add()

    def embeddings(self) -> None:
        """Look up tokens and positions; the token table is also the output layer's weight."""
        for table, rows, bucket in ((VOCABULARY, TOKENS, EMBEDDING_PARAMETERS), (LENGTH, LENGTH, 0)):
            work = [("aten::embedding_dense_backward", each) for each in kernels.embedding_backward(rows, WIDTH)]
            gradient = Gradient("EmbeddingBackward0", work, bucket)
            kernel = kernels.embedding(rows, WIDTH)
            self.run("aten::embedding > aten::index_select", [(table, WIDTH), (rows,)], kernel, gradient)
        self.dropout_and_add()

    def loss(self) -> None:
        """Run the output layer and the cross entropy."""
        self.layer_norm()
        work = [
            ("aten::mm", kernels.wide_gemm(TOKENS, WIDTH, VOCABULARY, "NNT")),
            ("aten::mm", kernels.wide_gemm(VOCABULARY, WIDTH, TOKENS, "NTT")),
        ]
        kernel = kernels.wide_gemm(TOKENS, VOCABULARY, WIDTH, "TNT")
        path, shapes = "aten::linear > aten::matmul > aten::mm", [(TOKENS, WIDTH), (WIDTH, VOCABULARY)]
        self.run(path, shapes, kernel, Gradient("MmBackward0", work), ["aten::t"])
        logits, targets = (TOKENS, VOCABULARY), (TOKENS,)
        with self.rank.op("aten::cross_entropy_loss", [logits, targets]):
            step = ("aten::_log_softmax_backward_data", kernels.softmax(TOKENS, VOCABULARY, backward=True))
            gradient = Gradient("LogSoftmaxBackward0", [step])
            self.run("aten::log_softmax > aten::_log_softmax", [logits], kernels.softmax(TOKENS, VOCABULARY), gradient)
            step = ("aten::nll_loss_backward", kernels.nll_loss(TOKENS, backward=True))
            path = "aten::nll_loss_nd > aten::nll_loss > aten::nll_loss_forward"
            gradient = Gradient("NllLossBackward0", [step])
            self.run(path, [logits, targets], kernels.nll_loss(TOKENS), gradient)


def load_batch(rank: Rank, stall_us: float) -> None:
    """Fetch a batch from the loader's workers and copy it to the device."""
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    with rank.op(name, cat="user_annotation", us=320):
        rank.thread.now += round(1000 * stall_us * rank.random.uniform(0.98, 1.02))  # Waiting for storage.
    for _ in ("tokens", "targets"):
        with rank.op("aten::to", [(BATCH, LENGTH)]), rank.op("aten::_to_copy", [(BATCH, LENGTH)], us=4):
            with rank.op("aten::empty_strided", us=3):
                pass
            with rank.op("aten::copy_", [(BATCH, LENGTH), (BATCH, LENGTH)]):
                rank.copy("HtoD (Pinned -> Device)", 8 * TOKENS, 24.5)


def forward(rank: Rank) -> list[Node]:
    """Run the model and the loss on the main thread."""
    run = Forward(rank)
    with rank.op("DistributedDataParallel.forward", cat="user_annotation", us=30):
        run.embeddings()
        for _ in range(LAYERS):
            run.layer()
    run.loss()
    return run.tape


def backward(rank: Rank, tape: Sequence[Node]) -> None:
    """Run the tape in reverse on the autograd thread while the main thread waits in `loss.backward()`."""
    rank.autograd.now = rank.main.now + 90_000
    rank.thread = rank.autograd
    for node in reversed(tape):
        args = {"Sequence number": node.sequence, "Fwd thread id": 1}
        gradient = node.gradient
        with rank.op(f"autograd::engine::evaluate_function: {gradient.name}", args=args) as row:
            node.forward.flow, row.flow = ("s", node.sequence, "fwdbwd"), ("f", node.sequence, "fwdbwd")
            with rank.op(gradient.name, us=1.5, args=args):
                if gradient.name == "NllLossBackward0":
                    rank.memset(2 * TOKENS * VOCABULARY)
                for name, kernel in gradient.work:
                    with rank.op(name, us=2.4):
                        rank.launch(kernel)
        if gradient.bucket:
            reduce_bucket(rank, gradient.bucket)
    rank.thread = rank.main
    rank.main.now = rank.autograd.now + 60_000


def reduce_bucket(rank: Rank, elements: int) -> None:
    """Divide a bucket of gradients by the number of ranks and start its all-reduce, from the last gradient's hook."""
    with rank.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
        with rank.op("torch::autograd::AccumulateGrad", us=1.5), rank.op("aten::div_", [(elements,)]):
            rank.launch(kernels.scale(2 * elements))
        rank.all_reduce(elements, "BFloat16")


def update(rank: Rank) -> None:
    """Clip the gradients, step the optimizer and start the reduction of the loss."""
    rank.wait_for_nccl()
    norm = kernels.multi_tensor("LpNormFunctor<c10::BFloat16, (NormType)1, float, 1, 4>", 2 * PARAMETERS / 2)
    for _ in range(2):
        with rank.op("aten::_foreach_norm", us=18):
            rank.launch(norm)
    with rank.op("aten::_foreach_mul_", us=15):
        rank.launch(kernels.multi_tensor("BinaryOpScalarTensorFunctor<c10::BFloat16, 1, 1, 0>", 4 * PARAMETERS))
    with rank.op("Optimizer.step#AdamW.step", cat="user_annotation", us=85):
        for _ in range(4):
            with rank.op("aten::_fused_adamw_", us=24):
                rank.launch(kernels.multi_tensor("FusedAdamMathFunctor<c10::BFloat16, 4, false>", 14 * PARAMETERS / 4))
    with rank.op("Optimizer.zero_grad#AdamW.zero_grad", cat="user_annotation", us=40):
        pass
    with rank.op("aten::to", [()]), rank.op("aten::_to_copy", [()]), rank.op("aten::copy_", [()]):
        rank.launch(kernels.cast())
    with rank.op("c10d::allreduce_", [(1,)], us=7):
        rank.all_reduce(1, "Float")


def read_loss(rank: Rank) -> None:
    """Bring the loss to the host, which waits for all of the step's work."""
    rank.wait_for_nccl()
    with rank.op("aten::item", [()]), rank.op("aten::_local_scalar_dense", [()]):
        rank.copy("DtoH (Device -> Pinned)", 4, 0.004)
        rank.synchronize()
    rank.spend(160)


def train(ranks: Sequence[Rank], steps: int) -> None:
    """Run the steps on all ranks together: only all-reduces tie them."""
    for number in range(FIRST_STEP, FIRST_STEP + steps):
        opened = [rank.op(f"ProfilerStep#{number}", cat="user_annotation") for rank in ranks]
        for rank, step in zip(ranks, opened, strict=True):
            step.__enter__()
            load_batch(rank, STALL_US if number == STALLED_STEP else 0)
            backward(rank, forward(rank))
        finish(ranks, NVLINK_BYTES_PER_SECOND)
        for rank in ranks:
            update(rank)
        finish(ranks, NVLINK_BYTES_PER_SECOND)
        for rank, step in zip(ranks, opened, strict=True):
            read_loss(rank)
            step.__exit__(None, None, None)
    for rank in ranks:
        rank.synchronize("cudaDeviceSynchronize")
