"""Assignments of a live experiment: what programs work with, and how units get them.

A decision is made on a snapshot, and made again if another process was faster. It may take long to
compute, and nobody who writes should wait for that. So the work is given as steps, one function
to call after the other: `run` takes them all where it is called, and the service takes each in the
threads that it belongs to. No step sleeps: a unit that may get a position soon, because others
hold the last ones, is answered with `Soon`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar

from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RewardsPendingError,
    SteadyArmError,
    StorageError,
    WrongStateError,
)
from steadyarm.live.decisions import decide, is_over
from steadyarm.live.metrics import microseconds
from steadyarm.live.outside import Outside, RollOut
from steadyarm.live.settings import Settings
from steadyarm.segments import Segment, columns_between
from steadyarm.storages.base import Storage
from steadyarm.storages.records import (
    Assigned,
    Decision,
    ExperimentState,
    Handed,
    Known,
    Lease,
    check_running,
    id_of,
    number_of,
    to_datetime,
)
from steadyarm.validation import finite_number
from steadyarm.wording import shortened

T = TypeVar("T")

LONGEST = 512  # characters of a unit, or of the key of an event
LEASED = microseconds(10)  # for how long positions are leased to a worker ahead of their use
# Seconds to wait for the last positions: less than the second after which clients try again.
PATIENCE = 0.8
PAUSE = 0.005  # seconds before the next try

Made = tuple[int, Decision, int]  # on which version, what, and when
Clock = Callable[[], int]  # asked in the step that needs it, since it may ask the storage


@dataclass(frozen=True)
class LiveAssignment:
    """One variant that an experiment has assigned.

    Attributes
    ----------
    id : give it back with the reward
    unit : who got it
    arm, name : the variant
    probability : with which it was drawn
    created : when it was assigned first
    new : False if the unit had it already
    value : what the variant stands for (`Settings.values`); it is shared, do not change it
    in_test : False for what is shown outside of the test: after its end, under a roll-out, or the
        control of a test that is paused or a draft. It costs no budget, is not stored, its id is
        empty and its probability nan; rewards for it count nowhere

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 1000, "memory", seed=1, missing="drop"
    ... )
    >>> shown = test.ask("visitor 1")
    >>> shown.unit, shown.probability, shown.new, shown.in_test
    ('visitor 1', 0.5, True, True)
    >>> test.tell(shown, 1.0)
    """

    id: str
    unit: str
    arm: int
    name: str
    probability: float
    created: datetime
    new: bool
    value: Any = field(default=None, hash=False)
    in_test: bool = True


class AssignmentId(str):
    """The id of an assignment, where a text alone might also be a unit."""

    __slots__ = ()


# When something happened: a time, microseconds since 1970, or how long ago; None for just now.
At = datetime | int | timedelta | None

# What is reported of an assignment, of its id or of a unit: the reward, or values of metrics by
# their names; then when it happened, and the key of the event that it comes from.
Values = float | Mapping[str, float]
Reported = (
    tuple[LiveAssignment | str, Values]
    | tuple[LiveAssignment | str, Values, At]
    | tuple[LiveAssignment | str, Values, At, str | None]
)


@dataclass(frozen=True)
class Status:
    """Where an experiment stands, in numbers.

    Attributes
    ----------
    name, state, created, budget : of the experiment
    assigned, rewarded : by variant
    segments, observed : opened, and of these observed by the policy
    leased : positions that are leased and not reported as used
    arms : of which variants `assigned` and `rewarded` are, by index; None for all of them. Of very
        many variants (`ArmSet.large`) only those that were assigned are counted
    others : assignments and rewards of further variants, where a service reports the most
        frequent ones only
    excluded : assignments that were excluded; they are among the assigned and count nowhere else
    outside : what is shown outside of the test; None as long as nobody needed it

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 1000, "memory", seed=1, missing="drop"
    ... )
    >>> test.tell(test.ask("visitor 1"), 1.0)
    >>> status = test.status()
    >>> status.state, status.budget, sum(status.assigned), sum(status.rewarded)
    ('running', 1000, 1, 1)
    """

    name: str
    state: ExperimentState
    created: datetime
    budget: int
    assigned: tuple[int, ...]
    rewarded: tuple[int, ...]
    segments: int
    observed: int
    leased: int
    arms: tuple[int, ...] | None = None
    others: tuple[int, int] = (0, 0)
    excluded: int = 0
    outside: Outside | None = None

    @property
    def roll_out(self) -> RollOut | None:
        """What was rolled out last; None if nothing was."""
        return None if self.outside is None else self.outside.roll_out

    @property
    def total_assigned(self) -> int:
        """Assignments of all variants."""
        return sum(self.assigned) + self.others[0]

    @property
    def total_rewarded(self) -> int:
        """Rewards of all variants."""
        return sum(self.rewarded) + self.others[1]


@dataclass(frozen=True, eq=False)
class LocalLease:
    """Positions start..stop-1 of a segment, and everything needed to draw their variants.

    Whoever holds it assigns without a request for each unit: the variant of a position is a pure
    function of these values.

    Attributes
    ----------
    id : to report the used positions with
    tag, seed : of the experiment
    names : of the variants that the segment plays, in the order of its columns
    index, segment : of the positions
    until : time (microseconds since 1970) up to which they may be assigned; used positions are to
        be reported within a minute after that
    values : of all variants of the test, in their order; empty if each is its name
    """

    id: int
    tag: str
    seed: int
    names: Sequence[str]
    index: int
    segment: Segment
    start: int
    stop: int
    until: int
    values: Sequence[Any] = ()

    @classmethod
    def of(cls, lease: Lease, segment: Segment, tag: str, settings: Settings, until: int) -> Self:
        """A stored lease with everything needed to use it elsewhere."""
        names = settings.arms.names
        if segment.arms is not None:
            names = tuple(names[arm] for arm in segment.arms.tolist())
        place = lease.segment, segment, lease.start, lease.stop
        values = settings.variant_values
        return cls(lease.id, tag, settings.seed, names, *place, until, values)

    def assignment(self, position: int, unit: str, now: int) -> LiveAssignment:
        """The variant of a position, for a unit."""
        column = self._columns[position - self.start]
        arm, name = self.segment.arm_at(column), self.names[column]
        return LiveAssignment(
            id_of(self.tag, number_of(self.index, position), unit),
            unit,
            arm,
            name,
            self._weights[column],
            to_datetime(now),
            True,
            self.values[arm] if self.values else name,
        )

    @cached_property
    def _columns(self) -> list[int]:
        drawn: list[int] = columns_between(
            self.segment, self.seed, self.index, self.start, self.stop
        ).tolist()
        return drawn

    @cached_property
    def _weights(self) -> list[float]:
        weights: list[float] = self.segment.weights[0].tolist()
        return weights


# Steps


class Step(NamedTuple):
    """One step of a request: it writes, it computes for a while, or else it is a short read."""

    work: Callable[[], Any]
    writes: bool
    computes: bool = False


Steps = Generator[Step, Any, T]  # whoever runs it sends back each result, or throws the error


def run(steps: Steps[T]) -> T:
    """Take all steps here and now; gives what they return in the end."""
    go: Callable[[], Step] = partial(next, steps)
    while True:
        try:
            step = go()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            go = partial(steps.send, step.work())
        except Exception as error:  # theirs to handle
            go = partial(steps.throw, error)


# Decisions: two transactions each, the snapshot and the decision


def open_segment(
    storage: Storage, key: int, settings: Settings, clock: Clock
) -> Steps[SteadyArmError | None]:
    """Make sure that there are positions; gives the reason if there can be none."""

    def made() -> Made | SteadyArmError | None:
        snapshot = storage.snapshot(key)
        last = snapshot.segments[-1][0] if snapshot.segments else None
        if last is not None and last.closed is None and last.handed < last.rounds:
            return None
        now = clock()
        try:
            decision = decide(settings, snapshot, now, need=True)
        except (BudgetSpentError, RewardsPendingError) as error:
            return error
        assert decision is not None
        return snapshot.experiment.version, decision, now

    while True:
        found: Made | SteadyArmError | None = yield Step(made, writes=False, computes=True)
        if not isinstance(found, tuple):
            return found
        stored = yield Step(partial(storage.decide, key, *found), writes=True)
        if stored and found[1].opened:
            return None


def close_finished_segments(
    storage: Storage, key: int, settings: Settings, clock: Clock
) -> Steps[bool]:
    """Let the policy observe the segments that are over; whether there were any."""

    def made() -> Made | None:
        now, snapshot = clock(), storage.snapshot(key)
        decision = decide(settings, snapshot, now, need=False)
        return None if decision is None else (snapshot.experiment.version, decision, now)

    closed = False
    while (yield Step(lambda: is_due(storage, key, settings, clock()), writes=False)):
        found: Made | None = yield Step(made, writes=False, computes=True)
        if found is None:
            break
        stored = yield Step(partial(storage.decide, key, *found), writes=True)
        closed = closed or stored
        # A superseded segment is shorter, and may be over itself.
        if stored and found[1].supersede is None:
            break
    return closed


def is_due(storage: Storage, key: int, settings: Settings, now: int) -> bool:
    """Whether a segment is over that the policy has not observed; cheap."""
    return any(is_over(settings, part, now) for part in storage.progress(key, exhausted=True))


# Positions


@dataclass(frozen=True)
class Soon:
    """No position now, but perhaps soon; the error is the answer if nobody waits for it."""

    error: SteadyArmError


def waited_for(
    answers: Sequence[T | SteadyArmError | Soon],
    again: Callable[[list[int], bool], Sequence[T | SteadyArmError | Soon]],
) -> list[T | SteadyArmError]:
    """The answers without any `Soon`: after a wait they are asked for again, or refused.

    again : asks for those in these places once more; the second argument is true at the last time,
        when no answer is `Soon`
    """
    found, began = list(answers), time.monotonic()
    while places := [i for i, answer in enumerate(found) if isinstance(answer, Soon)]:
        waited = time.monotonic() - began
        time.sleep(PAUSE + waited / 8)  # ever longer, for others must be able to write
        for i, answer in zip(places, again(places, waited > PATIENCE), strict=True):
            found[i] = answer
    return [answer for answer in found if not isinstance(answer, Soon)]


@dataclass(frozen=True)
class Served:
    """What units got, and how the experiment stood.

    Attributes
    ----------
    answers : a position for each unit, or why it has none
    state : of the experiment, where it was not running; else None
    outside : what is shown outside of the test, as stored
    """

    answers: Sequence[Assigned | SteadyArmError | Soon]
    state: ExperimentState | None
    outside: Mapping[str, Any] | None


class Assigner:
    """Assigns positions of one experiment in one process; several threads may share it.

    Attributes
    ----------
    over : the test is over for ever, so that units are only looked up
    """

    def __init__(self, storage: Storage, key: int, settings: Settings) -> None:
        self._storage, self._key, self._settings = storage, key, settings
        self._lock = Lock()
        self._held: tuple[Lease, ...] = ()
        self.over = False

    def serve(
        self, units: Sequence[str | SteadyArmError], ahead: int, clock: Clock
    ) -> Steps[Served]:
        """A position for each unit, or why it has none; errors among the units stay in their place.

        ahead : positions to lease beyond these, for the next call
        """
        answers: list[Assigned | SteadyArmError | Soon | None] = [
            None if isinstance(unit, str) else unit for unit in units
        ]
        state: ExperimentState | None = None
        outside: Mapping[str, Any] | None = None
        while waiting := [i for i, answer in enumerate(answers) if answer is None]:
            names = [str(units[i]) for i in waiting]
            refused: SteadyArmError | Soon | None = None
            given: Sequence[Assigned | None] = [None] * len(names)
            try:
                if not self.over:
                    handed = yield Step(partial(self._assign, names, ahead, clock), writes=True)
                    given, outside = handed.assigned, handed.outside
                    if None in given:
                        refused = yield from self._refusal(clock)
            except WrongStateError as error:
                refused = error
            except StorageError as error:
                if len(waiting) == len(answers) and not any(given):
                    raise
                refused = error  # others were served
            if self.over or (refused is not None and not isinstance(refused, StorageError)):
                # another process may have served some meanwhile
                later: Known = yield Step(partial(self.known, names), writes=False)
                given = [one or other for one, other in zip(given, later.assigned, strict=True)]
                state, outside = later.state, later.outside
                refused = refused or _not_running(later)
            self.over = self.over or outside is not None or state in ("stopped", "archived")
            for i, found in zip(waiting, given, strict=True):
                answers[i] = refused if found is None else found
        served = [answer for answer in answers if answer is not None]
        return Served(served, None if state == "running" else state, outside)

    def known(self, units: Sequence[str]) -> Known:
        """The assignments that units have already, and how the experiment stands; only reads."""
        return self._storage.known(self._key, units)

    def release(self) -> None:
        """Give back positions that were leased ahead and not used."""
        with self._lock:
            held, self._held = self._held, ()
        if held:
            self._storage.release(self._key, [lease.id for lease in held])

    def _assign(self, units: list[str], ahead: int, clock: Clock) -> Handed:
        now = clock()
        with self._lock:  # another thread takes positions of its own meanwhile
            held, self._held = self._held, ()
        leases = held
        try:
            done = self._storage.assign(
                self._key, units, held, ahead, expires=now + LEASED, now=now
            )
            leases = done.leases
        finally:
            with self._lock:
                self._held += leases
        return done

    def _refusal(self, clock: Clock) -> Steps[SteadyArmError | Soon | None]:
        """Why there are no positions; None if there are some."""
        refused = yield from open_segment(self._storage, self._key, self._settings, clock)
        if refused is None:
            return None
        return Soon(refused) if (yield Step(partial(self._soon, clock), writes=False)) else refused

    def _soon(self, clock: Clock) -> bool:
        """Whether unused positions may be free soon, because other workers hold them just now.

        Where two processes are asked for one unit at once, one of them gives its position back; and
        a worker uses the positions that it leased ahead, or gives them back when nobody new comes.
        Leases that end later belong to clients, which use them up, and are not waited for.
        """
        ends = clock() + LEASED + microseconds(PATIENCE)
        free = sum(part.rounds - part.assigned for part in self._storage.progress(self._key))
        leases = self._storage.leases(self._key)
        return free > sum(len(lease) for lease in leases if lease.expires > ends)


def _not_running(known: Known) -> WrongStateError | None:
    """Why nothing new is assigned; None if something is."""
    try:
        check_running(known.state, known.outside)
    except WrongStateError as error:
        return error
    return None


def checked_unit(
    unit: Any,
    what: str = "the unit",
    purpose: str = "names who gets the variant, such as a visitor's id",
) -> str:
    """Return a unit if databases can keep it: no zero bytes, no halves of characters.

    what, purpose : of another text with the same rules, for the error
    """
    if isinstance(unit, str) and 0 < len(unit) <= LONGEST and "\0" not in unit:
        try:
            unit.encode()
            return unit
        except UnicodeEncodeError:
            pass
    given = "missing" if unit is None else shortened(unit)
    raise InvalidInputError(
        f"{what} is {given}; expected a text of 1 to {LONGEST} characters that {purpose}."
    )


def finite_values(given: Any) -> Values:
    """A reward, or values by the names of metrics, as finite numbers."""
    if isinstance(given, Mapping):
        return {name: finite_number(given[name], f"the value of {name!r}") for name in given}
    return finite_number(given, "the reward")
