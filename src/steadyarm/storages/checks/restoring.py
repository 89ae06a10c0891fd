"""Checks of restoring: an experiment as it stood elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from steadyarm.errors import ExperimentExistsError
from steadyarm.storages.checks.bench import (
    NOW,
    Check,
    Open,
    assign,
    busy,
    new_experiment,
    new_segment,
    open_segment,
    refused,
)
from steadyarm.storages.checks.looking import (
    accounted,
    every,
    everything,
    has_arms_of,
    same,
    shape_of,
    tallied,
    those_given,
)
from steadyarm.storages.records import Decision, LogRow, Snapshot, Tally, number_of

__all__ = ["CHECKS"]


def check_restore(open_storage: Open) -> None:
    """A restored experiment is as it stood, with tallies counted from its rows."""
    storage = open_storage()
    key = busy(storage, "e")
    snapshot = storage.snapshot(key, everything=True)
    rows = storage.log(key)
    # What the snapshot says of tallies is not read.
    blank = tuple((r, Tally.empty(3)) for r, _ in snapshot.segments)
    pages = [rows[start : start + 4] for start in range(0, len(rows), 4)]
    made = storage.restore("copy", replace(snapshot, segments=blank), iter(pages))
    assert made.key != key, "the key is not new"
    assert same(made, replace(snapshot.experiment, key=made.key, name="copy")), "another record"
    for again in (storage, open_storage()):
        assert same(again.find("copy"), made), "find gives another record"
        copy = again.snapshot(made.key, everything=True)
        for (a, x), (b, y) in zip(copy.segments, snapshot.segments, strict=True):
            assert shape_of(a) == shape_of(b), "a segment is not as it stood"
            assert x == y, "a tally is not that of the rows"
        assert again.log(made.key) == rows, "the log is not as it stood"
        assert again.leases(made.key) == (), "leases of elsewhere are out"
    used = {r.number for r in rows}
    free = [
        number_of(r.index, p)
        for r, _ in snapshot.segments
        for p in range(r.handed)
        if number_of(r.index, p) not in used
    ]
    assert free, "the check is not worth much"
    given = every(assign(storage, made.key, [rows[0].unit, *(f"n{i}" for i in range(len(free)))]))
    assert (given[0].number, given[0].new) == (rows[0].number, False), "a unit was forgotten"
    numbers = sorted(a.number for a in given[1:])
    assert numbers == free, "positions that no row uses are not handed out first"
    reward = next(r for r in rows if r.reward is not None)
    assert reward.reward is not None
    (outcome,) = storage.reward(made.key, [(reward.unit, reward.reward)], None, NOW)
    assert outcome.status == "repeated", "a restored reward was forgotten"
    version = snapshot.experiment.version
    assert storage.decide(made.key, version, Decision({}), NOW), "the version is not as it stood"
    accounted(storage, made.key)
    tallied(storage, made.key)
    empty = storage.restore("empty", Snapshot(replace(made, state="draft"), ()), [])
    assert storage.snapshot(empty.key).segments == (), "restored segments out of nothing"


def check_restored_places(open_storage: Open) -> None:
    """What is handed out after restoring has the arms of its places."""
    storage = open_storage()
    key = new_experiment(storage, sticky=False).key
    segment = new_segment(50, "blocks", 9)
    open_segment(storage, key, segment)
    assign(storage, key, ["u"] * 3, ahead=4)
    snapshot = storage.snapshot(key, everything=True)
    made = storage.restore("copy", snapshot, [storage.log(key)])
    given = those_given(assign(open_storage(), made.key, ["u"] * 50))
    assert sorted(a.number for a in given) == [*range(3, 50)], "positions were lost or twice given"
    has_arms_of(given, segment)


def check_restore_refused(open_storage: Open) -> None:
    """A taken name is refused; rows that break off leave nothing."""
    storage = open_storage()
    key = busy(storage, "e")
    before = everything(storage, key)
    snapshot = storage.snapshot(key, everything=True)
    rows = storage.log(key)
    promise = "restore under a taken name"
    refused(ExperimentExistsError, promise, storage.restore, "e", snapshot, [rows])

    def broken() -> Iterator[Sequence[LogRow]]:
        yield rows[:3]
        raise EOFError("the file ends here")

    refused(EOFError, "rows that break off", storage.restore, "b", snapshot, broken())
    assert [e.name for e in open_storage().experiments()] == ["e"], "something was left behind"
    assert everything(storage, key) == before, "a refused restore changed the experiment"
    assert storage.restore("b", snapshot, [rows]).name == "b", "the name is not free any more"


CHECKS: tuple[Check, ...] = (
    check_restore,
    check_restored_places,
    check_restore_refused,
)
