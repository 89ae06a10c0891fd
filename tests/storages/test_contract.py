"""Every storage keeps the contract, and the contract's checks notice when one does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Change, Corrected, Correction, SessionRecord, TokenRecord
from steadyarm.storages.memory import MemoryStorage
from steadyarm.storages.records import (
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    Handed,
    Known,
    Lease,
    Outcome,
    Summary,
)
from steadyarm.storages.webhooks import Attempt, Notice, WebhookRecord
from steadyarm.testing.storages import (
    CHECKS,
    Open,
    corrections,
    outside,
    run_check,
    run_checks,
    webhooks,
)
from steadyarm.testing.storages.bench import Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_storage_keeps(check: Check, open_fresh: Open) -> None:
    run_check(check, open_fresh)


def _always(make: Callable[[], Storage]) -> Open:
    storage = make()
    return lambda: storage


def test_all_checks_run_at_once_and_close_what_they_opened() -> None:
    closed = []

    class Counting(MemoryStorage):
        def close(self) -> None:
            closed.append(self)

    run_checks(lambda: _always(Counting))
    assert len(closed) == len(CHECKS)


class NeverAhead(MemoryStorage):
    def assign(
        self,
        key: int,
        units: Sequence[str],
        held: Sequence[Lease] = (),
        ahead: int = 0,
        *,
        expires: int,
        now: int,
    ) -> Handed:
        return super().assign(key, units, (), 0, expires=expires, now=now)


class AnyVersion(MemoryStorage):
    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        return super().decide(key, self.snapshot(key).experiment.version, decision, now)


class NoWindow(MemoryStorage):
    def reward(
        self, key: int, rewards: Sequence[Event], window: int | None, now: int, grace: int = 0
    ) -> tuple[Outcome, ...]:
        return super().reward(key, rewards, None, now)


class NoEventTime(MemoryStorage):
    def reward(self, key: int, rewards: Sequence[Event], *rest: Any, **more: Any) -> Any:
        return super().reward(key, [event[:2] for event in rewards], *rest, **more)


class Rounding(MemoryStorage):
    def reward(self, key: int, rewards: Sequence[Event], *rest: Any, **more: Any) -> Any:
        rounded = [(event[0], round(event[1], 9), *event[2:]) for event in rewards]
        return super().reward(key, rounded, *rest, **more)


class DayOfLast(MemoryStorage):
    def days(self, key: int) -> tuple[DaySums, ...]:
        days = super().days(key)
        return tuple(replace(sums, day=days[-1].day) for sums in days)


class NeverLate(MemoryStorage):
    def days(self, key: int) -> tuple[DaySums, ...]:
        return tuple(replace(sums, late=(0,) * len(sums.late)) for sums in super().days(key))


class OldSummaries(MemoryStorage):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Summary] = []

    def summaries(self, only: int | None = None) -> list[Summary]:
        if len(self.seen) < len(self._tables):
            self.seen = super().summaries()
        return [summary for summary in self.seen if only in (None, summary.key)]


@pytest.mark.parametrize(
    "broken",
    [NeverAhead, AnyVersion, NoWindow, NoEventTime, Rounding, DayOfLast, NeverLate, OldSummaries],
)
def test_checks_notice(broken: type[Storage]) -> None:
    with pytest.raises(AssertionError):
        run_checks(lambda: _always(broken))


class OpenWithoutTokens(MemoryStorage):
    def closed(self) -> bool:
        return bool(self.tokens())


class AnyTokenGoes(MemoryStorage):
    def remove_token(
        self, name: str, *, now: int, by: str = "", lock_out: bool = False
    ) -> TokenRecord:
        return super().remove_token(name, now=now, by=by, lock_out=True)


class SessionsStay(MemoryStorage):
    def remove_session(self, id: str) -> None:
        pass


class NeverExpire(MemoryStorage):
    def find_session(self, id: str, now: int) -> SessionRecord | None:
        return super().find_session(id, 0)


class Anonymous(MemoryStorage):
    def add_token(self, token: TokenRecord, *, by: str = "") -> None:
        super().add_token(token)


class Forgetful(MemoryStorage):
    def corrections(self, key: int, *rest: Any, **more: Any) -> list[Correction]:
        return []


class StillCounting(MemoryStorage):
    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        kept = deepcopy(self._tables[key].tallies)
        done = super().correct(key, change, now=now, by=by)
        self._tables[key].tallies = kept
        return done


class StillNamed(MemoryStorage):
    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        rows = dict(self._tables[key].rows)
        done = super().correct(key, change, now=now, by=by)
        if change.kind == "erase":
            self._tables[key].rows = rows
        return done


class LastOneWins(MemoryStorage):
    def show_outside(self, key: int, before: Any, after: Any, *rest: Any, **more: Any) -> bool:
        return super().show_outside(key, self.known(key, []).outside, after, *rest, **more)


class StillAssigning(MemoryStorage):
    def known(self, key: int, units: Sequence[str]) -> Known:
        return replace(super().known(key, units), outside=None)


class EverywhereOrNowhere(MemoryStorage):
    def experiments_of(
        self, units: Sequence[str], keys: Sequence[int]
    ) -> tuple[frozenset[int], ...]:
        found = super().experiments_of(units, keys)
        return tuple(frozenset(keys) if mine else mine for mine in found)


@pytest.mark.parametrize("broken", [LastOneWins, StillAssigning, EverywhereOrNowhere])
def test_checks_of_what_is_shown_outside_notice(broken: type[Storage]) -> None:
    def check_all() -> None:
        for check in CHECKS:
            if check.__module__ == outside.__name__:
                run_check(check, _always(broken))

    with pytest.raises(AssertionError):
        check_all()


class MovesInSecret(MemoryStorage):
    def move(
        self,
        key: int,
        to: ExperimentState,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> ExperimentRecord:
        return super().move(key, to, now)


@pytest.mark.parametrize(
    "broken",
    [
        OpenWithoutTokens,
        AnyTokenGoes,
        SessionsStay,
        NeverExpire,
        Anonymous,
        Forgetful,
        StillCounting,
        StillNamed,
        MovesInSecret,
    ],
)
def test_checks_of_operators_notice(broken: type[Storage]) -> None:
    def check_all() -> None:
        for check in CHECKS:
            if check.__module__ == corrections.__name__:
                run_check(check, _always(broken))

    with pytest.raises(AssertionError):
        check_all()


class NoticesTwice(MemoryStorage):
    def notice(self, key: int, version: int, *rest: Any) -> bool:
        return super().notice(key, self.notices().get(key, Notice()).version, *rest)


class TellsAll(MemoryStorage):
    def webhooks(self) -> list[WebhookRecord]:
        return [replace(one, events=(), experiments=()) for one in super().webhooks()]


class TakesAll(MemoryStorage):
    def take_deliveries(self, now: int, until: int, most: int = 100) -> Any:
        return super().take_deliveries(now, now, most)


class AnyAttempt(MemoryStorage):
    def settle(self, id: int, attempts: int, attempt: Attempt, now: int) -> bool:
        last = self._deliveries[id].attempts if id in self._deliveries else attempts
        return super().settle(id, last, attempt, now)


class NeverGone(MemoryStorage):
    def settle(self, id: int, attempts: int, attempt: Attempt, now: int) -> bool:
        return super().settle(id, attempts, replace(attempt, gone=False), now)


class ManyTurns(MemoryStorage):
    def take_turn(self, what: str, holder: str, now: int, until: int) -> bool:
        return True


@pytest.mark.parametrize(
    "broken", [NoticesTwice, TellsAll, TakesAll, AnyAttempt, NeverGone, ManyTurns]
)
def test_checks_of_webhooks_notice(broken: type[Storage]) -> None:
    def check_all() -> None:
        for check in CHECKS:
            if check.__module__ == webhooks.__name__:
                run_check(check, _always(broken))

    with pytest.raises(AssertionError):
        check_all()


def test_checks_notice_what_is_not_shared() -> None:
    with pytest.raises(Exception, match="no experiment"):
        run_checks(lambda: MemoryStorage)
