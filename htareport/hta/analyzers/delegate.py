"""Turns methods of TraceAnalysis into functions that take a `Trace`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from htareport.hta.common.trace import Trace
from htareport.hta.trace_analysis import TraceAnalysis

P = ParamSpec("P")
Answer = TypeVar("Answer")


def of_trace(
    method: Callable[Concatenate[TraceAnalysis, P], Answer],
) -> staticmethod[Concatenate[Trace, P], Answer]:
    """Return a method as a static one that takes the trace as its first argument `t`."""

    @functools.wraps(method)
    def call(t: Trace, *arguments: P.args, **options: P.kwargs) -> Answer:
        return method(TraceAnalysis.from_trace(t), *arguments, **options)

    self_parameter, *parameters = inspect.signature(method).parameters.values()
    call.__signature__ = inspect.Signature([self_parameter.replace(name="t"), *parameters])  # type: ignore[attr-defined]
    return staticmethod(call)
