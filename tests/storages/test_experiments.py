"""Checks of experiments: their states, segments, overviews and decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steadyarm.errors import (
    ExperimentExistsError,
    UnknownAssignmentError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.segments import Segment
from steadyarm.storages.records import (
    Change,
    Decision,
    EarlySums,
    Event,
    SegmentRecord,
    Summary,
    Tally,
)
from steadyarm.storages.service import UNKNOWN_EVENT, Refusal
from steadyarm.storages.storage import segment_row
from tests.storages.bench import FLOATS, NAMES, NOW, SEED, Bench, new_record, new_segment, refused


def test_what_was_created_is_found_again_under_any_name(bench: Bench) -> None:
    config = {"seed": SEED, "arms": ["a", "ü"], "none": None, "yes": True, "floats": list(FLOATS)}
    state = {"theta": [list(FLOATS)], "whole": 2**60 + 1, "text": "'\"\\ 試験"}
    for i, name in enumerate(NAMES):
        record = new_record(name, config, tag=f"tag{i}", created=NOW + i, policy_state=state)
        made = bench.create(record)
        assert made.name == name
        assert (made.tag, made.state, made.created) == (f"tag{i}", "draft", NOW + i)
        assert (made.version, made.observed) == (0, 0)
        assert made.config == config
        assert made.policy_state == state
        for found in (bench.find(name), bench.again().find(name)):
            assert found == made
        assert bench.snapshot(made.key, everything=True).segments == ()
        assert bench.log(made.key) == []
        refused(ExperimentExistsError, bench.new_experiment, name)
        assert bench.find(name) == made
    assert [summary.name for summary in summarized(bench)] == [*NAMES]
    assert len({summary.key for summary in bench.summaries()}) == len(NAMES)


def test_a_segment_is_read_as_it_was_opened_to_the_last_bit(bench: Bench) -> None:
    key = bench.new_experiment()
    third = np.array([[1 / 3, 5e-324, 1 - 1 / 3]])
    sums = (1 / 3, -0.0, 1e300), (1 / 9, 5e-324, 2**0.5)
    early = EarlySums(1, (0, 2**40, 3), *sums), EarlySums(3, (1, 2, 3), *sums)
    opened = [
        SegmentRecord(0, new_segment(10), False, False, 0, NOW),
        SegmentRecord(1, Segment(third, np.array([2**31]), "blocks", 7), True, False, 3, NOW + 1),
        SegmentRecord(2, Segment.shuffled(np.array([[1, 2, 3]])), False, False, 4, NOW + 2),
        SegmentRecord(
            3, replace(new_segment(4), reference=np.array([list(FLOATS)])), True, False, 4, NOW + 3
        ),
        SegmentRecord(4, new_segment(5), False, False, 4, NOW + 4, early=early),
    ]
    for version, record in enumerate(opened):
        assert bench.decide(key, version, Decision({}, opened=record), NOW)
    for again in (bench, bench.again()):
        read = again.segments(key, [3, 1, 0, 2, 4])
        seen = again.snapshot(key, everything=True).segments
        for index, record in enumerate(opened):
            assert segment_row(key, read[index]) == segment_row(key, record)
            assert segment_row(key, seen[index][0]) == segment_row(key, record)
            assert seen[index][1] == Tally.empty(3)
    assert list(bench.segments(key, [2])) == [2]
    assert bench.segments(key, []) == {}


def summarized(bench: Bench) -> list[Summary]:
    """All summaries, after comparing them with records, snapshots and logs."""
    found: list[Summary] = bench.summaries()
    for summary in found:
        record, rows = bench.find(summary.name), bench.whole_log(summary.key)
        for name in ("key", "name", "tag", "state", "created", "version", "observed", "config"):
            assert getattr(summary, name) == getattr(record, name)
        segments = bench.snapshot(summary.key, everything=True).segments
        assigned = sum(tally.total_assigned for _, tally in segments)
        assert summary.assigned == len(rows) == assigned
        rewarded = sum(tally.total_rewarded for _, tally in segments)
        assert summary.rewarded == sum(row.reward is not None for row in rows) == rewarded
        assert summary.late == bench.late(summary.key)
        assert summary.started == (segments[0][0].opened if segments else None)
        assert summary.last == max((row.created for row in rows), default=None)
        assert bench.summaries(summary.key) == [summary]
    assert bench.summaries(max((one.key for one in found), default=0) + 1) == []
    return found


def test_a_decision_is_stored_as_a_whole(bench: Bench) -> None:
    key = bench.new_experiment()
    state = {"theta": list(FLOATS)}
    opened = SegmentRecord(0, new_segment(2), False, False, 0, NOW + 1)
    assert bench.decide(key, 0, Decision(state, opened=opened), NOW + 1)
    now = bench.snapshot(key).experiment
    assert (now.version, now.observed) == (1, 0)
    assert now.policy_state == state
    bench.assign(key, ["a", "b"])
    opened = SegmentRecord(1, new_segment(2), True, False, 0, NOW + 2)
    assert bench.decide(key, 1, Decision({"n": 1}, opened=opened), NOW + 2)
    bench.assign(key, ["c", "d"])
    bench.reward(key, [(u, 0.5) for u in "abcd"], NOW)
    tallies = bench.tallied(key)
    # Whichever order the policy has seen them in is the order of their closing.
    closed = ((1, tallies[1]), (0, tallies[0]))
    opened = SegmentRecord(2, new_segment(4), False, False, 2, NOW + 3)
    assert bench.decide(key, 2, Decision({"n": 2}, closed, None, opened), NOW + 4)
    for again in (bench, bench.again()):
        whole = again.snapshot(key, everything=True)
        assert (whole.experiment.version, whole.experiment.observed) == (3, 2)
        assert whole.experiment.policy_state == {"n": 2}
        assert [r.closed for r, _ in whole.segments] == [2, 1, None]
        assert [r.closed_at for r, _ in whole.segments] == [NOW + 4, NOW + 4, None]
        assert [t for _, t in whole.segments[:2]] == tallies
        assert segment_row(key, whole.segments[2][0]) == segment_row(key, opened)
        assert again.find("e") == whole.experiment
    assert bench.decided(key, Decision({"n": 3}))
    found = bench.find("e")
    assert (found.version, found.observed, found.policy_state) == (4, 2, {"n": 3})


def test_a_decision_on_what_has_changed_is_refused_and_nothing_is_stored(bench: Bench) -> None:
    key = bench.running(2)
    bench.assign(key, ["a", "b"])
    bench.open_segment(key, new_segment(2))
    bench.assign(key, ["c", "d"])
    bench.reward(key, [("a", 1.0)], NOW)
    bench.open_segment(key, new_segment(6), closed=[1])
    bench.assign(key, ["e"])
    first, second, third = bench.tallied(key)
    version = bench.find("e").version
    opened = SegmentRecord(3, new_segment(5), False, False, 2, NOW)
    other_sums, other_squares = replace(first, sums=(9,) * 3), replace(first, squares=(9,) * 3)
    miscounted = replace(first, rewarded=(9, *first.rewarded[1:]))
    wrong: dict[str, Decision] = {
        "that closes what is closed": Decision({}, ((1, second),), None, opened),
        "with one closed, one fine": Decision({}, ((0, first), (1, second))),
        "that closes what is not assigned": Decision({}, ((2, third),)),
        "on another number of rewards": Decision({}, ((0, miscounted),)),
        "on other sums": Decision({}, ((0, other_sums),)),
        "on other squares": Decision({}, ((0, other_squares),), None, opened),
        "that supersedes what is not last": Decision({}, (), 1),
        "that supersedes what is to come": Decision({}, (), 3),
        "that opens a segment again": Decision({}, opened=replace(opened, index=2)),
        "that leaves out a segment": Decision({}, opened=replace(opened, index=4)),
        "that opens a wrong one": Decision({}, ((0, first),), None, replace(opened, index=5)),
    }
    before = bench.everything(key)
    for what, decision in wrong.items():
        assert bench.decide(key, version, decision, NOW) is False, what
        assert bench.everything(key) == before
    for other in (version - 1, version + 1):
        assert not bench.decide(key, other, Decision({}, opened=opened), NOW)
        assert bench.everything(key) == before
    right = Decision({}, ((0, first),), 2)
    bench.reward(key, [("b", 0.0)], NOW)
    assert not bench.decide(key, version, right, NOW)
    right = replace(right, closed=((0, bench.tallied(key)[0]),))
    assert bench.decide(key, version, right, NOW)
    assert not bench.decide(key, version, right, NOW)


def test_refusals_are_kept_by_experiment_name_and_reason(bench: Bench) -> None:
    """A flood of one experiment replaces nothing of another; erasing a unit forgets its events."""
    one, two = (bench.new_experiment(name) for name in ("one", "two"))
    refused = Refusal("purchase", "reward-too-late", "ann_%", "It came too late.", one)
    bench.note_refusals([refused, replace(refused, unit="bob", key=two)])
    flood = [replace(refused, event=f"event {i}", unit="bot", key=two) for i in range(30)]
    bench.note_refusals([*flood, Refusal("event 1", UNKNOWN_EVENT, "u")])
    (mine, unknown) = sorted(bench.refusals(one, 0), key=lambda found: -found.key)
    assert replace(mine, at=0) == refused
    assert (unknown.event, unknown.key) == ("event 1", 0)
    assert len(bench.refusals(two, 2**52)) == 20
    with pytest.raises(UnknownAssignmentError):  # its events were refused, so it has none
        bench.correct(one, Change("erase", unit="ann_%"), now=bench.now())
    assert [found.event for found in bench.refusals(one, 0)] == ["event 1"]


def test_arrivals_are_the_latest_events_with_what_they_counted_as(bench: Bench) -> None:
    metrics = {"name": "orders", "role": "primary"}, {"name": "revenue", "several": "sum"}
    key, now = bench.running(10, *metrics), bench.now()
    bench.assign(key, ["a", "b", "c"], now=now)
    bench.record(key, [Event("a", 1.0, "orders")], now + 1)
    both = [Event("b", 1.0, "orders"), Event("b", 35.0, "revenue", key="order 1")]
    bench.record(key, both, now + 5)
    found = bench.arrivals(key, ["orders", "revenue"], now + 3)
    assert (found.assigned, found.counted, found.total, found.silent) == (0, 2, 3, 1)
    assert [(one.unit, one.values) for one in found.latest] == [
        ("b", {"orders": 1.0, "revenue": 35.0}),
        ("a", {"orders": 1.0}),
    ]
    latest = bench.arrivals(key, ["orders", "revenue"], now, most=1).latest
    assert [one.unit for one in latest] == ["b"]


def test_a_draft_is_deleted_and_nothing_else(bench: Bench) -> None:
    key = bench.new_experiment("draft", state="draft")
    bench.delete_draft(key, NOW, by="me")
    refused(UnknownExperimentError, bench.find, "draft")
    assert bench.history("draft")[-1].action == "experiment.deleted"
    assert bench.new_experiment("draft", state="draft") != key
    running = bench.running(8, name="running")
    refused(WrongStateError, bench.delete_draft, running, NOW)
    assert bench.find("running").key == running


DEFAULT = {"default": "a", "why": "ü", "list": [1, None, 0.1]}
ACTION = "experiment.default"


def test_what_is_shown_outside_is_set_by_those_who_saw_what_it_was(bench: Bench) -> None:
    key, detail = bench.running(8), {"variant": "a"}
    assert bench.find("e").outside is None
    wrong = bench.show_outside(key, DEFAULT, {}, ACTION, NOW)
    assert not wrong
    assert bench.find("e").outside is None
    assert bench.show_outside(key, None, DEFAULT, ACTION, NOW + 5, by="me", detail=detail)
    assert not bench.show_outside(key, None, {}, ACTION, NOW)
    for found in (bench.find("e"), bench.again().find("e"), bench.snapshot(key).experiment):
        assert found.outside == DEFAULT
    (summary,) = bench.summaries()
    assert summary.outside == DEFAULT
    after = dict(DEFAULT, default="b")
    assert bench.again().show_outside(key, DEFAULT, after, ACTION, NOW + 6)
    assert bench.find("e").outside == after
    entries = [entry for entry in bench.history("e") if entry.action == ACTION]
    said = [(entry.author, entry.created, entry.detail) for entry in entries]
    assert said == [("me", NOW + 5, detail), ("", NOW + 6, {})]
    given: tuple[Any, ...] = 99, None, {}, ACTION, NOW
    refused(UnknownExperimentError, bench.show_outside, *given)


def test_experiments_of_units_are_read_for_all_of_them_at_once(bench: Bench) -> None:
    first, second = (bench.running(8, name=name) for name in ("first", "second"))
    loose = bench.running(8, name="loose", sticky=False)
    bench.assign(first, ["u1", "u2", "it's"])
    bench.assign(second, ["u1"])
    bench.assign(loose, ["u1"])
    keys, units = [second, first, loose, 99], ["u9", "u1", "u2", "u1", "it's"]
    found = bench.again().experiments_of(units, keys)
    both, one = frozenset([first, second]), frozenset([first])
    assert found == (frozenset(), both, one, both, one)
    assert bench.experiments_of(["u1"], [second]) == (frozenset([second]),)
    assert bench.experiments_of(["u1"], []) == (frozenset(),)
    assert bench.experiments_of([], keys) == ()
