"""SQLStorage: the contract of `Storage` on SQLite and PostgreSQL.

Every method is a transaction around what another file of this folder does with the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine import URL

from steadyarm.errors import StorageError, UnknownExperimentError
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Change, Corrected, Correction, Trace
from steadyarm.storages.draws import Draws
from steadyarm.storages.records import (
    Assigned,
    AuditEntry,
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    Handed,
    Lease,
    LogRow,
    Outcome,
    Progress,
    Pruned,
    SegmentRecord,
    SessionRecord,
    Snapshot,
    Summary,
    Target,
    TokenRecord,
)
from steadyarm.storages.sql import access, assignments, corrections, decisions, experiments
from steadyarm.storages.sql.assignments import Assigner
from steadyarm.storages.sql.clock import Clock
from steadyarm.storages.sql.engine import Database
from steadyarm.storages.sql.rewards import Rule, reward_many
from steadyarm.storages.sql.segments import PAGE, Facts, by_targets, facts_of, log_row, segments_of
from steadyarm.storages.sql.upkeep import Heartbeat, prepare, prune
from steadyarm.validation import finite_number

__all__ = ["SQLStorage"]

T = TypeVar("T")


class SQLStorage(Storage):
    """Experiments in a database; made by `open_storage`.

    On SQLite whoever writes is alone, so locks are the file's. On PostgreSQL rows are locked in one
    order: leases, the counter, assignments or rewards by unit or number, tallies.
    """

    def __init__(self, url: URL) -> None:
        self._database = Database(url)
        self._clock = Clock(self._database)
        self._heartbeat = Heartbeat(self._database)
        self._draws = Draws()
        self._known: dict[int, Facts] = {}
        self._configs: dict[int, Mapping[str, Any]] = {}
        try:
            prepare(self._database)
        except BaseException:
            self._database.close()
            raise
        self._database.reopened = self._reopened

    def __repr__(self) -> str:
        return f"SQLStorage({self._database.shown})"

    def _reopened(self) -> None:
        """Go on with another file than was opened, if it has the experiments known here."""
        known, self._known = self._known, {}
        self._configs, self._draws = {}, Draws()
        prepare(self._database, new=False)
        try:
            self._database.read(lambda c: [self._facts(c, key) for key in known])
        except UnknownExperimentError:
            self._known = {}
        if self._known != known:
            self._known = known
            raise StorageError(
                f"{self._database.shown}: the file was replaced by one with other experiments than "
                "those in use; end the processes that use it and start them again."
            )

    def _read(self, key: int, work: Callable[[Connection], T]) -> T:
        """Read about an experiment that there is."""

        def checked(connection: Connection) -> T:
            self._facts(connection, key)
            return work(connection)

        return self._database.read(checked)

    def _write(self, work: Callable[[Connection], T], seconds: float | None = None) -> T:
        """Write what traffic brings, and now and then what time it is."""

        def kept(connection: Connection) -> T:
            self._clock.keep(connection)
            return work(connection)

        return self._database.write(kept, seconds=seconds)

    def _facts(self, connection: Connection, key: int) -> Facts:
        if key not in self._known:
            self._known[key] = facts_of(connection, key)
        return self._known[key]

    def _assigner(self, connection: Connection, key: int) -> Assigner:
        facts = self._facts(connection, key)
        return Assigner(connection, key, facts, self._draws, self._database.shard)

    def create(
        self,
        name: str,
        tag: str,
        state: ExperimentState,
        config: Mapping[str, Any],
        policy_state: Mapping[str, Any],
        now: int,
        *,
        by: str = "",
    ) -> ExperimentRecord:
        """See `Storage.create`."""
        return self._database.write(
            lambda c: experiments.create(c, name, tag, state, config, policy_state, now, by)
        )

    def find(self, name: str) -> ExperimentRecord:
        """See `Storage.find`."""
        return self._database.read(lambda c: experiments.find(c, name))

    def experiments(self) -> list[ExperimentRecord]:
        """See `Storage.experiments`."""
        return self._database.read(experiments.list_experiments)

    def summaries(self, only: int | None = None) -> list[Summary]:
        """See `Storage.summaries`."""
        return self._database.read(lambda c: experiments.summaries(c, self._configs, only))

    def move(
        self, key: int, to: ExperimentState, *, now: int | None = None, by: str = ""
    ) -> ExperimentRecord:
        """See `Storage.move`."""
        at = self.now() if now is None else now
        return self._database.write(lambda c: experiments.move(c, key, to, at, by))

    def restore(
        self,
        name: str,
        snapshot: Snapshot,
        rows: Iterable[Sequence[LogRow]],
        trace: Trace | None = None,
        *,
        now: int | None = None,
        by: str = "",
    ) -> ExperimentRecord:
        """See `Storage.restore`."""
        at, brought = self.now() if now is None else now, trace or Trace()
        # Rows can be read once, so there is one try.
        return self._database.write(
            lambda c: experiments.restore(c, name, snapshot, rows, brought, at, by),
            tries=1,
            seconds=inf,
        )

    def snapshot(self, key: int, everything: bool = False) -> Snapshot:
        """See `Storage.snapshot`."""
        return self._database.read(lambda c: decisions.snapshot(c, key, everything))

    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        """See `Storage.progress`."""
        if key not in self._known:
            self._read(key, lambda c: None)  # there is such an experiment
        return self._database.look(lambda c: decisions.progress(c, key, exhausted))

    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        """See `Storage.decide`."""
        return self._database.write(lambda c: decisions.decide(c, key, version, decision, now))

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
        """See `Storage.assign`."""
        if self._database.sqlite and self._sticky(key):
            # Who only reads does not wait for those who write.
            known = self._database.read(lambda c: self._assigner(c, key).existing(units))
            if all(unit in known for unit in units):
                return Handed(tuple(known[unit] for unit in units), tuple(held))
        return self._write(
            lambda c: self._assigner(c, key).assign(units, held, ahead, expires, now)
        )

    def _sticky(self, key: int) -> bool:
        if key not in self._known:
            self._read(key, lambda c: None)
        return self._known[key].sticky

    def lease(self, key: int, wanted: int, *, expires: int, now: int) -> tuple[Lease, ...]:
        """See `Storage.lease`."""
        return self._database.write(lambda c: self._assigner(c, key).lease(wanted, expires, now))

    def report(
        self, key: int, lease: int, used: Sequence[tuple[int, str, int]], now: int
    ) -> tuple[Assigned | None, ...]:
        """See `Storage.report`."""
        return self._database.write(lambda c: self._assigner(c, key).report(lease, used))

    def release(self, key: int, leases: Iterable[int]) -> int:
        """See `Storage.release`."""
        ids = list(leases)

        def work(connection: Connection) -> int:
            self._facts(connection, key)  # there is such an experiment
            return assignments.release(connection, key, ids)

        return self._database.write(work)

    def reward(
        self,
        key: int,
        rewards: Sequence[Event],
        window: int | None,
        now: int,
        grace: int = 0,
    ) -> tuple[Outcome, ...]:
        """See `Storage.reward`."""
        for event in rewards:
            finite_number(event[1], "the reward")
        shard, rule = self._database.shard, Rule(window, grace, now)
        return self._write(
            lambda c: reward_many(c, key, self._facts(c, key).sticky, shard, rewards, rule)
        )

    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        """See `Storage.correct`."""
        shard = self._database.shard

        def work(connection: Connection) -> Corrected:
            sticky = self._facts(connection, key).sticky
            return corrections.correct(connection, key, sticky, shard, change, now, by)

        # A reward is corrected in a moment; a unit or a period may have a million visits.
        return self._write(work, inf if change.target is None else None)

    def corrections(
        self, key: int, after: tuple[int, int] = (0, -1), most: int = 10_000
    ) -> list[Correction]:
        """See `Storage.corrections`."""
        return self._read(key, lambda c: corrections.list_corrections(c, key, after, most))

    def days(self, key: int) -> tuple[DaySums, ...]:
        """See `Storage.days`."""
        return self._read(key, lambda c: experiments.days(c, key))

    def log(self, key: int, after: int = -1, most: int = 10_000) -> list[LogRow]:
        """See `Storage.log`."""
        values = {"key": key, "after": after, "most": most}
        return self._read(key, lambda c: [log_row(row) for row in c.execute(PAGE, values)])

    def segments(self, key: int, indices: Iterable[int]) -> dict[int, SegmentRecord]:
        """See `Storage.segments`."""
        wanted = list(indices)
        return self._read(key, lambda c: segments_of(c, key, wanted))

    def find_assignments(self, key: int, targets: Sequence[Target]) -> list[LogRow | None]:
        """See `Storage.find_assignments`."""

        def work(connection: Connection) -> list[LogRow | None]:
            rows = by_targets(connection, key, self._facts(connection, key).sticky, targets)
            return [None if row is None else log_row(row) for row in rows]

        return self._database.read(work)

    def leases(self, key: int) -> tuple[Lease, ...]:
        """See `Storage.leases`."""
        return self._read(key, lambda c: assignments.leased(c, key))

    def closed(self) -> bool:
        """See `Storage.closed`."""
        return self._database.look(access.closed)

    def add_token(self, token: TokenRecord, *, by: str = "") -> None:
        """See `Storage.add_token`."""
        self._database.write(lambda c: access.add_token(c, token, by))

    def tokens(self) -> list[TokenRecord]:
        """See `Storage.tokens`."""
        return self._database.read(access.list_tokens)

    def remove_token(
        self, name: str, *, now: int, by: str = "", lock_out: bool = False
    ) -> TokenRecord:
        """See `Storage.remove_token`."""
        return self._database.write(lambda c: access.remove_token(c, name, by, now, lock_out))

    def add_session(self, session: SessionRecord) -> None:
        """See `Storage.add_session`."""
        self._database.write(lambda c: access.add_session(c, session))

    def find_session(self, id: str, now: int) -> SessionRecord | None:
        """See `Storage.find_session`."""
        return self._database.look(lambda c: access.find_session(c, id, now))

    def remove_session(self, id: str) -> None:
        """See `Storage.remove_session`."""
        self._database.write(lambda c: access.remove_session(c, id))

    def audit(
        self, after: int = 0, most: int = 10_000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """See `Storage.audit`."""
        return self._database.read(lambda c: access.entries(c, after, most, experiment))

    def now(self) -> int:
        """See `Storage.now`."""
        return self._clock.now()

    def check(self) -> None:
        """See `Storage.check`."""
        self._heartbeat.check()

    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> Pruned:
        """See `Storage.prune`."""
        pruned = prune(self._database, now, archived_before, dry)
        if pruned.experiments and not dry:
            self._known = {}
        return pruned

    def close(self) -> None:
        """See `Storage.close`."""
        self._database.close()
