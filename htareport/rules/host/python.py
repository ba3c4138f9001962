"""A rule about Python code in which the host launches nothing: hooks, custom backward functions, wrappers, loops."""

from __future__ import annotations

import re
from dataclasses import dataclass

from htareport.rank.capability import Capability
from htareport.rank.host_calls import PYTHON_CATEGORY
from htareport.rank.host_rows import IDLE, frame_in, per, short
from htareport.rank.interval_sets import joined
from htareport.rank.python_stacks import OWN, Stacks
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_LIBRARY = re.compile(r"(?:^|/)torch/|^<|(?:^|/)(?:contextlib|functools|threading)\.py")
_OTHERS = r"^Python GC|gc\.collect|function collect>|dataloader\.py|_next_data|empty_cache|(?:^|/)torch/profiler/"
_CLAIMED = {  # What other rules have said already.
    "H12": r"torch/_(?:dynamo|inductor|functorch)/|triton/",
    "H19": r"torch/optim/|Optimizer\.step",
}
_MOST_NAMED = 3


@dataclass(frozen=True)
class PythonFrame:
    """A function of Python code in which the device is idle, ns per step."""

    name: str
    time_ns: float
    backward_share: float  # How much of it is in the backward pass.
    built_in: str = ""  # The built-in function in which most of it is, of the first.


@dataclass(frozen=True, kw_only=True)
class PythonOverheadEvidence(Evidence):
    """What was seen on one rank: python code keeps the device waiting."""

    frames: list[PythonFrame]
    number: int
    caller: str


@dataclass(frozen=True)
class PythonOverhead(Rule[PythonOverheadEvidence]):
    """Python functions take time themselves while the device is idle: hooks, `Function.backward`, wrappers, loops.

    ## When it speaks
    Python stacks are recorded, and one function (file and line) fills at least `least` of the step with time in which
    the device is idle, the host is late, and the thread that launches next is in that function itself: in no operator,
    runtime call or function that it calls. What is built in counts for the function that calls it. Data loaders,
    garbage collection and the profiler don't count, nor do optimizers (H19) and compilation (H12) where these rules
    speak.

    ## What it could save
    The idle time that such functions fill; half of it is the lower estimate. Recording stacks slows Python itself.

    ## What to do
    - **backward**: Take Python out of the backward pass: remove hooks or let one do the work of many, and let
      `torch.compile` trace custom functions (compiled autograd), or write them as operators in C++ or Triton.
    - **wrapper**: These are PyTorch's own functions around modules and operators: `torch.compile` or CUDA graphs run
      without them. Fewer, larger modules help as well.
    - **code**: Take what it does out of the step, do it every n steps or for all tensors at once; or let
      `torch.compile` trace it, or write it in C++.

    ## How to verify
    The function is gone from the idle time, and the step is shorter without stacks, too.
    """

    code, title, family, section = "H22", "Python code keeps the device waiting", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    least: float = 0.02

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        found = super().lacking(rank)
        stacks = () if PYTHON_CATEGORY in rank.loaded.tables else ("no Python stacks: profile with_stack=True",)
        return (*found, *stacks)

    def look(self, rank: Rank) -> PythonOverheadEvidence | None:
        if rank.share(rank.idle_by(*OWN)) < self.least:
            return None
        claimed = (pattern for code, pattern in _CLAIMED.items() if code in context_of(rank).found)
        stacks = Stacks(rank, "|".join([_OTHERS, *claimed]))
        times = stacks.times()
        times = times[times["time"] >= self.least * rank.whole]
        if not len(times):
            return None
        sets = [stacks.sets(code) for code in times.index.tolist()]
        strings, every = rank.loaded.strings, per(rank)
        named = zip(times.index.tolist(), times["time"].tolist(), times["backward"].tolist(), strict=True)
        frames = [
            PythonFrame(strings[code], idle / every, back / idle, "" if row else stacks.built_in(code))
            for row, (code, idle, back) in enumerate(list(named)[:_MOST_NAMED])
        ]
        name = frames[0].name
        spans = rank.spans(sets[0], name=short(name))
        caller = frame_in(rank, spans)
        return PythonOverheadEvidence(
            claim=joined(*sets), spans=spans, frames=frames, number=len(times), caller=caller if caller != name else ""
        )

    def tell(self, job: JobEvidence[PythonOverheadEvidence]) -> Finding:
        frames, number = job.worst.frames, job.worst.number
        first = frames[0]
        what = f"`{short(first.name)}`" if number == 1 else f"{number} functions"
        said = ", ".join(_words(frame, job) for frame in frames)
        kind, caller = _kind(first), job.worst.caller
        within = f" The longest such time is in `{short(caller)}`." if caller else ""
        return self.finding(
            job,
            f"Python code keeps the GPU waiting {job.max_saving} {job.per_step}, in {what}",
            evidence=f"The device is idle while the host runs {said} {job.per_step}: in the function itself, in no "
            f"operator or call of the runtime.{within}",
            cases=(kind,),
            assumption="That Python takes no time any more. Recording stacks slows Python itself: it is less without.",
            snippet=_SNIPPETS[kind],
        )


_BACK, _WRAPPER, _CODE = "backward", "wrapper", "code"
_SNIPPETS = {
    _BACK: "torch._dynamo.config.compiled_autograd = True\nmodel = torch.compile(model)  # Its backward pass, too.",
    _WRAPPER: 'model = torch.compile(model, mode="reduce-overhead")',
    _CODE: "model = torch.compile(model)  # Or py-spy record -- python main.py, to see more of it.",
}


def _kind(frame: PythonFrame) -> str:
    if 2 * frame.backward_share >= 1:
        return _BACK
    return _WRAPPER if _LIBRARY.search(frame.name) else _CODE


def _words(frame: PythonFrame, job: JobEvidence[PythonOverheadEvidence]) -> str:
    details = list[str]()
    if 2 * frame.backward_share >= 1:
        details.append("in the backward pass")
    if frame.built_in:
        details.append(f"mostly in `{short(frame.built_in)}`")
    told = f"`{short(frame.name)}` {job.time(frame.time_ns)}"
    return f"{told} ({', '.join(details)})" if details else told
