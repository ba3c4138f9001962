"""Figures of real traces that another program worked out for the catalogue of rules, within a point of per cent.

Its window is from the first device event to the last. What it defines in another way than this package, it says here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from htareport.algorithms import intervals
from htareport.rank.drains import _waiting_rows
from htareport.rank.host_rows import late
from htareport.rank.interval_sets import common, minus, total
from htareport.rank.kernel_grids import blocks, processors
from htareport.rank.kernel_types import events_of
from htareport.trace import RankTrace

TRACES = Path(__file__).parents[3] / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"needs the traces in {TRACES}")

WORKERS_0, WORKERS_4 = "resnet50_workers0_v100/worker0.1623143089861", "resnet50_workers4_v100/worker0.1623213129365"


class Recorded(RankTrace):
    """From the first device event to the last, whatever the steps are."""

    @property
    def windows(self):
        """One of each lane."""
        return {lane: np.array([[e["ts"].min(), e["end"].max()]], np.int64) for lane, e in self.events_by_lane.items()}


def recorded(run):
    """Of a pair of runs, each of two captures, the one that was probed: the first of one, the second of the other."""
    folder, _, name = run.partition("/")
    [path] = (TRACES / folder).glob(f"{name}*.json.gz")
    return Recorded.load(0, path)


def percent(rank, sets):
    return 100 * rank.share(sets)


def waiting(rank):
    """When the host is in calls that wait for the device, and gaps in which one returned and the host is late.

    The rules save no more of such a gap than the host has spent in waiting calls; this counts it whole.
    """
    host, rows = rank.host, _waiting_rows(rank, blocking=False)[0]
    start, end = (host.at(name, rows) for name in ("ts", "end"))
    calls, gaps = {}, {}
    for lane, mine in rank.gaps.items():
        calls[lane], end = intervals.union(start, end), np.sort(end)
        behind = np.searchsorted(end, mine[:, 0]) < np.searchsorted(end, mine[:, 1])
        gaps[lane] = mine[behind]
    return rank.clipped(calls), common(gaps, late(rank))


def of_few_blocks(rank):
    """The share of kernels' time that those with fewer blocks than the device has processors take."""
    events, counts = events_of(rank), processors(rank)
    room = np.array([counts[device] for device in events.devices])
    few = events.wanted & (blocks(rank) < room)
    return events.durations[few].sum() / events.durations[events.wanted].sum()


@pytest.mark.parametrize(
    ("run", "idle", "host_late", "short", "short_time", "sync", "drained", "unfilled"),
    [
        ("owlv2_h100/", 47.4, 46.8, 48, 2, 35, 46.3, 4),
        ("bert_h100/", 92.1, 89.6, 97, 83, 1, None, 65),
        ("resnet_ddp_mi300x/", 3.0, 0.0, 78, 11, 44, 0.0, None),
        pytest.param(WORKERS_0, 39.4, 37.9, 62, 1, 2, None, 6, marks=pytest.mark.slow),
        pytest.param(WORKERS_4, 16.0, 14.2, 62, 1, 0, None, 6, marks=pytest.mark.slow),
    ],
)
def test_figures(run, idle, host_late, short, short_time, sync, drained, unfilled):
    rank = recorded(run)
    assert percent(rank, rank.idle) == pytest.approx(idle, abs=1)
    assert percent(rank, late(rank)) == pytest.approx(host_late, abs=1)
    kernels = rank.device_events
    kernels = kernels[kernels["kind"].isin(["compute", "comm"])]
    small = kernels["dur"] < 10_000
    assert 100 * small.mean() == pytest.approx(short, abs=1)
    assert 100 * kernels["dur"][small].sum() / kernels["dur"].sum() == pytest.approx(short_time, abs=1)
    calls, gaps = waiting(rank)
    assert percent(rank, calls) == pytest.approx(sync, abs=1)
    if drained is not None:
        assert percent(rank, gaps) == pytest.approx(drained, abs=1)
    if unfilled is not None:
        assert 100 * of_few_blocks(rank) == pytest.approx(unfilled, abs=1)


def test_exposed_communication():
    """62 % counts from the first device event whose launch was recorded.

    Before that, 968 events of the step before run without one; with them, as everywhere here, it is 64.3 %.
    """
    rank = recorded("resnet_ddp_mi300x/")
    [lane] = rank.lanes
    exposed = minus(rank.busy("comm"), rank.busy("compute"))
    assert percent(rank, exposed) == pytest.approx(64.3, abs=0.05)
    launched = rank.device_events["launch"].to_numpy() >= 0
    first, last = rank.events_by_lane[lane]["ts"].to_numpy()[launched].min(), rank.windows[lane][0, 1]
    assert (~launched).sum() == (~launched[: launched.argmax()]).sum() == 968
    since = total(common(exposed, {lane: np.array([[first, last]])}))
    assert 100 * since / (last - first) == pytest.approx(62.4, abs=0.05)
