"""A report made by hand: every mark, hostile names, missing values; plausible enough to be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htareport.report import Better, Chart, Column, Fact, Mark, Report, Section, Status, Table, TableSpec, Unit, key
from htareport.report.findings import Finding, Severity

HOSTILE = [
    "</script><script>window.__xss=1</script>",
    '<img src=x onerror="window.__xss=2">',
    '<span style="background:url(http://evil.invalid/p)">s</span>',
    '<a href="https://evil.invalid/">x</a>',
    "=cmd|' /C calc'!A0",
    "&lt;b&gt; %{customdata} {{ 7*7 }} {% x %}",
    "line\nbreak\tand\r\x00\x1b control",
    "\u202egnp.exe \u2066isolate",
    "x`y``z | @octocat #1 ![p](http://evil.invalid/q.png)",
    "]]> --> <!-- '\"",
    "核函数_ядро_🚀",
    "javascript:alert(1)",
]
_ADD = "at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>"
_TILE = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8"
_FLASH = "Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>"
REAL = [
    f"void at::native::vectorized_elementwise_kernel<4, {_ADD} >(int, {_ADD})",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas",
    f"void cutlass::Kernel2<{_TILE}>({_TILE}::Params)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    f"void flash::flash_fwd_kernel<{_FLASH} >(flash::Flash_fwd_params)",
    "triton_poi_fused__to_copy_add_mul_native_layer_norm_12",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4, (ADAM_MODE)1> >(...)",
    "Memcpy DtoD (Device -> Device)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(int)",
]
PARTS = ["compute", "exposed communication", "exposed memory", "idle"]
HELP = """Where the device time of every rank goes, as shares of the step.

## How it is computed

Unions of device events, clipped to the step's window:

- **compute**: kernels that are neither communication nor memory
- exposed communication: `communication` outside compute

Exact integer nanoseconds.

## What to do

Overlap communication with compute: `bucket_cap_mb` sets how much is sent at once.
"""
NS, NAME, COUNT, RATIO, BYTES = Unit.NANOSECONDS, Unit.NAME, Unit.COUNT, Unit.RATIO, Unit.BYTES


def sample(ranks: int = 8, steps: int = 10, kernels: int = 400, *, hostile: bool = True) -> Report:
    """Return a whole report of `ranks` ranks."""
    random = np.random.default_rng(7)
    parts = {
        "compute": random.normal(180e6, 3e6, (ranks, steps)),
        "exposed communication": np.abs(random.normal(38e6, 6e6, (ranks, steps))),
        "exposed memory": np.abs(random.normal(4e6, 1e6, (ranks, steps))),
    }
    parts["compute"][ranks // 3] += 33e6
    busy = np.sum(list(parts.values()), axis=0)
    parts["idle"] = busy.max(axis=0)[None] + 12e6 - busy
    sections = (
        _time(parts, ranks, steps),
        _overlap(random, ranks, steps),
        _ranks(parts, ranks, steps),
        _kernels(random, kernels, hostile=hostile),
        _communication(random),
        _memory(random),
        _host(random),
        Section(
            "cupti_counters", "Hardware counters", "Kernels", HELP, Status.NOT_APPLICABLE,
            "the traces hold no CUPTI counters; profile with `experimental_config=_ExperimentalConfig(...)`",
        ),
        Section("memory_timeline", "Memory timeline", "Memory", status=Status.FAILED, reason="ValueError: <b>bad</b>"),
    )  # fmt: skip
    return Report(
        title="llama-7b, 8 × H100, run 42",
        verdict="231 ms per step; 15 % of it is communication that nothing hides. Rank 2 computes 18 % longer.",
        meta=_meta(ranks, steps),
        warnings=(
            "Rank 5: 2 events end before they start and were left out.",
            *(f"Rank {i}: clock offset {i} ms against rank 0" for i in range(6)),
        ),
        sections=sections,
    )


def _meta(ranks: int, steps: int) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "source": "traces-42",
        "num_ranks": ranks,
        "world_size": ranks * 2,
        "devices": {"NVIDIA H100 80GB HBM3": ranks},
        "steps": {"count": steps, "first": 3, "last": 2 + steps},
        "window": f"Steps 3 to {2 + steps} of every rank; the last profiler step is left out.",
        "software": {"PyTorch": "2.9.1", "CUDA": "13.0"},
        "capture": {"record_shapes": True, "with_stack": False},
        "options": {"steps": "complete", "ranks": None},
        "files": [{"name": f"rank{i}.json.gz", "bytes": 10**7 + i, "rank": i, "note": ""} for i in range(ranks)],
        "left_out": [{"name": "readme.json", "reason": "no trace events"}],
        "ranks": [{"rank": i, "files": [f"rank{i}.json.gz"], "devices": [0]} for i in range(ranks)],
        "start": "2026-11-29T10:00:00Z",
        "something": {"new": [1, 2, {"deep": None}]},
    }


def long_form(parts: dict[str, np.ndarray], axis: int, what: str) -> pd.DataFrame:
    """Means over the other axis, one row per place and part."""
    means = {name: values.mean(axis=1 - axis) for name, values in parts.items()}
    rows = [(i, name, float(v)) for name, values in means.items() for i, v in enumerate(values)]
    return pd.DataFrame(rows, columns=[what, "part", "time"])


def _time(parts: dict[str, np.ndarray], ranks: int, steps: int) -> Section:
    compute, total = parts["compute"], np.sum(list(parts.values()), axis=0)
    lines = [
        (s, name, value, low, high)
        for s in range(steps)
        for name, value, low, high in (
            ("median", np.median(compute[:, s]), *np.percentile(compute[:, s], [5, 95])),
            ("slowest rank", compute[:, s].max(), np.nan, np.nan),
        )
    ]
    charts = (
        Chart("per_step", "Where each step goes", Mark.STACKED_BAR, long_form(parts, 1, "step"), "step", "time", "part",
              x_label="step", y_label="time, mean of ranks", caption="Mean over ranks; exposed means not hidden."),
        Chart("compute", "Compute time per step", Mark.LINE,
              pd.DataFrame(lines, columns=["step", "who", "time", "low", "high"]), "step", "time", "who",
              low="low", high="high", x_label="step", y_label="compute time", lines=((198e6, "budget 198 ms"),),
              caption="Band: 5th to 95th percentile over ranks."),
        Chart("average", "Average step", Mark.STACKED_BAR, long_form(
              {k: v.mean(keepdims=True).reshape(1, 1) for k, v in parts.items()}, 1, "step").assign(step="all"),
              "step", "time", "part", x_unit=Unit.TEXT, y_label="time"),
    )  # fmt: skip
    spec = TableSpec("per_rank", "Time by rank", (
        key("rank", "Rank"),
        *(Column(p.replace(" ", "_"), p.capitalize(), NS, f"Time of {p} within the steps.") for p in PARTS),
        Column("share", "Compute share", RATIO, "compute / step time", better=Better.HIGHER)))  # fmt: skip
    frame = pd.DataFrame({"rank": range(ranks)} | {p.replace(" ", "_"): v.mean(axis=1).astype("int64")
                          for p, v in parts.items()})  # fmt: skip
    frame["share"] = compute.mean(axis=1) / total.mean(axis=1)
    facts = (
        Fact("step_time", "Step time", float(np.median(total)), NS, "p95 247 ms over 10 steps", "Median over steps.",
             Better.LOWER),
        Fact("compute", "Computing", float(compute.mean() / total.mean()), RATIO, "of step time", "compute / step"),
        Fact("exposed", "Exposed communication", 0.147, RATIO, "34.0\u202fms per step", "comm outside compute"),
        Fact("idle", "Idle", 0.112, RATIO, "of step time", "No device event runs."),
    )  # fmt: skip
    findings = (
        Finding("straggler", Severity.HIGH, "Rank 2 computes 18 % longer than the median", "The others wait for it.",
                "Check clocks and ECC on that host.", 33_000_000, "high", (2,), (3, 4)),
        Finding("exposed_comm", Severity.MEDIUM, "34 ms of communication per step is not hidden", "Buckets start late.",
                "Use a smaller first bucket.", 22_000_000, "medium"),
        Finding("note", Severity.LOW, "Nothing to <b>save</b> here"),
    )  # fmt: skip
    return Section("temporal_breakdown", "Time breakdown", "Time", HELP, facts=facts, findings=findings, charts=charts,
                   tables=(Table(spec, frame),), notes=("Steps 3 and 12 are cut and left out.",))  # fmt: skip


def _overlap(random: np.random.Generator, ranks: int, steps: int) -> Section:
    rows = [(s, n, float(random.normal(mean, 3e6))) for s in range(steps) for n, mean in
            (("hidden", 54e6), ("exposed", 38e6))]  # fmt: skip
    area = Chart("overlap", "Communication hidden under compute", Mark.AREA,
                 pd.DataFrame(rows, columns=["step", "kind", "time"]), "step", "time", "kind", x_label="step",
                 y_label="time")  # fmt: skip
    rows2, clock = [], {"compute 7": 0.0, "nccl 20": 5e6, "memcpy 3": 2e6}
    for lane, kind, mean, gap in (("compute 7", "compute", 4e5, 1e5), ("nccl 20", "communication", 4e6, 3e6),
                                  ("memcpy 3", "memory", 3e5, 6e6)):  # fmt: skip
        while clock[lane] < 228e6:
            start = clock[lane] + random.exponential(gap)
            end = start + random.exponential(mean)
            rows2.append((lane, kind, start, end, REAL[len(rows2) % len(REAL)]))
            clock[lane] = end
    timeline = Chart("timeline", "One step on the GPU streams", Mark.TIMELINE,
                     pd.DataFrame(rows2, columns=["lane", "kind", "start", "end", "name"]), "start", "lane", "kind",
                     x2="end", text="name", x_label="time in the step", x_unit=NS, y_unit=Unit.TEXT)  # fmt: skip
    spec = TableSpec("comm_overlap", "Overlap by rank", (key("rank", "Rank"), Column("overlap", "Overlap", RATIO)))
    frame = pd.DataFrame({"rank": range(ranks), "overlap": random.uniform(0.4, 0.8, ranks)})
    return Section("comm_overlap", "Overlap", "Time", "How much communication hides.", charts=(timeline, area),
                   tables=(Table(spec, frame),),
                   facts=(Fact("overlap", "Overlap", 0.59, RATIO, "of communication hidden"),))  # fmt: skip


def _ranks(parts: dict[str, np.ndarray], ranks: int, steps: int) -> Section:
    compute = parts["compute"]
    cells = pd.DataFrame([(r, s, float(compute[r, s])) for r in range(ranks) for s in range(steps)],
                         columns=["rank", "step", "time"])  # fmt: skip
    box = pd.DataFrame([(f"host {r}", *np.percentile(compute[r], [50, 0, 25, 75, 100])) for r in range(min(ranks, 8))],
                       columns=["host", "p50", "p0", "p25", "p75", "p100"])  # fmt: skip
    charts = (
        Chart("by_rank", f"By rank ({ranks})", Mark.STACKED_BAR, long_form(parts, 0, "rank"), "rank", "time", "part",
              x_label="rank", y_label="time per step"),
        Chart("heat", "Compute time, rank × step", Mark.HEATMAP, cells, "step", "rank", "time", x_label="step",
              y_label="rank", y_unit=Unit.ID),
        Chart("box", "Compute time by host", Mark.BOX, box, "host", "p50", low="p0", q1="p25", q3="p75", high="p100",
              x_unit=Unit.TEXT, y_label="compute time"),
    )  # fmt: skip
    worst = Fact("slowest", "Slowest rank", float(ranks // 3), Unit.RANK, "+33.0\u202fms over the median")
    return Section("stragglers", "Ranks compared", "Ranks", charts=charts, facts=(worst,))


def _kernels(random: np.random.Generator, count: int, *, hostile: bool) -> Section:
    names = REAL + (HOSTILE if hostile else [])
    names = (names + [f"{REAL[i % len(REAL)]}#{i}" for i in range(count)])[:count]
    total = np.sort(random.pareto(1.1, count) * 9e5 + 3e3)[::-1]
    calls = random.integers(1, 4000, count)
    kind = ["communication" if "nccl" in n else "memory" if "Mem" in n else "compute" for n in names]
    frame = pd.DataFrame({"name": names, "kind": kind, "sum": total.astype("int64"), "share": total / total.sum(),
                          "count": calls, "mean": total / calls, "std": np.where(calls > 1, total / calls / 3, np.nan),
                          "bytes": pd.array([None if i % 3 else i * 1000 for i in range(count)], dtype="Int64")
                          .astype("object")})  # fmt: skip
    spec = TableSpec("kernels", "All kernels", (
        key("name", "Kernel", NAME, "Name in the trace."), Column("kind", "Kind"),
        Column("sum", "Total", NS, "Sum of durations over all ranks.", better=Better.LOWER),
        Column("share", "Share", RATIO, "Total / total of all kernels."), Column("count", "Calls", COUNT),
        Column("mean", "Mean", NS), Column("std", "Std", NS, "Sample standard deviation."),
        Column("bytes", "Bytes", BYTES)))  # fmt: skip
    top = frame.head(22)
    edges = np.geomspace(1e3, 1e7, 41)
    counts = np.histogram(random.lognormal(np.log(20e3), 1.1, 20000), edges)[0]
    spread = pd.DataFrame([(n, r, m, m * 0.8, m * 1.3) for n, m in zip(names[:5], total[:5], strict=True)
                           for r in ("rank 0", "rank 1")], columns=["name", "rank", "mean", "low", "high"])  # fmt: skip
    charts = (
        Chart("top", "Top kernels by total GPU time", Mark.BAR, top, "sum", "name", "kind", x_label="total time",
              x_unit=NS, y_unit=NAME),
        Chart("durations", "Kernel durations", Mark.HISTOGRAM,
              pd.DataFrame({"left": edges[:-1], "right": edges[1:], "calls": counts}), "left", "calls", x2="right",
              x_label="duration", x_unit=NS, y_label="calls", y_unit=COUNT, log_x=True, lines=((20e3, "median"),)),
        Chart("spread", "Mean by rank", Mark.RANGE, spread, "mean", "name", "rank", low="low", high="high",
              x_label="duration", x_unit=NS, y_unit=NAME),
    )  # fmt: skip
    return Section("kernel_breakdown", "Kernel breakdown", "Kernels", HELP, charts=charts,
                   tables=(Table(spec, frame, f"The {count} kernels of largest sum."),))  # fmt: skip


def _communication(random: np.random.Generator) -> Section:
    sizes = 2.0 ** np.arange(10, 31)
    frame = pd.DataFrame([(size, peak / (1 + 2.0**22 / size) * random.uniform(0.95, 1.05), name) for size in sizes
                          for name, peak in (("all_reduce", 400e9), ("all_gather", 320e9))],
                         columns=["size", "rate", "kind"])  # fmt: skip
    chart = Chart("bus", "Bus bandwidth by message size", Mark.SCATTER, frame, "size", "rate", "kind", log_x=True,
                  x_unit=BYTES, y_unit=Unit.BYTES_PER_SECOND, x_label="message size", y_label="bus bandwidth",
                  lines=((400e9, "NVLink peak"),))  # fmt: skip
    return Section("collectives", "Collectives", "Communication", charts=(chart,))


def _memory(random: np.random.Generator) -> Section:
    time = np.sort(random.uniform(0, 2.3e9, 400))
    allocated = np.abs(np.cumsum(random.normal(0, 1, 400)) * 4e8 + 48 * 2**30)
    rows = [(t, n, float(v)) for n, vs in (("allocated", allocated), ("reserved", np.maximum.accumulate(allocated)))
            for t, v in zip(time, vs, strict=True)]  # fmt: skip
    chart = Chart("memory", "Memory, rank 0", Mark.LINE, pd.DataFrame(rows, columns=["t", "kind", "bytes"]), "t",
                  "bytes", "kind", x_unit=NS, y_unit=BYTES, x_label="time", y_label="memory",
                  lines=((80 * 2**30, "80 GiB"),))  # fmt: skip
    return Section("memory_bandwidth", "Memory use", "Memory", charts=(chart,),
                   facts=(Fact("peak", "Peak memory", float(allocated.max()), BYTES, "rank 0"),))  # fmt: skip


def _host(random: np.random.Generator) -> Section:
    time = np.sort(random.uniform(0, 2.3e9, 300))
    depth = np.maximum(0, np.cumsum(random.integers(-2, 3, 300)))
    chart = Chart("queue", "Queue length", Mark.LINE, pd.DataFrame({"t": time, "n": depth}), "t", "n", x_unit=NS,
                  y_unit=COUNT, x_label="time", y_label="kernels waiting")  # fmt: skip
    return Section("queue_length", "Queue length", "Host", charts=(chart,))
