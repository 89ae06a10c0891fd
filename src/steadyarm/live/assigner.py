"""Arguments and results of an experiment's methods: visits, assignments, reports, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from steadyarm.errors import (
    InvalidInputError,
    RepeatedRewardError,
    RewardTooLateError,
    SteadyArmError,
    UnknownAssignmentError,
    WrongStateError,
)
from steadyarm.live.metrics import REWARD, Metric, duration_text, microseconds
from steadyarm.live.settings import Settings
from steadyarm.storages.records import (
    LATEST,
    SKEW,
    Event,
    ExperimentState,
    Outcome,
    StoredAssignment,
    describe_state,
    to_datetime,
    to_micros,
    validate_unit,
)
from steadyarm.validation import finite_number
from steadyarm.wording import did_you_mean, shortened


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
    value : the value of the variant (`Settings.values`); it is shared, do not change it
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
    """A reward or an event of an assignment.

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
    unit : who asks
    values : its attributes and covariates, by the names of their metrics
    error : why it gets no variant: it is no proper unit, or its attributes or covariates are wrong
    assigned : its assignment, once it has one
    included : whether the unit is in the test's share of the traffic
    preview : the variant that it sees outside of the test, because somebody wants to look at it
    """

    unit: str
    values: Mapping[str, float]
    error: InvalidInputError | None = None
    assigned: StoredAssignment | None = None
    included: bool = True
    preview: str | None = None


# Arguments


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


def validate_values(settings: Settings, reward: Any, event: str | None) -> dict[str, float]:
    """Checked values by the names of metrics: all are good, or the report is refused.

    reward : values by the names of metrics, or the value of the primary metric alone
    event : the key of the event, which metrics with several events of a unit need
    """
    known, primary = settings.measured, settings.primary.name
    given = reward if isinstance(reward, Mapping) else {primary: reward}
    if not given:
        raise InvalidInputError(
            "no value is given; give values by the names of metrics.", field="metrics"
        )
    if event is not None:
        validate_unit(event, "the event", "identifies it, such as the number of an order")
    values = {}
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
                'event="order 17", so that repeated reports count once.',
                field="event",
            )
        values[name] = settings.check_reward(value) if name == primary else metric.check(value)
    return values


# Why something is refused


def not_running(state: ExperimentState) -> WrongStateError:
    """Why an experiment assigns nothing that is not running, or whose test is over."""
    if state == "running":
        return WrongStateError("the test is over and assigns no variants.")
    return WrongStateError(
        f"the experiment is {describe_state(state)}; only a running one assigns variants."
    )


def refusal(
    settings: Settings,
    experiment: str,
    of: LiveAssignment | str,
    event: Event,
    outcome: Outcome,
    now: int,
) -> SteadyArmError:
    """The error that says why a storage refused an event.

    of : the target of its report
    """
    metric = settings.measured.get(event.metric, settings.primary)
    target = of.id if isinstance(of, LiveAssignment) else of
    what = "reward" if metric.name == REWARD else metric.name
    match outcome.status:
        case "archived":
            return WrongStateError("the experiment is archived and accepts no rewards.")
        case "unknown":
            return UnknownAssignmentError(
                f"{target!r} is neither the id of an assignment of {experiment!r} nor a unit that "
                "has one; report rewards by the id or the unit of an assignment."
            )
        case "conflict":
            key = f" of the event {event.key!r}" if metric.keyed else ""
            return RepeatedRewardError(
                f"{target!r} has the {what} {outcome.previous!r}{key} already, {event.value!r} is "
                "another; the first one counts."
            )
        case "early":
            return InvalidInputError(
                f"the {what} of {target!r} is said to have happened before its assignment; check "
                "its time and the clock of the sender, and report it again."
            )
    late = _why_too_late(metric, now if event.at is None else event.at, outcome, now)
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
        f"`at` is {moment}, which lies in the future; check the time and the clock of the sender."
    )
