"""MemoryStorage: experiments in the memory of one process, for tests, notebooks and trying out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain, count, islice
from threading import RLock
from typing import Any

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import (
    MOVED,
    Change,
    Corrected,
    Correction,
    Trace,
    check_open,
    new_id,
)
from steadyarm.storages.draws import Draws
from steadyarm.storages.memory_books import Books
from steadyarm.storages.records import (
    MOVES,
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
    number_of,
    removable,
)
from steadyarm.validation import finite_number

__all__ = ["AccessBooks", "MemoryStorage"]

# Tokens, sessions and the audit log in memory; whoever uses them takes care of locks.


class AccessBooks:
    """Who may come in, and who did what.

    Attributes
    ----------
    closed : whether there is a token or has ever been one
    tokens : by name
    sessions : by the hash of their id
    entries : the audit log
    """

    def __init__(self) -> None:
        self.closed = False
        self.tokens: dict[str, TokenRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.entries: list[AuditEntry] = []

    def add_token(self, token: TokenRecord, by: str) -> None:
        """See `Storage.add_token`."""
        if token.name in self.tokens:
            raise InvalidInputError(
                f"there is a token {token.name!r} already; remove it or take another name."
            )
        self.tokens[token.name] = token
        self.closed = True
        detail = {"name": token.name, "scope": token.scope}
        self.note(token.created, by, "token.created", detail=detail)

    def remove_token(self, name: str, by: str, now: int, lock_out: bool) -> TokenRecord:
        """See `Storage.remove_token`."""
        token = removable(name, self.tokens.values(), lock_out)
        del self.tokens[name]
        self.sessions = {
            id_: session for id_, session in self.sessions.items() if session.token != token.hash
        }
        self.note(now, by, "token.removed", detail={"name": name, "scope": token.scope})
        return token

    def add_session(self, session: SessionRecord) -> None:
        """See `Storage.add_session`."""
        if all(token.hash != session.token for token in self.tokens.values()):
            raise InvalidInputError("the token of the session was removed; use another one.")
        kept = {id_: s for id_, s in self.sessions.items() if s.expires > session.created}
        self.sessions = kept | {session.id: session}

    def find_session(self, id: str, now: int) -> SessionRecord | None:
        """See `Storage.find_session`."""
        session = self.sessions.get(id)
        return session if session is not None and session.expires > now else None

    def note(
        self,
        now: int,
        author: str,
        action: str,
        experiment: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an entry to the audit log; its id. The arguments are those of `AuditEntry`."""
        kept = json.loads(json.dumps(detail or {}))  # a copy, and refused if others refuse it
        number = len(self.entries) + 1
        self.entries.append(AuditEntry(number, now, author, action, experiment, kept))
        return number

    def audit(self, after: int, most: int, experiment: str | None) -> list[AuditEntry]:
        """See `Storage.audit`."""
        later = islice(self.entries, max(after, 0), None)
        wanted = (e for e in later if experiment is None or e.experiment == experiment)
        return list(islice(wanted, most))


class MemoryStorage(Storage):
    """Experiments in dicts; any number of threads may use one storage.

    Examples
    --------
    >>> storage = MemoryStorage()
    >>> storage.create("button", "x7", "draft", {"seed": 1, "arms": ["A", "B"]}, {}, now=0).state
    'draft'
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._draws = Draws()
        self._books: dict[int, Books] = {}
        self._keys: dict[str, int] = {}
        self._access = AccessBooks()
        self._unused = count(1)

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
        config, policy_state = _copy(config), _copy(policy_state)
        with self._lock:
            record = ExperimentRecord(0, name, tag, state, config, now, 0, policy_state, 0)
            made = self._add(Books(record))
            self._access.note(now, by, "experiment.created", name, {"state": state})
            return made

    def find(self, name: str) -> ExperimentRecord:
        """See `Storage.find`."""
        with self._lock:
            if name in self._keys:
                return self._books[self._keys[name]].record
            near = get_close_matches(name, self._keys)
        hint = f"did you mean {', '.join(map(repr, near))}?" if near else "create it first."
        raise UnknownExperimentError(f"there is no experiment {name!r}; {hint}")

    def experiments(self) -> list[ExperimentRecord]:
        """See `Storage.experiments`."""
        with self._lock:
            return [books.record for books in self._books.values()]

    def summaries(self, only: int | None = None) -> list[Summary]:
        """See `Storage.summaries`."""
        with self._lock:
            keys = self._books if only is None else {only} & self._books.keys()
            return [self._books[key].summary() for key in keys]

    def move(
        self, key: int, to: ExperimentState, *, now: int | None = None, by: str = ""
    ) -> ExperimentRecord:
        """See `Storage.move`."""
        with self._at(key) as books:
            state = books.record.state
            if to != state and state not in MOVES[to]:
                raise WrongStateError(
                    f"the experiment {books.record.name!r} is {state}; it can be {to} only after "
                    f"it was {' or '.join(MOVES[to]) or 'created'}."
                )
            if to != state:
                at = self.now() if now is None else now
                self._access.note(at, by, MOVED[state, to], books.record.name)
            books.record = replace(books.record, state=to)
            return books.record

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
        at, trace = self.now() if now is None else now, trace or Trace()
        record = snapshot.experiment
        config, policy_state = _copy(record.config), _copy(record.policy_state)
        books = Books(replace(record, name=name, config=config, policy_state=policy_state))
        for segment, _ in snapshot.segments:
            books.open(segment)
        with self._lock:
            self._check_free(name)
            # New ids are known before anything is noted, for what breaks off leaves nothing.
            first = len(self._access.entries) + 1
            ids = {entry.id: first + i for i, entry in enumerate(trace.entries)}
            for row in chain.from_iterable(rows):
                if row.excluded is not None:
                    row = replace(row, excluded=new_id(ids, row.excluded))
                books.enter(row)
            books.release_unused()
            details = [trace.detail(entry, ids) for entry in trace.entries]
            books.corrections = list(trace.renumbered(ids))
            books.corrected = trace.segments()
            made = self._add(books)
            for old, detail in zip(trace.entries, details, strict=True):
                self._access.note(old.created, old.author, old.action, name, detail)
            self._access.note(at, by, "experiment.imported", name, {"from": record.name})
            return made

    def snapshot(self, key: int, everything: bool = False) -> Snapshot:
        """See `Storage.snapshot`."""
        with self._at(key) as books:
            indices = range(len(books.segments)) if everything else sorted(books.current())
            found = tuple((books.segments[i], books.sums[i].tally()) for i in indices)
            return Snapshot(books.record, found, tuple(sorted(books.corrected)) * everything)

    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        """See `Storage.progress`."""
        with self._at(key) as books:
            return tuple(
                books.progress(index)
                for index in sorted(books.unclosed)
                if not exhausted or books.segments[index].handed >= books.segments[index].rounds
            )

    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        """See `Storage.decide`."""
        state = _copy(decision.policy_state)
        with self._at(key) as books:
            return books.decide(version, replace(decision, policy_state=state), now)

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
        with self._at(key) as books:
            fresh: Sequence[str] = units
            if books.sticky:
                fresh = [unit for unit in dict.fromkeys(units) if unit not in books.units]
            if fresh:
                books.check_running()
            # The lease of each place that the caller holds; it may name a lease twice.
            mine = {number: lease.id for lease in held for number in books.held(lease)}
            numbers, left = list(mine)[: len(fresh)], list(mine)[len(fresh) :]
            given = self._enter(books, numbers, fresh, now)
            leases = books.pieces((mine[number], number) for number in left)
            for lease in set(mine.values()):
                books.trim(lease)
            if len(fresh) > len(given):
                books.reclaim(now)
                rest = fresh[len(given) :]
                given += self._enter(books, books.take(len(rest)), rest, now)
                leases += books.lease(books.take_ahead(ahead), expires)
            if not books.sticky:
                return Handed((*given, *[None] * (len(fresh) - len(given))), leases)
            new = {each.unit: each for each in given}
            found = tuple(new.pop(unit, None) or books.assigned(unit) for unit in units)
            return Handed(found, leases)

    def lease(self, key: int, wanted: int, *, expires: int, now: int) -> tuple[Lease, ...]:
        """See `Storage.lease`."""
        with self._at(key) as books:
            books.check_running()
            books.reclaim(now)
            return books.lease(books.take(wanted), expires)

    def report(
        self, key: int, lease: int, used: Sequence[tuple[int, str, int]], now: int
    ) -> tuple[Assigned | None, ...]:
        """See `Storage.report`."""
        with self._at(key) as books:
            if books.record.state == "archived":
                raise WrongStateError("the experiment is archived; it takes no reports.")
            found: list[Assigned | None] = []
            for position, unit, time in used:
                known = books.reported(lease, position, unit)
                if known is None and books.has(lease, position):
                    number = number_of(books.issued[lease], position)
                    (known,) = self._enter(books, [number], [unit], time)
                found.append(known)
            books.trim(lease)
            return tuple(found)

    def release(self, key: int, leases: Iterable[int]) -> int:
        """See `Storage.release`."""
        with self._at(key) as books:
            return sum(books.release(lease) for lease in leases)

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
        with self._at(key) as books:
            if books.record.state == "archived":
                raise WrongStateError(
                    f"the experiment {books.record.name!r} is archived; it takes no rewards."
                )
            return tuple(books.reward(event, window, grace, now) for event in rewards)

    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        """See `Storage.correct`."""
        with self._at(key) as books:
            check_open(change, books.record.name, books.record.state, now)
            rows = books.touched(change)
            detail = change.detail(len(rows))
            entry = self._access.note(now, by, change.action, books.record.name, detail)
            books.correct(change, rows, entry)
            return Corrected(entry, len(rows))

    def corrections(
        self, key: int, after: tuple[int, int] = (0, -1), most: int = 10_000
    ) -> list[Correction]:
        """See `Storage.corrections`."""
        with self._at(key) as books:
            later = (c for c in books.corrections if (c.entry, c.number) > after)
            return list(islice(later, most))

    def days(self, key: int) -> tuple[DaySums, ...]:
        """See `Storage.days`."""
        with self._at(key) as books:
            return tuple(chain.from_iterable(d.sums(i) for i, d in enumerate(books.days)))

    def log(self, key: int, after: int = -1, most: int = 10_000) -> list[LogRow]:
        """See `Storage.log`."""
        with self._at(key) as books:
            return list(islice(books.rows_from(after + 1), most))

    def segments(self, key: int, indices: Iterable[int]) -> dict[int, SegmentRecord]:
        """See `Storage.segments`."""
        with self._at(key) as books:
            known = range(len(books.segments))
            return {index: books.segments[index] for index in indices if index in known}

    def find_assignments(self, key: int, targets: Sequence[Target]) -> list[LogRow | None]:
        """See `Storage.find_assignments`."""
        with self._at(key) as books:
            return [books.find(target) for target in targets]

    def leases(self, key: int) -> tuple[Lease, ...]:
        """See `Storage.leases`."""
        with self._at(key) as books:
            out = books.leases.values()
            return books.pieces((lease.id, number) for lease in out for number in books.left(lease))

    def closed(self) -> bool:
        """See `Storage.closed`."""
        with self._lock:
            return self._access.closed

    def add_token(self, token: TokenRecord, *, by: str = "") -> None:
        """See `Storage.add_token`."""
        with self._lock:
            self._access.add_token(token, by)

    def tokens(self) -> list[TokenRecord]:
        """See `Storage.tokens`."""
        with self._lock:
            return list(self._access.tokens.values())

    def remove_token(
        self, name: str, *, now: int, by: str = "", lock_out: bool = False
    ) -> TokenRecord:
        """See `Storage.remove_token`."""
        with self._lock:
            return self._access.remove_token(name, by, now, lock_out)

    def add_session(self, session: SessionRecord) -> None:
        """See `Storage.add_session`."""
        with self._lock:
            self._access.add_session(session)

    def find_session(self, id: str, now: int) -> SessionRecord | None:
        """See `Storage.find_session`."""
        with self._lock:
            return self._access.find_session(id, now)

    def remove_session(self, id: str) -> None:
        """See `Storage.remove_session`."""
        with self._lock:
            self._access.sessions.pop(id, None)

    def audit(
        self, after: int = 0, most: int = 10_000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """See `Storage.audit`."""
        with self._lock:
            return self._access.audit(after, most, experiment)

    def now(self) -> int:
        """See `Storage.now`: the clock of this process."""
        return time.time_ns() // 1000

    def check(self) -> None:
        """See `Storage.check`; memory takes what it is given."""

    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> Pruned:
        """See `Storage.prune`."""
        with self._lock:
            old = {} if archived_before is None else self._archived(archived_before)
            if dry:
                return Pruned(0, 0, 0, tuple(old.values()))
            positions = sum(books.reclaim(now) for books in self._books.values())
            rows = 0
            for books in self._books.values():
                if books.record.state == "archived":
                    rows += len(books.leases)
                    books.leases.clear()
            for key, name in old.items():
                del self._books[key], self._keys[name]
            return Pruned(positions, rows, 0, tuple(old.values()))

    def _archived(self, before: int) -> dict[int, str]:
        """Names by key of archived experiments that nobody has used since a time."""
        return {
            key: books.record.name
            for key, books in self._books.items()
            if books.record.state == "archived"
            and max(books.record.created, books.summary().last or 0) < before
        }

    def close(self) -> None:
        """See `Storage.close`; what is in memory stays there."""

    @contextmanager
    def _at(self, key: int) -> Iterator[Books]:
        with self._lock:
            if key not in self._books:
                raise UnknownExperimentError(f"there is no experiment with the key {key!r}.")
            yield self._books[key]

    def _check_free(self, name: str) -> None:
        if name in self._keys:
            raise ExperimentExistsError(
                f"there is an experiment {name!r} already; take another name."
            )

    def _add(self, books: Books) -> ExperimentRecord:
        name = books.record.name
        self._check_free(name)
        key = next(self._unused)
        books.record = replace(books.record, key=key)
        self._books[key], self._keys[name] = books, key
        return books.record

    def _enter(
        self, books: Books, numbers: Sequence[int], units: Sequence[str], now: int
    ) -> list[Assigned]:
        """Assign places to units, as long as there are both."""
        key, seed = books.record.key, books.record.config["seed"]
        numbers = numbers[: len(units)]
        places = self._draws.places(key, seed, numbers, books.segments.__getitem__)
        found = []
        for number, unit, place in zip(numbers, units, places, strict=False):
            books.enter(LogRow(number, unit, *place, now, None, None))
            found.append(Assigned(number, unit, *place, now))
        return found


def _copy(value: Mapping[str, Any]) -> dict[str, Any]:
    # As other storages keep it, so that what they could not keep is refused here, too.
    copy: dict[str, Any] = json.loads(json.dumps(value))
    return copy
