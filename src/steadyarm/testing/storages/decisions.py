"""Checks of decisions: stored as a whole, or not at all."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import get_args

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Order
from steadyarm.storages.records import Decision, SegmentRecord, number_of
from steadyarm.testing.storages.bench import (
    FLOATS,
    NOW,
    OpenBench,
    every,
    has_arms_of,
    new_segment,
    numbers_given,
    numbers_of,
    refused,
    same,
    shape_of,
    text_of,
    those_given,
)


def check_decide(open_storage: OpenBench) -> None:
    """A decision is stored as a whole: state, version, closed and opened segments."""
    storage = open_storage()
    key = storage.new_experiment().key
    state = {"theta": list(FLOATS)}
    opened = SegmentRecord(0, new_segment(2), False, False, 0, NOW + 1)
    assert storage.decide(key, 0, Decision(state, opened=opened), NOW + 1), "a first decision"
    now = storage.snapshot(key).experiment
    assert (now.version, now.observed) == (1, 0), "version or observed is not counted right"
    assert text_of(now.policy_state) == text_of(state), "the policy's state is not kept exactly"
    storage.assign(key, ["a", "b"])
    opened = SegmentRecord(1, new_segment(2), True, False, 0, NOW + 2)
    assert storage.decide(key, 1, Decision({"n": 1}, opened=opened), NOW + 2)
    storage.assign(key, ["c", "d"])
    storage.reward(key, [(u, 0.5) for u in "abcd"], None, NOW)
    tallies = storage.tallied(key)
    # Whichever order the policy has seen them in is the order of their closing.
    closed = ((1, tallies[1]), (0, tallies[0]))
    opened = SegmentRecord(2, new_segment(4), False, False, 2, NOW + 3)
    assert storage.decide(key, 2, Decision({"n": 2}, closed, None, opened), NOW + 4)
    for again in (storage, open_storage()):
        whole = again.snapshot(key, everything=True)
        assert (whole.experiment.version, whole.experiment.observed) == (3, 2), "not counted right"
        assert whole.experiment.policy_state == {"n": 2}, "not the new state"
        assert [r.closed for r, _ in whole.segments] == [2, 1, None], "not closed in that order"
        assert [r.closed_at for r, _ in whole.segments] == [NOW + 4, NOW + 4, None], "closed when?"
        assert [t for _, t in whole.segments[:2]] == tallies, "closing changed a tally"
        assert shape_of(whole.segments[2][0]) == shape_of(opened), "not the segment that was opened"
        assert same(again.find("e"), whole.experiment), "find and snapshot differ"
    assert storage.decided(key, Decision({"n": 3})), "a decision of nothing but a state"
    found = storage.find("e")
    assert (found.version, found.observed, found.policy_state) == (4, 2, {"n": 3})


def check_decisions_on_what_changed(open_storage: OpenBench) -> None:
    """If anything a decision rests on has changed, it is refused and nothing is stored."""
    storage = open_storage()
    key = storage.running(2)
    storage.assign(key, ["a", "b"])
    storage.open_segment(key, new_segment(2))
    storage.assign(key, ["c", "d"])
    storage.reward(key, [("a", 1.0)], None, NOW)
    storage.open_segment(key, new_segment(6), closed=[1])
    storage.assign(key, ["e"], ahead=2)
    first, second, third = storage.tallied(key)
    version = storage.find("e").version
    opened = SegmentRecord(3, new_segment(5), False, False, 2, NOW)
    wrong: dict[str, tuple[int, Decision]] = {
        "of an older version": (version - 1, Decision({}, opened=opened)),
        "of a later version": (version + 1, Decision({}, opened=opened)),
        "that closes what is closed": (version, Decision({}, ((1, second),), None, opened)),
        "with one closed, one fine": (version, Decision({}, ((0, first), (1, second)))),
        "that closes what is not handed out": (version, Decision({}, ((2, third),))),
        "on another number of rewards": (
            version,
            Decision({}, ((0, replace(first, rewarded=(9, *first.rewarded[1:]))),)),
        ),
        "on other sums": (version, Decision({}, ((0, replace(first, sums=(Fraction(9),) * 3)),))),
        "on other squares": (
            version,
            Decision({}, ((0, replace(first, squares=(Fraction(9),) * 3)),), None, opened),
        ),
        "that supersedes what is not last": (version, Decision({}, (), 1)),
        "that supersedes what is to come": (version, Decision({}, (), 3)),
        "that opens a segment again": (version, Decision({}, opened=replace(opened, index=2))),
        "that leaves out a segment": (version, Decision({}, opened=replace(opened, index=4))),
        "that closes one and opens a wrong one": (
            version,
            Decision({}, ((0, first),), None, replace(opened, index=5)),
        ),
    }
    before = storage.everything(key)
    for what, (made_on, decision) in wrong.items():
        assert storage.decide(key, made_on, decision, NOW) is False, f"a decision {what} is stored"
        assert storage.everything(key) == before, f"a decision {what} left something behind"
    right = Decision({}, ((0, first),), 2)
    storage.reward(key, [("b", 0.0)], None, NOW)
    assert not storage.decide(key, version, right, NOW), "a reward came, but it is stored"
    right = replace(right, closed=((0, storage.tallied(key)[0]),))
    assert storage.decide(key, version, right, NOW), "a decision that rests on facts is refused"
    assert not storage.decide(key, version, right, NOW), "stored twice"


def check_leased_positions_keep_a_segment_open(open_storage: OpenBench) -> None:
    """A segment with leased or released positions is not closed."""
    storage = open_storage()
    key = storage.running(4)
    storage.assign(key, ["a", "b"])
    leases = storage.lease(key, 2)

    def close() -> bool:
        return storage.decided(key, Decision({}, ((0, storage.tallied(key)[0]),)))

    assert not close(), "a segment was closed although positions are leased"
    storage.report(key, leases[0].id, [(2, "c", NOW)], NOW)
    storage.release(key, [x.id for x in leases])
    assert not close(), "a segment was closed although a position is released"
    storage.assign(key, ["d"])
    assert close(), "a segment whose positions are all assigned is not closed"


def check_supersede(open_storage: OpenBench) -> None:
    """A superseded segment ends with its block, there the counter stops; arms stay."""
    storage = open_storage()
    ends: dict[Order, int] = {"blocks": 10, "iid": 7}
    for order, rounds in ends.items():
        key = storage.new_experiment(order, sticky=False).key
        segment = new_segment(100, order, 5)
        storage.open_segment(key, segment)
        given = every(storage.assign(key, ["u"] * 6))
        (lease,) = storage.lease(key, 1)
        assert storage.decided(key, Decision({}, supersede=0)), "decide refused"
        record = storage.segments(key, [0])[0]
        assert (record.superseded, record.rounds) == (True, rounds), "not cut at its block's end"
        assert (record.handed, record.closed) == (7, None), "superseding changed something else"
        handed = open_storage().assign(key, ["u"] * 9)
        assert len(numbers_given(handed)) == rounds - 7, (
            "the counter does not stop at the block's end"
        )
        reported = storage.report(key, lease.id, [(6, "u", NOW)], NOW)
        assert reported[0] is not None, "a superseded segment's lease was lost"
        has_arms_of([*given, *those_given(handed), reported[0]], segment)
        storage.open_segment(key, new_segment(5), closed=[0])
        assert numbers_of(storage.assign(key, ["u"])) == [number_of(1, 0)]
        storage.accounted(key)


def check_supersede_refused(open_storage: OpenBench) -> None:
    """Superseding is refused together with opening, and for a shuffled segment."""
    storage = open_storage()
    for order in get_args(Order):
        key = storage.new_experiment(order).key
        storage.open_segment(key, new_segment(40, order, 5))
        storage.assign(key, ["a", "b"])
        before = storage.everything(key)
        opened = SegmentRecord(1, new_segment(5), False, False, 0, NOW)
        wrong = {"that supersedes and opens": Decision({"n": 1}, supersede=0, opened=opened)}
        if order == "shuffled":
            wrong["that supersedes a shuffled segment"] = Decision({"n": 1}, supersede=0)
        for what, decision in wrong.items():
            refused(InvalidInputError, f"a decision {what}", storage.decided, key, decision)
            assert storage.everything(key) == before, f"a decision {what} left something behind"
        storage.open_segment(key, new_segment(5))
