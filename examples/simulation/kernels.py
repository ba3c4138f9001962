"""Kernels of a transformer in bfloat16, named and sized as PyTorch and its libraries do on an H100.

Durations come from the work: floating-point operations for matrix products and attention, bytes for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

GEMM_FLOPS = 620e12
ATTENTION_FLOPS = 330e12
MEMORY_BYTES_PER_SECOND = 2.5e12
LARGEST_GRID = 65_535

_BF16 = "c10::BFloat16"
_ANONYMOUS = "(anonymous namespace)"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel to launch: `us` is how long it takes on a rank of normal speed."""

    name: str
    us: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    shared: int = 0


def gemm(m: int, n: int, k: int, layout: str = "tn", *, bias: bool = False) -> Kernel:
    """Make a matrix product of cuBLAS; `layout` is tn in forward, nn for input gradients, nt for weight gradients."""
    tile = "128x256x64_warpgroupsize2x1x1" if n >= 4096 else "128x128x64_warpgroupsize1x1x1"  # noqa: PLR2004
    epilogue = "_bias" if bias else ""
    name = (
        f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize{tile}{epilogue}"
        "_execute_segment_k_off_kernel__5x_cublas"
    )
    return Kernel(name, _compute(2 * m * n * k, GEMM_FLOPS), (132, 1, 1), (384, 1, 1), 168, 213_000)


def wide_gemm(m: int, n: int, k: int, layout: str) -> Kernel:
    """Make the product with the vocabulary, for which cuBLAS picks another family."""
    name = f"nvjet_tst_256x128_64x4_1x2_h_bz_coopA_{layout}"
    return Kernel(name, _compute(2 * m * n * k, GEMM_FLOPS), (132, 1, 1), (384, 1, 1), 168, 213_008)


def flash_forward(batch: int, heads: int, length: int, width: int) -> Kernel:
    """Make causal FlashAttention."""
    flops = 4 * batch * heads * length * length * width / 2
    traits = f"Flash_fwd_kernel_traits<{width}, 128, 64, 4, false, false, cutlass::bfloat16_t>"
    name = f"void pytorch_flash::flash_fwd_kernel<{traits}, false, true, false, false, true, true, false, false>"
    grid = (length // 128, batch, heads)
    return Kernel(f"{name}(pytorch_flash::Flash_fwd_params)", _compute(flops, ATTENTION_FLOPS), grid, registers=255)


def flash_backward(batch: int, heads: int, length: int, width: int) -> tuple[Kernel, ...]:
    """Make the three kernels of its gradient."""
    traits = f"Flash_bwd_kernel_traits<{width}, 64, 128, 8, 2, 4, 2, false, false, cutlass::bfloat16_t>"
    params = "(pytorch_flash::Flash_bwd_params)"
    flops = 10 * batch * heads * length * length * width / 2
    size = 2 * batch * heads * length * width
    grid = (length // 128, batch, heads)
    names = (
        f"void pytorch_flash::flash_bwd_dot_do_o_kernel<true, {traits}>{params}",
        f"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{traits}, false, true, false, true>{params}",
        f"void pytorch_flash::flash_bwd_convert_dq_kernel<{traits}>{params}",
    )
    times = (_traffic(2 * size), _compute(flops, ATTENTION_FLOPS * 0.8), _traffic(3 * size))
    return tuple(Kernel(name, us, grid, (256, 1, 1), 255, 147_456) for name, us in zip(names, times, strict=True))


def elementwise(functor: str, size: int, inputs: int, vector: int = 4) -> Kernel:
    """Make a pointwise kernel that reads `inputs` tensors of `size` bytes and writes one."""
    array = f"std::array<char*, {inputs + 1}ul>"
    name = f"void at::native::vectorized_elementwise_kernel<{vector}, {functor}, {array} >(int, {functor}, {array})"
    return Kernel(name, _traffic((inputs + 1) * size), _blocks(size, 2048))


def add(size: int) -> Kernel:
    """Make the sum of two tensors."""
    return elementwise(f"at::native::CUDAFunctor_add<{_BF16}>", size, 2)


def gelu(size: int, *, backward: bool = False) -> Kernel:
    """Make GELU or its gradient."""
    side = "Backward" if backward else ""
    owner = f"at::native::Gelu{side}CUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)"
    values = ", ".join([_BF16] * (2 if backward else 1))
    calls = "::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda("
    return elementwise(f"{owner}{calls}{values})#1}}", size, 2 if backward else 1)


def scale(size: int) -> Kernel:
    """Make a product with a number, as data parallelism divides gradients by the number of ranks."""
    functor = f"at::native::AUnaryFunctor<{_BF16}, {_BF16}, {_BF16}, at::native::binary_internal::MulFunctor<float> >"
    return elementwise(functor, size, 1, vector=8)


def cast() -> Kernel:
    """Make the conversion of one number to float32."""
    functor = "at::native::float_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}"
    return elementwise(functor, 4, 1)


def dropout(size: int, *, backward: bool = False) -> Kernel:
    """Make dropout or its gradient."""
    if backward:
        return elementwise(f"at::native::masked_scale_kernel<bool, {_BF16}, float>", size, 2)
    name = f"void at::native::{_ANONYMOUS}::fused_dropout_kernel_vec<{_BF16}, float, unsigned int, 1, 8, bool>"
    info = f"at::cuda::detail::TensorInfo<{_BF16}, unsigned int>"
    args = f"({info}, {info}, float, at::PhiloxCudaState)"
    return Kernel(name + args, _traffic(2.5 * size), (1056, 1, 1), (256, 1, 1))


def layer_norm(rows: int, width: int) -> Kernel:
    """Make layer norm."""
    name = f"void at::native::{_ANONYMOUS}::vectorized_layer_norm_kernel<{_BF16}, float, false>"
    args = f"(int, float, {_BF16} const*, {_BF16} const*, {_BF16} const*, float*, float*, {_BF16}*)"
    return Kernel(name + args, _traffic(4 * rows * width), (rows, 1, 1), (32, 4, 1), 40, 24)


def layer_norm_backward(rows: int, width: int) -> tuple[Kernel, ...]:
    """Make the gradients of layer norm: of the input, of weight and bias."""
    at = f"void at::native::{_ANONYMOUS}::"
    grad_input = f"{at}layer_norm_grad_input_kernel_vectorized<{_BF16}, float, false>({_BF16} const*, float*, int)"
    gamma_beta = f"{at}GammaBetaBackwardCUDAKernelTemplate<{_BF16}, float, 64u, 1u, 32u, true, true, false>(long, long)"
    size = 2 * rows * width
    return (
        Kernel(grad_input, _traffic(3 * size), (rows, 1, 1), (256, 1, 1), 40, 32),
        Kernel(gamma_beta, _traffic(2 * size), (width // 32, 8, 1), (32, 32, 1), 48, 8448),
    )


def column_sum(rows: int, width: int) -> Kernel:
    """Make the gradient of a bias."""
    functor = f"at::native::func_wrapper_t<{_BF16}, at::native::sum_functor<{_BF16}, float, {_BF16}> >"
    op = f"at::native::ReduceOp<{_BF16}, {functor}, unsigned int, {_BF16}, 4>"
    name = f"void at::native::reduce_kernel<128, 4, {op} >({op})"
    return Kernel(name, _traffic(2.2 * rows * width), (width // 128, 16, 1), (32, 16, 1), 64, 16)


def softmax(rows: int, width: int, *, backward: bool = False) -> Kernel:
    """Make log-softmax over the vocabulary or its gradient."""
    side = "Backward" if backward else "Forward"
    name = f"void at::native::{_ANONYMOUS}::cunn_SoftMax{side}<8, {_BF16}, float, {_BF16}, at::native::{_ANONYMOUS}"
    args = f"::LogSoftMax{side}Epilogue>({_BF16}*, {_BF16} const*, int)"
    return Kernel(name + args, _traffic((6 if backward else 4) * rows * width), (rows, 1, 1), (1024, 1, 1), 40, 128)


def nll_loss(rows: int, *, backward: bool = False) -> Kernel:
    """Make the negative log-likelihood of the targets or its gradient."""
    side = "backward" if backward else "forward"
    name = f"void at::native::{_ANONYMOUS}::nll_loss_{side}_reduce_cuda_kernel_2d<{_BF16}, float, long>"
    return Kernel(f"{name}({_BF16}*, {_BF16} const*, long const*, bool, long, long)", 3.2 + rows / 4e3, (1, 1, 1))


def embedding(rows: int, width: int) -> Kernel:
    """Make a look-up in an embedding table."""
    name = f"void at::native::{_ANONYMOUS}::indexSelectLargeIndex<{_BF16}, long, unsigned int, 2, 2, -2, true>"
    return Kernel(f"{name}(long)", _traffic(4 * rows * width), (1056, 1, 1))


def embedding_backward(rows: int, width: int) -> tuple[Kernel, ...]:
    """Make the gradient of an embedding table: sort the indices, add up their rows."""
    cub = "void at_cuda_detail::cub::"
    policy = "at_cuda_detail::cub::DeviceRadixSortPolicy<long, long, unsigned int>::Policy900"
    native = f"void at::native::{_ANONYMOUS}::"
    sort = f"{cub}DeviceRadixSortSingleTileKernel<{policy}, false, long, long, unsigned int>(long*)"
    reduce = f"{cub}DeviceReduceByKeyKernel<long*, long*, long*, int>(long*, int)"
    weight = f"{native}compute_grad_weight<{_BF16}, long>(long*, {_BF16}*, long)"
    scatter = f"{native}sum_and_scatter<{_BF16}, long>(long*, {_BF16}*, float*)"
    return (
        Kernel(sort, 14.5, (1, 1, 1)),
        Kernel(reduce, 6.1, _blocks(8 * rows, 4096)),
        Kernel(weight, _traffic(5 * rows * width), (96, 64, 1)),
        Kernel(scatter, _traffic(3 * rows * width), (96, 64, 1)),
    )


def multi_tensor(functor: str, size: float) -> Kernel:
    """Make a kernel of the optimizer or of gradient clipping that walks over many tensors."""
    at = f"at::native::{_ANONYMOUS}::"
    data = f"{at}TensorListMetadata<4>, {at}{functor}"
    name = f"void {at}multi_tensor_apply_kernel<{data}, float, float>({data}, float, float)"
    return Kernel(name, _traffic(size), (320, 1, 1), (512, 1, 1), 48)


def _compute(flops: float, per_second: float) -> float:
    return 2.0 + flops / per_second * 1e6


def _traffic(size: float) -> float:
    return 1.6 + size / MEMORY_BYTES_PER_SECOND * 1e6


def _blocks(size: int, per_block: int) -> tuple[int, int, int]:
    return (min(LARGEST_GRID, ceil(size / per_block)), 1, 1)
