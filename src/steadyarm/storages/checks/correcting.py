"""Checks of corrections: sums follow, every change leaves its trace, and nobody gets in between."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from steadyarm.errors import InvalidInputError, UnknownAssignmentError, WrongStateError
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Change, Corrected, Correction, Trace, as_handed
from steadyarm.storages.checks.bench import (
    DAY,
    NAMES,
    NOW,
    Check,
    Open,
    assign,
    busy,
    decided,
    new_experiment,
    new_segment,
    open_segment,
    refused,
    running,
    together,
)
from steadyarm.storages.checks.looking import everything, tallied, whole_log
from steadyarm.storages.records import Decision, check_of, place_of

__all__ = ["CHECKS"]

WHY = "it was a test of our own"


def _change(storage: Storage, key: int, kind: Any, by: str = "", **more: Any) -> Corrected:
    return storage.correct(key, Change(kind, reason=WHY, **more), now=NOW + 9, by=by)


def check_rewards_corrected(open_storage: Open) -> None:
    """A reward is voided, told again, and corrected; sums follow exactly."""
    storage = open_storage()
    key = running(storage, 9)
    assign(storage, key, ["a", "b", NAMES[2]])
    storage.reward(key, [("a", 0.1), ("b", 1 / 3), (NAMES[2], 1e300)], None, NOW + 5000)
    first = _change(storage, key, "void", target="a", by=NAMES[4])
    assert first.assignments == 1, "a reward is one assignment's"
    assert storage.log(key)[0] == replace(
        storage.log(key)[0], reward=None, rewarded=None, received=None
    ), "a voided reward is still there"
    tallied(open_storage(), key)
    assert storage.reward(key, [("a", 0.7)], None, NOW + 7000)[0].status == "stored"
    _change(storage, key, "correct", target=(1, check_of("b")), reward=0.25)
    third = _change(storage, key, "correct", target=2, reward=-0.0)
    rows = storage.log(key)
    assert [r.reward for r in rows] == [0.7, 0.25, 0.0], "not the corrected rewards"
    assert rows[1].rewarded == NOW + 5000, "a corrected reward happened when it did"
    (tally,) = tallied(storage, key)
    assert sum(tally.sums) == Fraction(0.7) + Fraction(0.25), "sums do not follow exactly"
    made = open_storage().corrections(key)
    assert made == [
        Correction(first.entry, 0, "void", 0.1, None, closed=False),
        Correction(first.entry + 1, 1, "correct", 1 / 3, 0.25, closed=False),
        Correction(third.entry, 2, "correct", 1e300, -0.0, closed=False),
    ], "the trace does not say what was changed"
    assert storage.corrections(key, (made[0].entry, made[0].number), 1) == made[1:2], "not a page"
    log = storage.audit(experiment="e")
    assert [e.action for e in log] == [
        "experiment.created",
        "reward.voided",
        "reward.corrected",
        "reward.corrected",
    ], "the audit log is not what was done"
    assert (log[1].id, log[1].author, log[1].created) == (first.entry, NAMES[4], NOW + 9)
    assert log[1].detail == {"assignments": 1, "reason": WHY}, "the reason is not kept"
    assert NAMES[2] not in repr(log), "the audit log names a unit"


def check_refused_corrections(open_storage: Open) -> None:
    """What cannot be corrected is refused, and leaves nothing behind."""
    storage = open_storage()
    key = running(storage, 9)
    assign(storage, key, ["a", "b"])
    storage.reward(key, [("a", 1.0)], None, NOW)
    before, log = everything(storage, key), storage.audit()
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (UnknownAssignmentError, {"kind": "void", "target": "nobody"}),
        (UnknownAssignmentError, {"kind": "void", "target": (0, "ffffff")}),
        (InvalidInputError, {"kind": "void", "target": "b"}),
        (InvalidInputError, {"kind": "correct", "target": "a", "reward": 1.0}),
        (UnknownAssignmentError, {"kind": "exclude", "unit": "nobody"}),
        (UnknownAssignmentError, {"kind": "erase", "unit": "nobody"}),
        (InvalidInputError, {"kind": "exclude", "since": NOW + 1, "until": NOW + 2}),
        (InvalidInputError, {"kind": "exclude", "since": NOW, "until": NOW + 10}),
        (InvalidInputError, {"kind": "include", "entry": 1}),
        (InvalidInputError, {"kind": "include", "entry": 99}),
    ]
    for error, given in wrong:
        change = Change(**given, reason=WHY)
        refused(error, f"{given}", storage.correct, key, change, now=NOW + 9)
    for given in ({"kind": "void", "target": "a"}, {"kind": "exclude", "unit": "a", "reason": " "}):
        refused(InvalidInputError, "a change without a reason", Change, **given)
    refused(InvalidInputError, "a change without a unit", Change, "exclude", reason=WHY)
    assert everything(storage, key) == before, "a refused correction changed something"
    assert storage.audit() == log, "a refused correction was noted"
    storage.move(key, "stopped")
    storage.move(key, "archived")
    promise = "a correction of an archived experiment"
    change = Change("exclude", unit="a", reason=WHY)
    refused(WrongStateError, promise, storage.correct, key, change, now=NOW + 9)
    _change(storage, key, "erase", unit="a")


def check_excluded(open_storage: Open) -> None:
    """What is excluded counts nowhere, by unit and by period, until it is included again."""
    storage = open_storage()
    key = new_experiment(storage, sticky=False).key
    open_segment(storage, key, new_segment(12))
    for day in range(3):
        assign(storage, key, ["a", "bot", "b", "bot"], now=NOW + day * DAY)
    numbers = [r.number for r in storage.log(key)]
    storage.reward(key, [(n, n + 0.1) for n in numbers[:-2]], None, NOW + 2 * DAY + 5000)
    whole = everything(storage, key)[2:4]
    later = NOW + 3 * DAY
    why: dict[str, Any] = {"reason": WHY}
    out = storage.correct(key, Change("exclude", unit="bot", **why), now=later)
    assert out.assignments == 6, "not all assignments of the unit"
    (tally,) = tallied(storage, key)
    assert (tally.handed_out, tally.left_out, tally.told) == (12, 6, 5), f"{tally}"
    since: dict[str, Any] = {"since": NOW + DAY, "until": NOW + 2 * DAY}
    second = storage.correct(key, Change("exclude", **since, **why), now=later)
    assert second.assignments == 2, "what was excluded before is excluded twice"
    assert {r.excluded for r in storage.log(key)} == {None, out.entry, second.entry}
    detail = storage.audit(experiment="e")[-1].detail
    assert detail == {"assignments": 2, "what": "a period", **since, **why}, "not the period"
    tallied(open_storage(), key)
    told = storage.reward(key, [(numbers[-1], 7.0), (numbers[-2], 8.0)], None, later)
    assert [o.status for o in told] == ["stored", "stored"], "rewards of excluded visits are kept"
    (tally,) = tallied(storage, key)
    assert tally.told == 4, "the reward of an excluded visit counts"
    (part,) = storage.progress(key)
    assert (part.assigned, part.told) == (12, 12), "a segment waits for excluded visits"
    again = Change("exclude", unit="bot", **why)
    refused(InvalidInputError, "excluding twice", storage.correct, key, again, now=later)
    _change(storage, key, "void", target=numbers[1])
    tallied(storage, key)
    for entry in (second.entry, out.entry):
        storage.correct(key, Change("include", entry=entry, **why), now=later)
    tallied(storage, key)
    storage.reward(key, [(numbers[1], numbers[1] + 0.1)], None, NOW + 2 * DAY + 5000)
    assert storage.correct(key, Change("void", target=numbers[-1], **why), now=later)
    assert storage.correct(key, Change("void", target=numbers[-2], **why), now=later)
    assert everything(storage, key)[2:4] == whole, "including is not the opposite of excluding"
    twice = Change("include", entry=out.entry, **why)
    refused(InvalidInputError, "including twice", storage.correct, key, twice, now=later)


def check_corrected_after_closing(open_storage: Open) -> None:
    """Of a closed segment sums follow, too; the trace tells what the policy was handed."""
    storage = open_storage()
    key = running(storage, 4)
    assign(storage, key, list("abcd"), now=NOW)
    storage.reward(key, [("a", 1.0), ("b", 2.0), ("c", 3.0)], None, NOW)
    early = _change(storage, key, "exclude", unit="d")
    (handed,) = tallied(storage, key)
    open_segment(storage, key, new_segment(4), closed=[0])
    assign(storage, key, ["e"])
    assert storage.snapshot(key, everything=True).corrected == (), "corrected before it closed"
    record = storage.find("e")
    _change(storage, key, "void", target="a")
    _change(storage, key, "correct", target="b", reward=5.0)
    _change(storage, key, "exclude", unit="a")
    _change(storage, key, "exclude", unit="c")
    _change(storage, key, "correct", target="c", reward=9.0)
    _change(storage, key, "include", entry=early.entry)
    _change(storage, key, "exclude", unit="e")
    assert storage.find("e") == record, "a correction changed the policy's state"
    for again in (storage, open_storage()):
        assert again.snapshot(key, everything=True).corrected == (0,), "not the closed segments"
    now, _ = tallied(storage, key)
    assert (now.told, now.left_out, sum(now.sums)) == (1, 2, 5), f"{now}"
    made = storage.corrections(key)
    assert [c.closed for c in made] == [False, *[True] * 6, False], "closed is not told"
    then = [
        as_handed(row, [c for c in made if c.number == row.number])
        for row in whole_log(storage, key)
        if place_of(row.number)[0] == 0
    ]
    assert [r.reward for r in then] == [1.0, 2.0, 3.0, None], "rewards that were handed over"
    assert [r.excluded is not None for r in then] == [False, False, False, True]
    assert handed.told == 3


def check_erased(open_storage: Open) -> None:
    """An erased unit is nowhere; rewards told by the ids it had count, and it may come anew."""
    storage = open_storage()
    key = running(storage, 9)
    who = NAMES[5]
    assign(storage, key, ["a", who])
    made = storage.correct(key, Change("erase", unit=who), now=NOW, by="me")
    assert made.assignments == 1
    for again in (storage, open_storage()):
        assert [who] != [r.unit for r in again.log(key)][1:], "the unit is still there"
        assert again.find_assignments(key, [who]) == [None], "the unit is found"
    told = storage.reward(key, [((1, check_of(who)), 1.0), ((0, check_of(who)), 1.0)], None, NOW)
    assert [o.status for o in told] == ["stored", "unknown"], "by the id that it had"
    (new,) = assign(storage, key, [who]).assigned
    assert new is not None
    assert (new.number, new.new) == (2, True), "it has its old assignment"
    entry = storage.audit(experiment="e")[-1]
    assert (entry.action, entry.author, entry.detail) == ("unit.erased", "me", {"assignments": 1})
    tallied(storage, key)
    both = new_experiment(storage, "both", sticky=False).key
    open_segment(storage, both, new_segment(9))
    assign(storage, both, ["x", "x", "y"])
    assert _change(storage, both, "erase", unit="x").assignments == 2
    assert "x" not in {r.unit for r in storage.log(both)}


def check_corrections_restored(open_storage: Open) -> None:
    """Corrections come along with an experiment, under new ids of their entries."""
    storage = open_storage()
    key = busy(storage, "e")
    _change(storage, key, "void", target="a0", by="me")
    out = _change(storage, key, "exclude", unit="a3", by="me")
    _change(storage, key, "exclude", unit="e1", by="me")
    _change(storage, key, "include", entry=out.entry, by="me")
    snapshot, rows = storage.snapshot(key, everything=True), storage.log(key)
    trace = Trace(tuple(storage.audit(experiment="e")), tuple(storage.corrections(key)))
    made = storage.restore("copy", snapshot, [rows], trace, now=NOW + 10, by="you")
    log = storage.audit(experiment="copy")
    assert [(e.author, e.action) for e in log] == [
        *((e.author, e.action) for e in trace.entries),
        ("you", "experiment.imported"),
    ], "not the entries that came along"
    assert all("imported" in e.detail for e in log[:-1]), "imported entries are not marked"
    new = {old.id: entry.id for old, entry in zip(trace.entries, log, strict=False)}
    assert log[-2].detail["entry"] == new[out.entry], "it undoes another entry"
    wanted = [replace(c, entry=new[c.entry]) for c in trace.corrections]
    assert open_storage().corrections(made.key) == wanted, "not the corrections that came along"
    excluded = [r.excluded and new[r.excluded] for r in rows]
    assert [r.excluded for r in storage.log(made.key)] == excluded, "not what was excluded"
    copy = storage.snapshot(made.key, everything=True)
    assert copy.corrected == snapshot.corrected == (0,), "not the segments that were corrected"
    assert [t for _, t in copy.segments] == [t for _, t in snapshot.segments], "not the sums"
    tallied(storage, made.key)
    broken = replace(trace, entries=trace.entries[:1])
    refused(InvalidInputError, "a trace", storage.restore, "b", snapshot, [rows], broken)
    assert [e.name for e in storage.experiments()] == ["e", "copy"], "something was left behind"
    entry = log[-3].id
    assert _change(storage, made.key, "include", entry=entry).assignments == 1


def check_states_noted(open_storage: Open) -> None:
    """Every change of the state is noted once, with who made it."""
    storage = open_storage()
    key = new_experiment(storage, state="draft").key
    for i, to in enumerate(("running", "running", "paused", "running", "stopped", "archived")):
        storage.move(key, to, now=NOW + i, by="me")  # type: ignore[arg-type]  # a state
    refused(WrongStateError, "back from the archive", storage.move, key, "running", by="me")
    log = open_storage().audit(experiment="e")
    names = ("created", "started", "paused", "resumed", "stopped", "archived")
    assert [e.action for e in log] == [f"experiment.{name}" for name in names]
    assert [e.created - NOW for e in log] == [0, 0, 2, 3, 4, 5], "not when it was changed"
    assert [e.author for e in log] == ["", *["me"] * 5], "not who changed it"
    new_experiment(storage, "other")
    assert storage.audit(experiment="e") == log, "entries of another experiment"
    assert storage.audit(log[1].id, 2, "e") == log[2:4], "not the next entries"


def check_threads_correct(open_storage: Open) -> None:
    """Corrections race with rewards and with closing; sums and traces stay exact."""
    storages = [open_storage() for _ in range(3)]
    for turn in range(3):
        storage, name = storages[0], f"e{turn}"
        key = running(storage, 12, name=name)
        units = [f"u{i}" for i in range(12)]
        assign(storage, key, units)
        storage.reward(key, [(u, 1.0) for u in units[:6]], None, NOW)

        def work(i: int, key: int = key, units: list[str] = units) -> None:
            mine = storages[i % 3]
            try:
                if i == 0:
                    _change(mine, key, "exclude", since=NOW, until=NOW + 1)
                elif i == 1:
                    for unit in units[6:]:
                        mine.reward(key, [(unit, 2.0)], None, NOW)
                elif i == 2:
                    for unit in units[:3]:
                        _change(mine, key, "correct", target=unit, reward=3.0)
                elif i == 3:
                    _change(mine, key, "void", target=units[4])
                else:
                    snapshot = mine.snapshot(key)
                    (record, tally), version = snapshot.segments[0], snapshot.experiment.version
                    mine.decide(key, version, Decision({}, ((record.index, tally),)), NOW)
            except InvalidInputError:
                assert i == 3, "what others did made a correction fail"

        together(work, 5)
        (tally,) = tallied(storage, key)
        assert tally.left_out == 12, "an assignment was not excluded"
        (record, _), made = storage.snapshot(key).segments[0], storage.corrections(key)
        entry = next(c.entry for c in made if c.kind == "exclude")
        _change(storage, key, "include", entry=entry)
        (tally,) = tallied(storage, key)
        if record.closed is None:
            assert decided(storage, key, Decision({}, ((0, tally),))), "facts were refused"


CHECKS: tuple[Check, ...] = (
    check_rewards_corrected,
    check_refused_corrections,
    check_excluded,
    check_corrected_after_closing,
    check_erased,
    check_corrections_restored,
    check_states_noted,
    check_threads_correct,
)
