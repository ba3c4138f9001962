"""The optimizer: kernel by kernel, and gradients filled with zeros."""

from __future__ import annotations

from builder import TraceBuilder

from htareport.rules.host.optimizer import UnfusedOptimizer, ZeroedGradients

RULES = [UnfusedOptimizer(), ZeroedGradients()]


def launched(name, annotation, number, begin=0):
    """So many kernels of 1 µs, every 5 µs, launched 3 before they start, within an annotation; a step of 2000."""
    trace = TraceBuilder().step(1, 0, 2000).cpu_op(annotation, begin, 5 * number + 10)
    for place in range(number):
        trace.kernel(name, begin + 5 * place + 5, 1, launch=(begin + 5 * place + 2, 1))
    return trace


def test_parameter_by_parameter(findings):
    """310 kernels of 1, two thirds of which go; the 309 gaps of 4, and the one of 5 before, are late for 2 and 3."""
    told = findings(RULES, launched("add", "Optimizer.step#AdamW.step", 310))
    assert {code: each.saving_ns for code, each in told.items()} == {
        "H19": 309 * 2000 + 3000 + round(310 * 1000 * 2 / 3)
    }
    assert "AdamW updates parameter by parameter" in told["H19"].title
    assert "launches 310 kernels per step, each for one tensor." in told["H19"].evidence
    assert "torch.optim.AdamW(" in told["H19"].snippet


def test_few_kernels_or_many_tensors_at_once(saved):
    assert saved(RULES, launched("add", "Optimizer.step#SGD.step", 290)) == {}
    assert saved(RULES, launched("multi_tensor_apply_kernel", "Optimizer.step#SGD.step", 310)) == {}
    assert saved(RULES, launched("add", "forward", 310)) == {}


def test_gradients_filled(findings):
    """20 fills of 1, and 19 gaps that are late for 2, and the first for 3."""
    told = findings(RULES, launched("FillFunctor", "Optimizer.zero_grad#SGD.zero_grad", 20))
    assert {code: each.saving_ns for code, each in told.items()} == {"H20": 20 * 1000 + 19 * 2000 + 3000}


def test_gradients_dropped(saved):
    assert saved(RULES, launched("FillFunctor", "Optimizer.zero_grad#SGD.zero_grad", 9)) == {}
    assert saved(RULES, launched("add", "Optimizer.zero_grad#SGD.zero_grad", 20)) == {}
