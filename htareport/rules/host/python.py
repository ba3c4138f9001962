"""A rule about Python code that runs while the GPU is idle: hooks, custom backward functions, wrappers, loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

from htareport.rank.capability import Capability
from htareport.rank.host_calls import PYTHON_CATEGORY
from htareport.rank.host_rows import IDLE, frame_in, is_library, per, short
from htareport.rank.interval_sets import joined
from htareport.rank.python_stacks import OWN, Stacks
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_EXCLUDED = r"^Python GC|gc\.collect|function collect>|dataloader\.py|_next_data|empty_cache|(?:^|/)torch/profiler/"
_EXCLUDED_BY_RULE = {  # Where these rules speak, they say it.
    "H12": r"torch/_(?:dynamo|inductor|functorch)/|triton/",
    "H19": r"torch/optim/|Optimizer\.step",
}
_MAX_FRAMES = 3


@dataclass(frozen=True)
class PythonFrame:
    """A function of Python code in which the device is idle."""

    name: str
    time_ns: float  # Per step.
    backward_share: float  # How much of it is in the backward pass.
    built_in: str = ""  # The built-in function in which most of it is, of the first.

    @property
    def is_backward(self) -> bool:
        """Whether most of its time is in the backward pass."""
        return 2 * self.backward_share >= 1


@dataclass(frozen=True, kw_only=True)
class PythonOverheadEvidence(Evidence):
    """Python functions that take enough time while the device is idle."""

    frames: list[PythonFrame]  # The longest.
    num_functions: int
    caller: str  # The function of the user in the middle of the longest such time, if it is not the first frame.


@dataclass(frozen=True)
class PythonOverhead(Rule[PythonOverheadEvidence]):
    """Python functions take time themselves while the device is idle: hooks, `Function.backward`, wrappers, loops.

    ## When it speaks
    Python stacks are recorded, and the device is idle for at least `least` of the step while the host is late and the
    thread that launches next is in one function (file and line) itself: in no operator, runtime call or function that
    it calls. The time of built-in functions counts for their caller. Data loaders, garbage collection and the profiler
    don't count, nor do optimizers (H19) and compilation (H12) where these rules speak.

    ## What it could save
    The idle time in such functions. The lower estimate is half of it. Recording stacks slows Python itself.

    ## What to do
    - **backward**: Take Python out of the backward pass. Remove hooks, or let one do the work of many. Let
      `torch.compile` trace custom functions (compiled autograd), or write them as operators in C++ or Triton.
    - **wrapper**: These are PyTorch's own functions around modules and operators: `torch.compile` or CUDA graphs run
      without them. Fewer, larger modules help as well.
    - **code**: Take the work of this function out of the step, do it every n steps, or do it for all tensors at once.
      Else let `torch.compile` trace it, or write it in C++.

    ## How to verify
    The function is gone from the idle time. Without stacks the step is shorter, too.
    """

    code, title, family, section = "H22", "Python code keeps the device waiting", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    least: float = 0.02

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        has_stacks = PYTHON_CATEGORY in rank.loaded.tables
        return super().lacking(rank) + (() if has_stacks else ("no Python stacks: profile with_stack=True",))

    def look(self, rank: Rank) -> PythonOverheadEvidence | None:
        if rank.share(rank.idle_by(*OWN)) < self.least:
            return None
        by_rule = [_EXCLUDED_BY_RULE[code] for code in _EXCLUDED_BY_RULE if code in context_of(rank).found]
        stacks = Stacks(rank, "|".join([_EXCLUDED, *by_rule]))
        times = stacks.times()
        times = times[times["time"] >= self.least * rank.whole]
        if not len(times):
            return None
        codes, num_windows = times.index.tolist(), per(rank)
        rows = zip(codes, times["time"].tolist(), times["backward"].tolist(), strict=True)
        frames = [
            PythonFrame(rank.loaded.strings[code], idle / num_windows, backward / idle)
            for code, idle, backward in list(rows)[:_MAX_FRAMES]
        ]
        frames[0] = replace(frames[0], built_in=stacks.built_in(codes[0]))
        sets, name = [stacks.sets(code) for code in codes], frames[0].name
        spans = rank.spans(sets[0], name=short(name))
        caller = frame_in(rank, spans)
        return PythonOverheadEvidence(
            claim=joined(*sets),
            spans=spans,
            frames=frames,
            num_functions=len(times),
            caller=caller if caller != name else "",
        )

    def tell(self, job: JobEvidence[PythonOverheadEvidence]) -> Finding:
        worst, first = job.worst, job.worst.frames[0]
        functions = f"`{short(first.name)}`" if worst.num_functions == 1 else f"{worst.num_functions} functions"
        frames = ", ".join(_frame_text(frame, job) for frame in worst.frames)
        case = _BACKWARD if first.is_backward else _WRAPPER if is_library(first.name) else _CODE
        caller = f" The longest such time is in `{short(worst.caller)}`." if worst.caller else ""
        return self.finding(
            job,
            f"Python code keeps the GPU waiting {job.max_saving} {job.per_step}, in {functions}",
            evidence=f"The device is idle while the host runs {frames} {job.per_step}: in the function itself, in no "
            f"operator or call of the runtime.{caller}",
            cases=(case,),
            assumption="That Python takes no time any more. Recording stacks slows Python itself: it is less without.",
            snippet=_SNIPPETS[case],
        )


_BACKWARD, _WRAPPER, _CODE = "backward", "wrapper", "code"
_SNIPPETS = {
    _BACKWARD: "torch._dynamo.config.compiled_autograd = True\nmodel = torch.compile(model)  # Its backward pass, too.",
    _WRAPPER: 'model = torch.compile(model, mode="reduce-overhead")',
    _CODE: "model = torch.compile(model)  # Or py-spy record -- python main.py, to see more of it.",
}


def _frame_text(frame: PythonFrame, job: JobEvidence[PythonOverheadEvidence]) -> str:
    """A function with its time, and in brackets more about that time."""
    details = ["in the backward pass"] if frame.is_backward else []
    if frame.built_in:
        details.append(f"mostly in `{short(frame.built_in)}`")
    text = f"`{short(frame.name)}` {job.time(frame.time_ns)}"
    return f"{text} ({', '.join(details)})" if details else text
