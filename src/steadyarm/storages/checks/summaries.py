"""Checks of summaries: all experiments in short."""

from __future__ import annotations

from dataclasses import replace

from steadyarm.storages.base import Storage
from steadyarm.storages.checks.bench import (
    DAY,
    NAMES,
    NOW,
    Check,
    Open,
    assign,
    busy,
    new_experiment,
    new_segment,
    open_segment,
    running,
)
from steadyarm.storages.checks.looking import text_of, whole_log
from steadyarm.storages.records import Summary

__all__ = ["CHECKS"]


def check_summaries(open_storage: Open) -> None:
    """Every experiment is there in the order of creation, and as its snapshot has it."""
    storage = open_storage()
    assert storage.summaries() == [], "a fresh storage is not empty"
    for name in NAMES:
        new_experiment(storage, name, state="draft")
    busy(storage, "z")
    running(storage, 9, name="a")
    for view in (storage, open_storage()):
        found = _compared(view)
        assert [each.name for each in found] == [*NAMES, "z", "a"], "not in order of creation"
        draft, full, started = found[0], found[-2], found[-1]
        assert (draft.started, draft.last, draft.assigned) == (None, None, 0), "a draft has begun"
        assert (full.started, full.last) == (NOW, NOW + 7), "not when it began and was last used"
        assert (full.assigned, full.rewarded) == (12, 6), "not all segments are counted"
        assert {each.late for each in found} == {0}, "late although nothing was refused"
        assert (started.started, started.last) == (NOW, None), "it has opened, and was not used"


def check_summaries_follow(open_storage: Open) -> None:
    """Summaries say at once what has changed, whoever did it."""
    storage, other = open_storage(), open_storage()
    key = running(storage, 4)
    _compared(other)
    for day in range(2):
        assign(storage, key, [f"{day}.0", f"{day}.1"], now=NOW + day * DAY)
        storage.reward(key, [(f"{day}.0", 0.5)], None, NOW + 5 * DAY)
        (found,) = _compared(other)
        assert (found.assigned, found.rewarded) == (2 * day + 2, day + 1), "days are not summed"
        assert found.last == NOW + day * DAY, "not the last assignment"
    open_segment(storage, key, new_segment(3), closed=[0])
    (found,) = _compared(other)
    assert (found.version, found.observed, found.assigned) == (2, 1, 4), "a decision is not seen"
    storage.reward(key, [("0.1", 1.0)], None, NOW + 6 * DAY)
    found = replace(found, late=1)
    assert _compared(other) == [found], "a reward that came too late counts, or is not noticed"
    storage.reward(key, [("0.1", 1.0), ("1.1", 1.0)], None, NOW + 6 * DAY)
    assert _compared(other)[0].late == 3, "not every telling that came too late is noticed"
    for state in ("paused", "stopped", "archived"):
        storage.move(key, state)
        assert _compared(other)[0].state == state, f"it is {state}, and not called so"
    copy = storage.restore("copy", storage.snapshot(key, everything=True), [storage.log(key)])
    found, restored = _compared(other)
    assert (restored.key, restored.assigned, restored.last) == (copy.key, 4, found.last), (
        "a restored experiment is not listed as it stands"
    )


def _compared(storage: Storage) -> list[Summary]:
    """All summaries, after comparing them with records, snapshots and logs."""
    found = storage.summaries()
    records = storage.experiments()
    for summary, record in zip(found, records, strict=True):
        for name in ("key", "name", "tag", "state", "created", "version", "observed"):
            assert getattr(summary, name) == getattr(record, name), f"a summary has another {name}"
        assert text_of(summary.config) == text_of(record.config), "a summary has another config"
        segments = storage.snapshot(summary.key, everything=True).segments
        rows = whole_log(storage, summary.key)
        assert summary.assigned == len(rows), "a summary miscounts assignments"
        assert summary.assigned == sum(tally.handed_out for _, tally in segments)
        told = sum(row.reward is not None for row in rows)
        assert summary.rewarded == told, "a summary miscounts rewards"
        assert summary.rewarded == sum(tally.told for _, tally in segments)
        late = sum(sum(sums.late) for sums in storage.days(summary.key))
        assert summary.late == late, "a summary miscounts rewards that came too late"
        assert summary.started == (segments[0][0].opened if segments else None), "another start"
        last = max((row.created for row in rows), default=None)
        assert summary.last == last, "another last assignment"
        assert storage.summaries(summary.key) == [summary], "asked for by its key it is another"
    assert storage.summaries(max((one.key for one in found), default=0) + 1) == [], "one too many"
    return found


CHECKS: tuple[Check, ...] = (check_summaries, check_summaries_follow)
