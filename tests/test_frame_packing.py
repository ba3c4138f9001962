"""Packed frames: what comes out is what went in, and ranks joined are as pandas stacks them."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from htareport.algorithms.frame_packing import join, pack
from htareport.algorithms.frames import concat

HALF_A_PAIR = "\udcff"
FRAMES = {
    "numbers": pd.DataFrame(
        {
            "small": [1, -128, 127],
            "large": [2**62, -(2**62), 0],
            "narrow": np.array([1, 2, 3], np.int32),
            "unsigned": np.array([0, 2**64 - 1, 7], np.uint64),
            "share": [0.1, float("nan"), float("-inf")],
            "flag": [True, False, True],
        }
    ),
    "texts": pd.DataFrame(
        {
            "name": pd.Series(["void f<int>()", HALF_A_PAIR, "\0 ü"], dtype=object),
            "kind": pd.Series(["a", "b", "a"], dtype="str"),
            "gaps": pd.Series(["a", None, "b"], dtype="str"),
            "mixed": pd.Series([3, "x", None], dtype=object),
            "objects": pd.Series([1, 2.5, True], dtype=object),
        }
    ),
    "without rows": pd.DataFrame({"n": np.zeros(0, np.int64), "name": pd.Series([], dtype=object)}),
    "without columns": pd.DataFrame(index=range(2)),
}
ODD = {
    "categories": pd.DataFrame({"kind": pd.Categorical(["a", "b"])}),
    "tuples": pd.DataFrame({"lane": pd.Series([(0, 7), (0, 20)], dtype=object)}),
    "twice": pd.DataFrame([[1, 2]], columns=["a", "a"]),
}


def same(frames: dict[str, pd.DataFrame], others: dict[str, pd.DataFrame]) -> None:
    assert list(frames) == list(others)
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(frame, others[name], obj=name)


@pytest.mark.parametrize("frames", [FRAMES, ODD, FRAMES | ODD, {}], ids=["plain", "odd", "both", "none"])
def test_frames_come_out_as_they_went_in(frames):
    """Also after a journey between processes; an index that says nothing is not kept."""
    sent = pickle.dumps(pack({name: frame.set_index(frame.index + 5) for name, frame in frames.items()}))
    packed = pickle.loads(sent)  # noqa: S301  as an executor does
    found = packed.frames()
    same({name: found[name] for name in frames}, frames)


def test_objects_keep_their_types():
    """An integer is no float, and true no 1."""
    values = pack({"f": FRAMES["texts"]}).frames()["f"]["objects"].tolist()
    assert [type(value) for value in values] == [int, float, bool]


def test_equal_texts_are_equal_bytes_whatever_their_order():
    """So that the parent keeps those of ranks that run the same program once."""
    one, two = (pack({"f": pd.DataFrame({"name": names})}) for names in (["b", "a", "b"], ["a", "b"]))
    assert one.texts == two.texts
    assert one.data != two.data


def test_numbers_take_the_bytes_that_they_need():
    """Two for numbers of five digits, hardly any for two words by turns."""
    frame = pd.DataFrame({"step": range(10_000), "kind": ["compute", "idle"] * 5_000})
    assert pack({"f": frame}).size < 20_000


def test_long_columns_come_out_as_they_went_in():
    """They are coded; names in them stay places in the texts, and short ones beside them are as ever."""
    stamps = pd.Series(range(10**18, 10**18 + 2000 * 10**6, 10**6))
    long = pd.DataFrame(
        {"ts": stamps, "n": stamps % 7 - 3, "name": stamps.mod(5).map("k{}".format), "share": stamps / 3}
    )
    frames = {"long": long.astype({"name": object, "n": np.int16}), "short": long.head(3)}
    packed = pack(frames)
    same(packed.frames(), frames)
    parts = [(0, packed), (1, pack({name: frame.tail(130) for name, frame in frames.items()}))]
    joined = join(parts)
    same(
        joined, {name: concat([frames[name].assign(rank=0), frames[name].tail(130).assign(rank=1)]) for name in frames}
    )


def test_columns_that_several_analyses_have_cross_to_the_parent_once():
    """And wait there once."""
    times = np.random.default_rng(0).integers(0, 2**40, 2000)
    one, two = (pack({name: pd.DataFrame({name: times})}) for name in ("time", "length"))
    assert one.long[0] is two.long[0]
    sent = pickle.loads(pickle.dumps((one, two)))  # noqa: S301  as an executor does
    assert sent[0].long[0] is sent[1].long[0]
    assert len(pickle.dumps((one, two))) < 1.1 * len(pickle.dumps(one))


def test_texts_that_several_frames_have_cross_to_the_parent_once():
    one, two = (pack({name: FRAMES["texts"]}) for name in "ab")
    assert one.texts is two.texts


def test_threads_that_pack_at_once_pack_as_one_does():
    frames = [{"f": pd.DataFrame({"x": np.arange(50_000) / (seed + 3)})} for seed in range(16)]
    with ThreadPoolExecutor(4) as threads:  # A compressor that they shared would end the process.
        assert list(threads.map(pack, frames)) == [pack(each) for each in frames]


def ranks(*frames: pd.DataFrame) -> dict[int, dict[str, pd.DataFrame]]:
    return {3 * number: {"f": frame} for number, frame in enumerate(frames)}


@pytest.mark.parametrize(
    "of",
    [
        ranks(FRAMES["numbers"], FRAMES["numbers"].iloc[:1]),
        ranks(FRAMES["texts"], FRAMES["texts"].iloc[::-1]),
        ranks(FRAMES["without rows"], FRAMES["without rows"]),
        ranks(FRAMES["without rows"].astype({"n": float}), pd.DataFrame({"n": [1], "name": ["x"]})),
        ranks(pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [2**40]})),
        ranks(pd.DataFrame({"n": [1]}), pd.DataFrame({"n": [0.5]}), pd.DataFrame({"n": [None]}, dtype=object)),
        ranks(pd.DataFrame({"n": [1]}), pd.DataFrame({"n": ["x"]})),
        ranks(pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [2], "a": [1]}), pd.DataFrame({"c": [2]})),
        ranks(pd.DataFrame({"rank": [9], "n": [1]})),
        ranks(ODD["categories"], FRAMES["texts"][["kind"]]),
        {0: {"f": FRAMES["numbers"], "g": FRAMES["texts"]}, 1: {"f": FRAMES["numbers"], "g": FRAMES["texts"]}},
    ],
    ids=["numbers", "texts", "empty", "first empty", "widths", "types", "kinds", "columns", "rank", "odd", "several"],
)
def test_joined_as_pandas_stacks_them(of):
    """One rank after the other, with the rank in a column."""
    names = next(iter(of.values()))
    stacked = {
        name: concat([frames[name].reset_index(drop=True).assign(rank=rank) for rank, frames in of.items()])
        for name in names
    }
    same(join((rank, pack(frames)) for rank, frames in of.items()), stacked)


def test_a_frame_that_a_rank_lacks_is_an_error():
    """As long as the first rank has it."""
    with pytest.raises(KeyError, match="g"):
        join([(0, pack({"f": FRAMES["numbers"], "g": FRAMES["numbers"]})), (1, pack({"f": FRAMES["numbers"]}))])
