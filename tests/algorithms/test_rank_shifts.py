"""What a job gains when time goes on some ranks: the same as if it is run again without that time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms.rank_shifts import Calls, Late, Removed, Stream, saved, shifts


class Job:
    """Ranks that compute, meet in collectives of some of them, and compute on: times are whole numbers."""

    def __init__(self, own, transfer, members):
        self.own, self.transfer, self.members = own, transfer, members

    def run(self):
        """When each rank ends; and the entries: collective, rank, arrival, end."""
        at, entries = np.zeros(len(self.own), np.int64), []
        for number, ranks in enumerate(self.members):
            at[ranks] += self.own[ranks, number]
            end = at[ranks].max() + self.transfer[number]
            entries += [(number, rank, int(at[rank]), int(end)) for rank in ranks]
            at[ranks] = end
        return at + self.own[:, -1], entries

    def without(self, own, transfer):
        """The job without some of its time."""
        return Job(self.own - own, self.transfer - transfer, self.members)

    def calls(self):
        """As they are recorded, in order of their ends: every rank does nothing else in a collective."""
        entries = sorted(self.run()[1], key=lambda entry: (entry[3], entry[0], entry[1]))
        order = {number: place for place, number in enumerate(dict.fromkeys(entry[0] for entry in entries))}
        number, rank, arrival, end = map(np.array, zip(*entries, strict=True))
        before = [max((k for k in range(n) if rank[k] == rank[n]), default=-1) for n in range(len(rank))]
        slack = np.where(np.array(before) < 0, 0, arrival - end[before])
        stream = Stream(np.array(before), slack, np.zeros_like(slack))
        collective = np.array([order[each] for each in number.tolist()])
        return number, Calls.of(collective, rank, (arrival, end), end - arrival, stream)

    def balanced(self, chosen):
        """The job with some own time gone: ranks come to these collectives no later than the mean of all."""
        own, at = self.own.astype(float), np.zeros(len(self.own))
        for number, ranks in enumerate(self.members):
            at[ranks] += own[ranks, number]
            if chosen[number]:
                own[ranks, number] -= np.maximum(at[ranks] - at[ranks].mean(), 0)
                at[ranks] = np.minimum(at[ranks], at[ranks].mean())
            at[ranks] = at[ranks].max() + self.transfer[number]
        return at + own[:, -1]

    def saving(self, own, transfer, chosen=None):
        """By how much the last rank ends earlier, as `shifts` says."""
        number, calls = self.calls()
        at = np.array([[own[r, : n + 1].sum()] for n, r in zip(number, calls.rank, strict=True)], float)
        in_all = own.sum(axis=1)[:, None].astype(float)
        removed = Removed(at, at, transfer[number][:, None].astype(float), in_all, adds=bool((own < 0).any()))
        late = None if chosen is None else Late(chosen[number], to_mean=True)
        return saved(self.run()[0], shifts(calls, removed, late))[0]


@st.composite
def jobs(draw, *, whole=False):
    """A job, and what goes of its own time and of its transfers."""
    ranks, collectives = draw(st.integers(2, 5)), draw(st.integers(1, 6))
    seed = draw(st.integers(0, 2**31))
    random = np.random.default_rng(seed)
    members = [
        sorted(random.choice(ranks, ranks if whole else random.integers(2, ranks + 1), replace=False).tolist())
        for _ in range(collectives)
    ]
    own, transfer = random.integers(0, 100, (ranks, collectives + 1)), random.integers(1, 30, collectives)
    for number, there in enumerate(members):  # Who takes no part has no time of its own before it.
        own[[rank for rank in range(ranks) if rank not in there], number] = 0
    less = random.integers(0, own + 1) * (random.random(own.shape) < 0.5)
    fewer = random.integers(0, transfer) * (random.random(collectives) < 0.3)
    return Job(own, transfer, members), less, fewer


@settings(max_examples=80, deadline=None)
@given(jobs())
def test_as_if_it_is_run_again(made):
    """Exactly so, where ranks do nothing else in collectives."""
    job, own, transfer = made
    gained = job.run()[0].max() - job.without(own, transfer).run()[0].max()
    assert job.saving(own, transfer) == gained >= 0


@settings(max_examples=40, deadline=None)
@given(jobs(), st.integers(0, 2**31))
def test_as_if_it_is_run_again_with_more(made, seed):
    """Some ranks have more of their own time than before, as where work is balanced: what then ends later saves 0."""
    job, own, transfer = made
    more = np.where(job.own > 0, np.random.default_rng(seed).integers(0, 60, own.shape), 0)
    gained = job.run()[0].max() - job.without(own - more, transfer).run()[0].max()
    assert job.saving(own - more, transfer) == max(gained, 0)


@settings(max_examples=40, deadline=None)
@given(jobs(), st.integers(0, 2**31))
def test_ranks_that_come_together(made, seed):
    """As if whatever makes a rank later than the mean were gone, to some of the collectives."""
    job, own, transfer = made
    chosen = np.random.default_rng(seed).random(len(transfer)) < 0.7
    gained = job.run()[0].max() - job.balanced(chosen).max()
    assert job.saving(np.zeros_like(own), np.zeros_like(transfer), chosen) == pytest.approx(gained, abs=1e-6)
    assert gained <= sum(_waits(job, chosen)) + 1e-6


def _waits(job, chosen):
    """Mean wait of those that wait, in each of these collectives."""
    _, entries = job.run()
    for number in np.flatnonzero(chosen):
        arrival = np.array([entry[2] for entry in entries if entry[0] == number])
        yield float((arrival.max() - arrival).sum() / (len(arrival) - 1))


@settings(max_examples=25, deadline=None)
@given(jobs(whole=True), st.integers(0, 2**31))
def test_bounds(made, seed):
    """Nothing gone saves nothing; more gone saves no less; never more than all that goes."""
    job, own, transfer = made
    some = np.random.default_rng(seed).integers(0, own + 1)
    nothing = np.zeros_like(transfer)
    assert job.saving(np.zeros_like(own), nothing) == 0
    assert job.saving(some, nothing) <= job.saving(own, nothing) <= own.sum()


@pytest.mark.parametrize(("rank", "gain"), [(0, 0), (1, 30)])
def test_only_the_late_rank_counts(rank, gain):
    """Rank 1 comes 30 after rank 0: without 40 of its time 30 are gained, without 40 of rank 0's nothing."""
    job = Job(np.array([[50, 10], [80, 10]]), np.array([5]), [[0, 1]])
    own = np.zeros((2, 2), np.int64)
    own[rank, 0] = 40
    assert job.saving(own, np.zeros(1, np.int64)) == gain


def test_a_collective_waits_for_the_one_before_on_its_stream():
    """It starts right when that ends, whatever goes of the compute above: nothing is gained.

    Compute [0, 60]; collectives [10, 40] and [40, 70]; compute waits for the second from 60 on.
    """
    numbers = np.array([0, 0, 1, 1])
    ranks, arrival, end = np.array([0, 1, 0, 1]), np.array([10, 10, 40, 40]), np.array([40, 40, 70, 70])
    stream = Stream(np.array([-1, -1, 0, 1]), np.zeros(4, np.int64), np.zeros(4, np.int64))
    calls = Calls.of(numbers, ranks, (arrival, end), np.array([0, 0, 10, 10]), stream)

    def gained(at_arrival):
        own = np.array(at_arrival, float)[:, None]
        removed = Removed(own, np.array([[20.0]] * 4), np.zeros((4, 1)), np.full((2, 1), 20.0))
        return saved(np.array([70, 70]), shifts(calls, removed))[0]

    assert gained([0, 0, 20, 20]) == 0  # Gone between the first start and the second.
    assert gained([5, 5, 20, 20]) == 5  # 5 of it before the first start.


def test_a_rank_in_time():
    """It comes 30, then 40 after the others, which do nothing but wait; the first runs under its compute.

    30 go before the first; as that ends 30 earlier, so do the others come to the second, and 70 go before that.
    """
    ranks, numbers = np.array([0, 1, 2] * 2), np.repeat([0, 1], 3)
    arrival, end = np.array([10, 10, 40, 60, 60, 100]), np.repeat([60, 120], 3)
    stream = Stream(np.array([-1, -1, -1, 0, 1, 2]), np.array([0, 0, 0, 0, 0, 40]), np.zeros(6, np.int64))
    calls = Calls.of(numbers, ranks, (arrival, end), np.array([50, 50, 0, 60, 60, 10]), stream)
    nothing = Removed(*(np.zeros((6, 1)) for _ in range(3)), np.zeros((3, 1)))
    late = np.array([False, False, True])
    late = late[ranks]
    assert shifts(calls, nothing, Late(late)).ravel().tolist() == [70, 70, 70]
    assert shifts(calls, nothing, Late(~late)).ravel().tolist() == [0, 0, 0]
    assert shifts(calls, nothing).ravel().tolist() == [0, 0, 0]


class Overlapped:
    """Ranks that compute while collectives of all run one behind the other, and wait for the last at the end."""

    def __init__(self, own, transfer):
        self.own, self.transfer = own, transfer

    def run(self):
        """When each rank ends, and its collectives begin and end; one begins when rank and stream are ready."""
        ready = self.own.cumsum(axis=1)
        starts, ends, over = np.zeros_like(self.own[:, :-1]), np.zeros_like(self.transfer), 0
        for number, lasts in enumerate(self.transfer.tolist()):
            starts[:, number] = np.maximum(ready[:, number], over)
            over = ends[number] = starts[:, number].max() + lasts
        return np.maximum(ready[:, -1], over), starts, ends

    def saving(self, own=None, late=None):
        """By how much the last rank ends earlier without some of its own time, or with some ranks in time."""
        ends_of_ranks, starts, ends = self.run()
        ranks, size = starts.shape
        ready, gone = self.own.cumsum(axis=1), np.zeros_like(self.own) if own is None else own
        before = np.arange(ranks * size).reshape(size, ranks).T - ranks
        slack = starts - np.append(0, ends[:-1])
        tied = (before >= 0) & (slack == 0)
        flat = [each.T.ravel() for each in (before, slack, np.where(tied, starts - ready[:, :-1], 0))]
        stall = np.zeros((ranks, size), np.int64)
        stall[:, -1] = np.maximum(ends[-1] - ready[:, -1], 0)
        collective, rank = np.repeat(np.arange(size), ranks), np.tile(np.arange(ranks), size)
        flat[0] = np.maximum(flat[0], -1)
        calls = Calls.of(collective, rank, (starts.T.ravel(), np.repeat(ends, ranks)), stall.T.ravel(), Stream(*flat))
        until = gone.cumsum(axis=1).astype(float)
        at_end = np.where(np.arange(size) == size - 1, until[:, -1:], until[:, :-1])
        columns = [each.T.ravel()[:, None] for each in (until[:, :-1], at_end)]
        removed = Removed(*columns, np.zeros((ranks * size, 1)), until[:, -1:])
        return saved(ends_of_ranks, shifts(calls, removed, None if late is None else Late(late[rank])))[0]


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_collectives_that_wait_for_each_other_under_compute(ranks, collectives, seed):
    """A rank that is ready long before its collective begins gains as the one before ends earlier."""
    random = np.random.default_rng(seed)
    own, transfer = random.integers(0, 60, (ranks, collectives + 1)), random.integers(1, 40, collectives)
    own[:, -1] = 0  # All of them wait at the end, whatever goes.
    job, less = Overlapped(own, transfer), random.integers(0, own + 1) * (random.random(own.shape) < 0.5)
    gained = job.run()[0].max() - Overlapped(own - less, transfer).run()[0].max()
    assert job.saving(less) == gained
    assert job.saving() == 0


def test_a_straggler_under_compute():
    """Rank 1 is ready for the first of three 50 after rank 0; rank 0 is ready for all three by then."""
    job = Overlapped(np.array([[10, 10, 10, 10], [60, 10, 10, 10]]), np.array([30, 30, 30]))
    assert job.run()[0].tolist() == [150, 150]
    assert job.saving(late=np.array([False, True])) == 50
