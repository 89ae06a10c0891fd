"""Checks of reading: segments, snapshots, progress and the log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyarm.segments import Segment
from steadyarm.storages.checks.bench import (
    FLOATS,
    NAMES,
    NOW,
    Check,
    Open,
    assign,
    decided,
    leased,
    new_experiment,
    new_segment,
    open_segment,
    running,
)
from steadyarm.storages.checks.looking import every, shape_of, tallied, those_given, whole_log
from steadyarm.storages.records import (
    Decision,
    LogRow,
    Progress,
    SegmentRecord,
    Tally,
    Target,
    number_of,
)

__all__ = ["CHECKS"]


def check_segments_are_kept(open_storage: Open) -> None:
    """A segment is read as it was opened, to the last bit."""
    storage = open_storage()
    key = new_experiment(storage).key
    third = np.array([[1 / 3, 5e-324, 1 - 1 / 3]])
    opened = [
        SegmentRecord(0, new_segment(10), False, False, 0, NOW),
        SegmentRecord(1, Segment(third, np.array([2**31]), "blocks", 7), True, False, 3, NOW + 1),
        SegmentRecord(2, Segment.shuffled(np.array([[1, 2, 3]])), False, False, 4, NOW + 2),
        SegmentRecord(
            3, replace(new_segment(4), reference=np.array([list(FLOATS)])), True, False, 4, NOW + 3
        ),
    ]
    for version, record in enumerate(opened):
        assert storage.decide(key, version, Decision({}, opened=record), NOW), "decide refused"
    for again in (storage, open_storage()):
        read = again.segments(key, [3, 1, 0, 2])
        seen = again.snapshot(key, everything=True).segments
        for index, record in enumerate(opened):
            assert shape_of(read[index]) == shape_of(record), "segments() gives another segment"
            assert shape_of(seen[index][0]) == shape_of(record), "snapshot gives another segment"
            assert seen[index][1] == Tally.empty(3), "a new segment's tally is not empty"
    assert list(storage.segments(key, [2])) == [2], "segments() gives others than asked for"
    assert storage.segments(key, []) == {}, "segments() of nothing gives something"


def check_snapshot(open_storage: Open) -> None:
    """A snapshot has the open segments and the last one; or all, in order."""
    storage = open_storage()
    key = running(storage, 1)
    for i in range(4):
        assign(storage, key, [f"u{i}"])
        open_segment(storage, key, new_segment(1))
    assign(storage, key, ["u4"])

    def close(*indices: int) -> list[int]:
        tallies = tallied(storage, key)
        closed = tuple((i, tallies[i]) for i in indices)
        assert decided(storage, key, Decision({}, closed)), "a decision on facts was refused"
        whole = storage.snapshot(key, everything=True)
        assert [r.index for r, _ in whole.segments] == [*range(5)], "not everything, in order"
        return [r.index for r, _ in open_storage().snapshot(key).segments]

    assert close() == [0, 1, 2, 3, 4], "open segments are missing"
    assert close(1) == [0, 2, 3, 4], "a closed segment is there, or an open one is not"
    assert close(0, 3) == [2, 4], "a closed segment is there, or an open one is not"
    assert close(2, 4) == [4], "the last one is always there"


def check_progress(open_storage: Open) -> None:
    """Progress says of the open segments, and only of them, what a snapshot does."""
    storage = open_storage()
    key = new_experiment(storage).key
    assert storage.progress(key) == (), "without segments there is no progress"
    open_segment(storage, key, new_segment(2))
    assert storage.progress(key) == (Progress(0, 2, 0, 0, None),), "a new segment has progress"
    assign(storage, key, ["a", "b"], now=NOW + 1)
    open_segment(storage, key, new_segment(9, "blocks", 3))
    assign(storage, key, ["c", "d"], now=NOW + 2)
    leased(storage, key, 3)
    storage.reward(key, [("a", 1.0), ("d", 1.0), ("c", 0.0)], None, NOW + 3)
    expected = (Progress(0, 2, 2, 1, NOW + 1), Progress(1, 9, 2, 2, NOW + 2))
    assert storage.progress(key) == expected, "another progress than there is"
    assert storage.progress(key, exhausted=True) == expected[:1], "not those at their end"
    closed = ((0, tallied(storage, key)[0]),)
    assert decided(storage, key, Decision({}, closed, supersede=1)), "decide refused"
    left = Progress(1, 6, 2, 2, NOW + 2)
    assert open_storage().progress(key) == (left,), "closing or superseding is not seen"
    assert storage.progress(key, exhausted=True) == (), "not at its end, but called so"
    assign(storage, key, ["e"])  # the last of the block, after what is leased
    assert storage.progress(key, exhausted=True) == (replace(left, assigned=3),), "at its end"
    open_segment(storage, key, new_segment(1))
    left = replace(left, assigned=3)
    assert storage.progress(key) == (left, Progress(2, 1, 0, 0, None)), "opening is not seen"
    assign(storage, key, ["f"], now=NOW + 4)
    closed = ((2, tallied(storage, key)[2]),)
    assert decided(storage, key, Decision({}, closed)), "decide refused"
    assert storage.progress(key) == (left,), "the last one is closed, but has progress"


def check_log(open_storage: Open) -> None:
    """The log has all assignments in the order of numbers, page by page."""
    storage = open_storage()
    key = running(storage, 40)
    other = running(storage, 10, name="other")
    assign(storage, other, ["foreign"])
    handed = assign(storage, key, ["a"], ahead=3)
    given = every(assign(storage, key, ["b", "c"], now=NOW + 1))
    given += every(assign(storage, key, ["d", "e"], handed.leases, now=NOW + 2))
    open_segment(storage, key, new_segment(10))
    given += every(assign(storage, key, ["f", "g"], now=NOW + 3))
    given += those_given(handed)
    storage.reward(key, [("e", 0.1), ("f", -1.0)], None, NOW + 4)
    rewards = {"e": (0.1, NOW + 4), "f": (-1.0, NOW + 4)}
    expected = [
        LogRow(a.number, a.unit, a.arm, a.probability, a.created, *rewards.get(a.unit, (None,) * 2))
        for a in sorted(given, key=lambda a: a.number)
    ]
    assert [r.unit for r in expected] == list("adebcfg")
    assert storage.log(key) == expected, "the log is not all assignments in order"
    for size in (1, 2, 3, 7, 100):
        assert whole_log(open_storage(), key, size) == expected, f"pages of {size} are not the log"
    assert storage.log(key, after=expected[-1].number) == [], "after the end is something"
    assert len(storage.log(key, after=0, most=2)) == 2, "a page is not full, or too long"


def check_find_assignments(open_storage: Open) -> None:
    """Assignments are found by number or by unit, one answer for each target."""
    storage = open_storage()
    key = running(storage, 10)
    assign(storage, key, ["a", "b", NAMES[2], "7"])
    assign(storage, running(storage, 10, name="other"), ["foreign"])
    storage.reward(key, [("b", 2.5)], None, NOW + 1)
    rows = storage.log(key)
    targets: list[Target] = [
        "b",
        0,
        "nobody",
        7,
        "7",
        NAMES[2],
        1,
        "foreign",
        number_of(5, 0),
        "b",
    ]
    expected = [rows[1], rows[0], None, None, rows[3], rows[2], rows[1], None, None, rows[1]]
    assert storage.find_assignments(key, targets) == expected, "not the assignments asked for"
    assert storage.find_assignments(key, []) == []


CHECKS: tuple[Check, ...] = (
    check_segments_are_kept,
    check_snapshot,
    check_progress,
    check_log,
    check_find_assignments,
)
