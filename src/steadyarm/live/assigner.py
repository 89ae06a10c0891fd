"""Assigner: how units get positions and decisions are carried out, and how reports are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RepeatedRewardError,
    RewardsPendingError,
    RewardTooLateError,
    SteadyArmError,
    UnknownAssignmentError,
    WrongStateError,
)
from steadyarm.live.decisions import decide, is_over
from steadyarm.live.metrics import REWARD, Metric, duration_text, microseconds, unnamed
from steadyarm.live.settings import Settings
from steadyarm.storages.records import (
    LATEST,
    SKEW,
    Assigned,
    AssignmentResult,
    Event,
    Measured,
    Outcome,
    Target,
    in_words,
    to_datetime,
    to_micros,
)
from steadyarm.validation import finite_number
from steadyarm.wording import did_you_mean, shortened

if TYPE_CHECKING:
    from steadyarm.storages.storage import Storage

LONGEST = 512  # characters of a unit, or of the key of an event

Clock = Callable[[], int]  # asked when it is needed, since it may ask the storage


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

Values = float | Mapping[str, float]  # a reward, or values of metrics by their names
ReportStatus = Literal["stored", "repeated", "outside"]  # what became of a reward


class Report(NamedTuple):
    """What is reported of an assignment.

    Attributes
    ----------
    target : the assignment, its id, or the unit
    values : the reward, or values of metrics by their names
    at : when it happened; None for just now
    event : the key of the event that it comes from
    """

    target: LiveAssignment | str
    values: Values
    at: At = None
    event: str | None = None


@dataclass
class Visit:
    """A unit that asks for a variant.

    Attributes
    ----------
    unit : who asks; the error if it is no proper unit, or its attributes or covariates are wrong
    values : its attributes and covariates, by the names of their metrics
    assigned : its assignment, once it has one
    """

    unit: str | InvalidInputError
    values: Mapping[str, float]
    assigned: Assigned | None = None

    @property
    def waiting(self) -> bool:
        """Whether it may get an assignment and has none."""
        return self.assigned is None and isinstance(self.unit, str)


def take_positions(
    storage: Storage, key: int, visits: Sequence[Visit], now: int, new: bool
) -> AssignmentResult:
    """Give visits the assignments of their units in one transaction.

    new : whether units without an assignment get one; if not, the storage is only read
    """
    waiting = [visit for visit in visits if visit.waiting]
    units = [str(visit.unit) for visit in waiting]
    if new:
        values = [visit.values for visit in waiting]
        result = storage.assign(key, units, values if any(values) else (), now=now)
    else:
        result = storage.known(key, units)
    for visit, assigned in zip(waiting, result.assigned, strict=True):
        visit.assigned = assigned
    return result


def not_running(result: AssignmentResult) -> WrongStateError:
    """Why an experiment that is not running assigns nothing."""
    if result.state == "running":
        return WrongStateError("the test is over; it assigns no variants any more.")
    return WrongStateError(
        f"the experiment is {in_words(result.state)}; only a running one assigns variants."
    )


# Decisions: two transactions each, the snapshot and the decision


def open_segment(
    storage: Storage, key: int, settings: Settings, clock: Clock
) -> SteadyArmError | None:
    """Make sure that there are positions; returns the reason if there can be none."""
    while True:
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
        if storage.decide(key, snapshot.experiment.version, decision, now) and decision.opened:
            return None


def close_segments(storage: Storage, key: int, settings: Settings, clock: Clock) -> bool:
    """Let the policy observe the segments that are over; whether there were any."""
    closed = False
    while is_due(storage, key, settings, now := clock()):
        snapshot = storage.snapshot(key)
        decision = decide(settings, snapshot, now, need=False)
        if decision is None:
            break
        if storage.decide(key, snapshot.experiment.version, decision, now):
            closed = True
            # A superseded segment is shorter, and may be over itself.
            if decision.supersede is None:
                break
    return closed


def is_due(storage: Storage, key: int, settings: Settings, now: int) -> bool:
    """Whether a segment is over that the policy has not observed; cheap."""
    return any(is_over(settings, part, now) for part in storage.progress(key, exhausted=True))


# Arguments


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


INSTEAD = {  # of a reward that came too late, by what `missing` says
    "zero": "the visit counts as 0",
    "drop": "the visit counts as the mean of its variant's rewards around it",
    "fail": "there is no verdict without it",
}


def checked_values(settings: Settings, reward: Any, event: str | None) -> dict[str, float]:
    """Checked values by the names of metrics: all are good, or the report is refused.

    The primary metric has an empty name where its value is stored as a plain reward.

    reward : values by the names of metrics, or the value of the primary metric alone
    event : the key of the event, which metrics with several events of a unit need
    """
    known, primary = settings.measured, settings.primary.name
    given = reward if isinstance(reward, Mapping) else {primary: reward}
    if not given:
        raise InvalidInputError(
            "no value is given; expected values by the names of metrics.", field="metrics"
        )
    if event is not None:
        checked_unit(event, "the event", "identifies it, such as the number of an order")
    # A reward beside values of other metrics is stored with them, in one transaction, if storages
    # know its window from its declaration.
    alone = not settings.by_event and (len(given) == 1 or unnamed(settings.metrics))
    found = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidInputError(
                f"{shortened(name)} is no metric that is reported; the metrics are "
                f"{', '.join(known)}{did_you_mean(str(name), tuple(known))}",
                field="metrics",
            )
        metric = known[name]
        if metric.keyed and event is None:
            raise InvalidInputError(
                f"a unit may have several events of the metric {name!r}; give each a key, such as "
                'event="order 17", so that one that is reported twice counts once.',
                field="event",
            )
        if name == primary:
            found["" if alone else name] = settings.check_reward(value)
        else:
            found[name] = metric.check(value)
    return found


@dataclass(frozen=True)
class ReportedEvent:
    """One event of a report, validated.

    Attributes
    ----------
    place : of the report among those of the same call
    shown : its target as it was given
    target : the same, as storages find it
    metric : its name; empty for a plain reward
    value, at, event : of the event; `at` is None for just now
    """

    place: int
    shown: str
    target: Target
    metric: str
    value: float
    at: int | None
    event: str | None

    def as_reward(self) -> Event:
        """The event as `Storage.reward` takes it."""
        if self.at is None:
            return self.target, self.value
        return self.target, self.value, self.at

    def as_measured(self) -> Measured:
        """The event as `Storage.measure` takes it."""
        return Measured(self.target, self.metric, self.value, self.at, self.event)


def refusal(
    settings: Settings, experiment: str, reported: ReportedEvent, outcome: Outcome, now: int
) -> SteadyArmError:
    """The error that says why a storage refused an event."""
    metric = settings.measured[reported.metric] if reported.metric else settings.primary
    target, value, at = reported.shown, reported.value, reported.at
    what = "reward" if metric.name == REWARD else metric.name
    match outcome.status:
        case "unknown":
            return UnknownAssignmentError(
                f"{target!r} is neither the id of an assignment of {experiment!r} nor a unit that "
                "has one; report rewards by the id or the unit of an assignment."
            )
        case "conflict":
            named = reported.metric and reported.event is not None
            of = f" of the event {reported.event!r}" if named else ""
            return RepeatedRewardError(
                f"{target!r} has the {what} {outcome.previous!r}{of} already, {value!r} is "
                "another; the first one counts."
            )
        case "early":
            return InvalidInputError(
                f"the {what} of {target!r} is said to have happened before its assignment; check "
                "its time, and the clock of whoever reported it, and report it again."
            )
    late = _why_too_late(metric, now if at is None else at, outcome, now)
    return RewardTooLateError(
        f"the {what} of {target!r} {late}; it does not count; "
        f"{INSTEAD[metric.missing or 'zero']} (missing={metric.missing!r})."
    )


def _why_too_late(metric: Metric, at: int, outcome: Outcome, now: int) -> str:
    """Which limit a refused reward has exceeded."""
    window, grace = metric.times
    names = ("reward_window", "reward_grace") if metric.role == "primary" else ("window", "grace")
    if window is not None and grace is not None and outcome.created is not None:
        if at > outcome.created + microseconds(window):
            return f"happened after its {names[0]} of {duration_text(window)}"
        if now > outcome.created + microseconds(window + grace):
            limits = f"{duration_text(window)} and the {names[1]} of {duration_text(grace)}"
            return f"arrived after its {names[0]} of {limits}"
    return "arrived after the policy had learned from the visits around it"


def when_of(at: Any, now: int) -> int:
    """When a reward happened, not after `now`; more than `SKEW` in the future is refused."""
    if isinstance(at, timedelta):
        return now - max(0, at // timedelta(microseconds=1))
    when = to_micros(at, now + SKEW)
    if when < now + SKEW:
        return min(when, now)
    moment = to_datetime(to_micros(at, LATEST)).isoformat().replace("+00:00", "Z")
    raise InvalidInputError(
        f"the reward is said to happen at {moment}, which lies in the future; check `at`, and the "
        "clock of whoever reports it."
    )
