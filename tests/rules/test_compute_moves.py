"""Work that moves data: conversions of types, copies, and gradients of indexing."""

from __future__ import annotations

import pytest
from rules.computing import BF16, FLOAT, Work, states

from htareport.rules.compute.casts import Casts
from htareport.rules.compute.copies import Moves
from htareport.rules.compute.indexing import IndexingBackward

CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel"
SIZE = [1000, 1000]


def copying(dur, types, around="", **options):
    """A copy_ of 1 µs on the host between tensors of two types, within an operator, and 300 µs of other work."""
    trace = Work(**options)
    if around:
        trace.cpu_op(around, trace.host, 2)
    trace.run("aten::copy_", [(CAST, dur)], [SIZE, SIZE, []], **{"Input type": [*types, ""]})
    return trace.busy(300)


def test_casts(findings):
    """70 % of 100 µs; what converts is the operator around."""
    told = findings([Casts()], copying(100, [BF16, FLOAT], around="aten::linear"))["C17"]
    assert told.title == "Conversions between types take 100\u202fµs per step, 25.0\u202f% of compute"
    assert (told.saving_ns, told.low_ns) == (70_000, 35_000)
    assert told.evidence == (
        "1 call: float32 to bfloat16 100\u202fµs. Operators that convert: `aten::linear` 100\u202fµs."
    )
    assert "autocast" in told.advice


def test_casts_that_were_asked_for(findings):
    told = findings([Casts()], copying(100, [FLOAT, BF16], around="aten::_to_copy"))["C17"]
    assert told.evidence == "1 call: bfloat16 to float32 100\u202fµs."
    assert told.advice.startswith("Convert each tensor once")


@pytest.mark.parametrize(
    "trace",
    [
        copying(100, [FLOAT, FLOAT]),
        copying(9, [BF16, FLOAT]),
        copying(100, ["", FLOAT]),
        Work().run("aten::mul", [(CAST, 100)], [SIZE, SIZE], **{"Input type": [BF16, FLOAT]}),
    ],
    ids=["one type", "2.9 %", "type unknown", "no copy"],
)
def test_no_casts(tell, trace):
    assert states(tell([Casts()], trace)) == {"C17": "fine"}


def test_moves(findings):
    """Half of 40 + 60 µs; the copy within clone counts as its own, a copy by itself does not."""
    trace = Work().run("aten::cat", [("void at::native::CatArrayBatchedCopy<float>", 40)])
    trace.cpu_op("aten::clone", trace.host, 2).run("aten::copy_", [(CAST, 60)]).run("aten::copy_", [(CAST, 100)])
    told = findings([Moves()], trace.busy(300))["C19"]
    assert told.saving_ns == 50_000
    assert told.evidence.endswith("20.0\u202f% of the time in which the GPU computes or copies: "
                                  "`aten::clone` 60.0\u202fµs, `aten::cat` 40.0\u202fµs.")  # fmt: skip
    assert told.advice.startswith("Allocate the joined tensor once")
    assert "`.contiguous()`" in told.advice


def test_copies_on_the_device(findings):
    """Those of operators count, not those of libraries."""
    trace = Work().cpu_op("aten::copy_", 30, 2).cpu_op("c10d::allgather_", 40, 2).busy(300)
    trace.memcpy("DtoD (Device -> Device)", 500, 60, bytes=1000, launch=(31, "0.1"))
    trace.memcpy("DtoD (Device -> Device)", 560, 80, bytes=1000, launch=(41, "0.1"))
    told = findings([Moves()], trace)["C19"]
    assert told.saving_ns == 30_000
    assert "`aten::copy_` 60.0\u202fµs" in told.evidence


@pytest.mark.parametrize(
    "trace",
    [Work().run("aten::cat", [("cat", 15)]).busy(300), Work().run("aten::copy_", [(CAST, 100)]).busy(300)],
    ids=["4.8 %", "a copy that is wanted"],
)
def test_no_moves(tell, trace):
    assert states(tell([Moves()], trace)) == {"C19": "fine"}


def test_gradients_of_indexing(findings):
    """60 % of 30 + 70 µs."""
    trace = Work().cpu_op("autograd::engine::evaluate_function: IndexBackward0", 10, 2)
    trace.run("aten::_index_put_impl_", [(SORT, 30), ("indexing_backward_kernel", 70)]).busy(300)
    told = findings([IndexingBackward()], trace)["C20"]
    assert told.title == "Gradients of indexing take 100\u202fµs per step, 25.0\u202f% of compute"
    assert (told.saving_ns, told.low_ns, told.confidence) == (60_000, 0, "low")
    assert told.evidence.startswith("By operator: `IndexBackward0` 100\u202fµs. Kernels: `indexing_backward_kernel` 70")
    assert "torch.index_select" in told.snippet


def test_gradients_of_embeddings(findings):
    trace = Work().run("aten::embedding_dense_backward", [("embedding_backward_feature_kernel", 50)]).busy(300)
    told = findings([IndexingBackward()], trace)["C20"]
    assert told.title.startswith("Gradients of embeddings take 50.0\u202fµs")
    assert "SparseAdam" in told.snippet


@pytest.mark.parametrize(
    "trace",
    [
        Work().run("aten::_index_put_impl_", [(SORT, 100)]).busy(300),
        Work().run("aten::embedding_dense_backward", [("embedding_backward_feature_kernel", 6)]).busy(300),
        Work()
        .cpu_op("autograd::engine::evaluate_function: GatherBackward0", 10, 2)
        .run("aten::scatter_add_", [("x", 99)]),
    ],
    ids=["no gradient", "2 %", "does not sort"],
)
def test_no_gradients_of_indexing(tell, trace):
    assert states(tell([IndexingBackward()], trace)) == {"C20": "fine"}


def test_help():
    for rule in (Casts(), Moves(), IndexingBackward()):
        assert "`least`" in rule.help()
