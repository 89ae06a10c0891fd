"""What is reported of assignments: whether it can be stored, and why it was refused.

Rewards that are simply stored pass `Experiment.tell_many` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from steadyarm.errors import (
    InvalidInputError,
    RepeatedRewardError,
    RewardTooLateError,
    SteadyArmError,
    UnknownAssignmentError,
)
from steadyarm.live.assignments import checked_unit
from steadyarm.live.metrics import REWARD, Metric, duration_text, microseconds, unnamed
from steadyarm.live.settings import Settings
from steadyarm.storages.records import (
    LATEST,
    SKEW,
    Event,
    Measured,
    Outcome,
    Target,
    to_datetime,
    to_micros,
)
from steadyarm.wording import did_you_mean, shortened

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
