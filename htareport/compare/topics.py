"""What the sections of the Compare chapter say about themselves, and what gates can be about."""

from __future__ import annotations

from htareport.report import Section

GROUP = "Compare"
TOO_FEW = "too few steps to tell"

_HELP = {
    "compare": """\
Whether the new run's step is longer or shorter than the base's, by how much, how sure that is, and where it comes \
from.

## How it is computed
The job's step time is that of the slowest rank; the medians over the steps are compared. The interval (95 %) is that \
of the ratio of the medians, by resampling the steps; p is that of the two-sided Mann-Whitney test. A change is one \
where p is below 0.01 and the interval leaves out 1, and a probable one where p is below 0.05 and the change above \
5 %. Where the numbers of steps allow no p below 0.01, they are too few to tell. The parts of the mean step time add \
up to its change; how far the slowest rank is behind the mean of the ranks is the rest. If that changes by over 2 % of \
the step, the parts are those of the slowest rank in each step instead. A rank became slower alone if its own time \
(without exposed communication) explains the change and that of the others hardly moved. Without steps everything \
recorded is compared, and nothing tells chance from change.

## What to do
- First see whether the runs are like for like: other devices, versions, shapes or profiler options change times by \
themselves.
- No detectable change, but you expect one: record more steps (20 on each side), on the same machine, after warm-up.
- Then follow the largest part: kernels, communication, or what the host did while the device was idle.
""",
    "compare_kernels": """\
Which kernels take more or less time than before, and whether there are more calls, slower calls, or other kernels.

## How it is computed
Work is matched by the operators around its launch and by their input shapes, then by operator and shapes, path, \
operator, and last by the kernel's name, with and without its numbers: so another GPU or library, which renames \
kernels, does not turn everything into new and gone. All numbers are per step and rank, or per rank where one of the \
runs has no steps. A change of time is split into that of the number of calls and of their mean duration (logarithmic \
mean divisia index), or is one by swap, where the same operator runs other kernels; new and gone is what has nothing \
on the other side.

## What to do
- Slower calls of the same kernel: other shapes or types, clocks, memory that is shared with other work.
- More calls: look for the operator that calls it; a graph break or a fallback splits what was fused.
- Swapped: the library chose another algorithm; look at layout, alignment and type of the inputs.
""",
    "compare_names": """\
Which names there are on both sides, how often, and how long: what was added, removed, increased and decreased.

## How it is computed
Operators of the host (self time) and device work by name, per step and rank, as HTA's trace diff does for chosen \
ranks and steps. By number of calls a name is added, removed, increased, decreased or unchanged.

## What to do
Names that were added or removed tell what the change did to the model; those whose calls increased tell where it \
does more than before.
""",
    "compare_communication": """\
What became of collectives and copies: how many, how long, how many bytes.

## How it is computed
Per step and rank, matched by collective and process group, and by kind of copy. Times are sums of durations, which \
for collectives hold the wait for the last rank.

## What to do
More calls of the same bytes: buckets became smaller. Longer calls of the same bytes: a rank comes late, or the link \
is slower. More bytes: something is sent or copied that was not before.
""",
    "compare_ranks": """\
Which ranks became slower or faster.

## How it is computed
Mean step time of each rank on both sides, or its GPU span where one of the runs has no steps. *Own* is without \
exposed communication: what the rank needs by itself. Ranks are matched by number; those of one side only are listed.

## What to do
One rank that moved alone: look at its machine. All that moved alike: look at the change.
""",
    "gates": """\
Limits that this run was checked against.

## How it is computed
A gate says what is too much: `step_time > 255 ms`, and against a base `step_time > +5%` or `exposed_comm_pct > +2` \
(percentage points). A change crosses its limit if the whole 95 % interval lies beyond it; counts and bytes have no \
interval and are compared as they are. Where there is no interval, or there are too few steps to tell, the gate is \
inconclusive; that fails only with `--fail-on-inconclusive`. `finding: high` is crossed by any finding of at least \
that severity, `finding: H14` by that of one rule; of two runs, those of the new one.

## What to do
Look at the chapter of the number that crossed. An inconclusive gate wants more steps: 20 on each side.
""",
}
TITLES = {
    "compare": "What changed",
    "compare_kernels": "Kernels and their operators",
    "compare_names": "Operators and kernels by name",
    "compare_communication": "Collectives and copies",
    "compare_ranks": "Rank by rank",
    "gates": "Gates",
}
METRICS = {
    "step_time": "median over the steps of the slowest rank's time",
    "step_time_p95": "95th percentile of that",
    "compute_pct": "share of step time in which a compute kernel runs, mean over ranks and devices",
    "exposed_comm_pct": "share in which only communication runs, or copies beside it",
    "exposed_memory_pct": "share in which only copies run",
    "idle_pct": "share in which nothing runs on the device",
    "compute_time": "the same as time per step; likewise exposed_comm_time, exposed_memory_time, idle_time",
    "exposed_comm_time": "",
    "exposed_memory_time": "",
    "idle_time": "",
    "span": "from the first to the last device event, mean over devices",
    "compute_of_span_pct": "the shares of that span, for runs without steps; likewise exposed_comm_of_span_pct, "
    "exposed_memory_of_span_pct, idle_of_span_pct",
    "exposed_comm_of_span_pct": "",
    "exposed_memory_of_span_pct": "",
    "idle_of_span_pct": "",
    "kernels": "device events per step and rank",
    "kernel_time": "sum of their durations per step and rank",
    "collectives": "collectives per step and rank",
    "copied_bytes": "bytes copied per step and rank",
    "memory_peak": "most memory that tensors take on any rank and device",
    "host_wait_pct": "share of idle time in which the host is late",
    "overlap_pct": "share of communication that compute hides",
    "critical_path_host_pct": "share of the critical path on the host",
    "outside_steps_pct": "share of the devices' work outside the steps",
    "operator_time": "self time of all host operators, of runs without GPU",
    "operator_calls": "calls of host operators, of runs without GPU",
    "top_operator_pct": "share of the host operator that takes most, of runs without GPU",
    "mfu_pct": "share of the devices' peak arithmetic that matrix products and the like reach",
    "samples_per_second": "with --samples-per-step",
    "tokens_per_second": "with --tokens-per-step",
    "cost": "with --gpu-hour: of 1,000 steps, or of an hour without steps",
}


def section(name: str) -> Section:
    """Return an empty section with its title and help."""
    return Section(name, TITLES[name], GROUP, _HELP[name])


def help_of(name: str) -> str:
    """Return what a section says about itself."""
    return _HELP[name]
