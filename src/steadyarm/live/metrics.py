"""Metrics of a live test.

One metric is primary: it is the reward that the policy learns from. Secondary metrics and
guardrails do not change the allocation; they are further sums over the same assignments. A metric
is the value of one unit within its window, from one event (a sign-up) or from several (all
purchases). `measured` computes their results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Direction
from steadyarm.validation import check_choice, finite_number, validate_range
from steadyarm.wording import POINTS, did_you_mean, number, percent, shortened

Role = Literal["primary", "secondary", "guardrail"]
Kind = Literal["yes/no", "number", "count", "money"]
Several = Literal["first", "last", "sum", "max"]
Floats = NDArray[np.float64]

REWARD = "reward"  # the name of the primary metric, unless it has one of its own
NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _.-]{0,63}")
LARGEST = 1e100  # rewards; squares of larger ones could not be added up
SECOND = 1_000_000
LONGEST_GRACE = 7 * 86400.0  # seconds, unless more is asked for
DURATION = re.compile(
    r"(\d+\.?\d*|\.\d+)\s*(s|m|h|d|w|seconds?|minutes?|hours?|days?|weeks?)"
)  # the first letter says the unit
SHARE = re.compile(r"(\d+\.?\d*|\.\d+)\s*%")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass
class Metric:
    """One thing that is measured of every unit.

    Parameters
    ----------
    name : letters, digits, spaces, dots, hyphens and underscores, the first a letter
    role : "primary" steers the test; "secondary" is shown; a "guardrail" must not get worse than
        the control by more than its margin
    kind : "yes/no" (0 or 1, shown in percent), "count" and "money" (nothing reported is zero), or
        "number", such as a loading time
    unit : shown behind values, such as "€" or "s"
    direction : whether large ("maximize") or small ("minimize") values are good
    window, grace : within which time after its assignment a value may happen, and how much later
        it may arrive; as `Settings.reward_window` and `reward_grace`
    missing : what a unit without a value counts as: "zero", or "drop" as the mean of its variant's
        other values; by default "zero", except for numbers. The primary metric may have "fail"
    range : (least, largest) value of one event; others are refused
    cap : a unit's value counts as at most this much, so that one huge purchase does not drown all
        others; declared beforehand
    several : what several events of one unit count as: the "first" alone (another value is an
        error), the "last", their "sum" or "max"; each event then has a key of its own
    margin : of a guardrail: how much worse than the control still is acceptable, in units of the
        metric, or as a share of the control's value such as "1%"
    event : the event that the values come from, such as "purchase"; by default one of the metric's
        own name. Several metrics may share an event: of each, a "count" metric counts one, a
        "yes/no" metric that there was one, and others its value
    ratio : (above, below): two other metrics; this one is the sum of the first over the sum of the
        second, such as revenue per order, and is never reported itself

    Examples
    --------
    >>> Metric("revenue", kind="money", unit="€", several="sum", window="7d", cap=500).missing
    'zero'
    >>> Metric("refunds", role="guardrail", direction="minimize", margin="1%").margin_share
    0.01
    >>> Metric("revenue", kind="money", unit="€").format_value(35.125)
    '35.12 €'
    """

    name: str
    role: Role = "secondary"
    kind: Kind = "number"
    unit: str = ""
    direction: Direction = "maximize"
    window: float | str | timedelta | None = None
    grace: float | str | timedelta | None = None
    missing: Literal["zero", "drop", "fail"] | None = None
    range: tuple[float, float] | None = None
    cap: float | None = None
    several: Several = "first"
    margin: float | str | None = None
    event: str | None = None
    ratio: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "a metric", "metrics")
        for name, choices in (("role", Role), ("kind", Kind), ("several", Several)):
            check_choice(getattr(self, name), self._of(name), get_args(choices))
        check_choice(self.direction, self._of("direction"), get_args(Direction))
        if not isinstance(self.unit, str) or len(self.unit) > 12:
            raise InvalidInputError.of(self._of("unit"), self.unit, 'a short text such as "€"')
        self._check_times()
        self.range = range_of(self.range, self._of("range"))
        if self._clicks and self.range is None:
            self.range = (0.0, 1.0)
        self.missing = self.missing or ("drop" if self.kind == "number" else "zero")
        allowed = ("zero", "drop", "fail") if self.role == "primary" else ("zero", "drop")
        check_choice(self.missing, self._of("missing"), allowed)
        if self.cap is not None:
            self.cap = finite_number(self.cap, self._of("cap"))
        self._check_margin()
        if self.event is not None:
            check_name(self.event, f"the event of the metric {self.name!r}", "metrics")
        self._check_ratio()

    def _of(self, field: str) -> str:
        """The name of a field of this metric in errors."""
        return f"{field} of the metric {self.name!r}"

    @property
    def _clicks(self) -> bool:
        return self.kind == "yes/no"

    def clip(self, limits: Floats) -> Floats:
        """Clip limits of means to what a unit's value can be. Unknown limits stay infinite."""
        positive = self.kind == "count" or (self.range is not None and self.range[0] >= 0)
        low, high = self.bounds or (0.0 if positive else -math.inf, math.inf)
        return np.where(np.isfinite(limits), np.clip(limits, low, high), limits)

    def _check_times(self) -> None:
        """Turn window and grace into seconds."""
        if self.window is not None:
            self.window = seconds_of(self.window, self._of("window"))
            if self.grace is None:
                self.grace = usual_grace(self.window)
        elif self.grace is not None:
            raise InvalidInputError(f"the {self._of('grace')} needs a window; give a window, too.")
        if self.grace is not None:
            self.grace = seconds_of(self.grace, self._of("grace"), least=0)

    def _check_margin(self) -> None:
        if self.role != "guardrail":
            if self.margin is not None:
                raise InvalidInputError(
                    f"the metric {self.name!r} has a margin, but only guardrails have one; set "
                    'role="guardrail", or leave the margin out.'
                )
            return
        margin = -1.0
        if isinstance(self.margin, str):
            share = SHARE.fullmatch(self.margin.strip())
            margin = -1.0 if share is None else float(share[1])
        elif self.margin is not None:
            margin = finite_number(self.margin, self._of("margin"))
        if margin < 0:
            expected = 'how much worse than the control is acceptable: an amount, or such as "1%"'
            raise InvalidInputError.of(self._of("margin"), self.margin, expected)

    def _check_ratio(self) -> None:
        if self.ratio is None:
            return
        parts = tuple(self.ratio) if isinstance(self.ratio, (list, tuple)) else ()
        if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            expected = 'the names of two metrics, such as ["revenue", "orders"]'
            raise InvalidInputError.of(self._of("ratio"), self.ratio, expected)
        own_events = self.several != "first" or self.cap is not None or self.event is not None
        if self.role == "primary" or own_events:
            raise InvalidInputError(
                f"the metric {self.name!r} is a ratio; it cannot be primary and has no events or "
                "cap. Declare these for the two metrics."
            )
        self.ratio = parts

    @property
    def margin_share(self) -> float | None:
        """The margin as a share of the control's value; None if it is an amount, or not given."""
        return float(self.margin.strip(" %")) / 100 if isinstance(self.margin, str) else None

    @property
    def times(self) -> tuple[float | None, float | None]:
        """Window and grace in seconds."""
        return cast("tuple[float | None, float | None]", (self.window, self.grace))

    @property
    def bounds(self) -> tuple[float, float] | None:
        """(least, largest) value of one unit, from the range and the cap; None if not declared.

        The range includes 0 if units without a value count as zero.
        """
        if self.cap is None and (self.range is None or self.several == "sum"):
            return None
        low, high = self.range or (0.0, math.inf)
        if self.several == "sum" or self.missing == "zero":
            low, high = min(low, 0.0), max(high, 0.0)
        if self.cap is not None:
            high = self.cap if self.several == "sum" else min(high, self.cap)
        return low, high

    @property
    def keyed(self) -> bool:
        """Whether a unit may have several events, each with a key."""
        return self.several != "first"

    def value_of(self, event: float) -> float:
        """The value in this metric of an event with a value.

        Parameters
        ----------
        event : the value of the event

        Returns
        -------
        float

        Examples
        --------
        >>> Metric("orders", kind="count", event="purchase").value_of(35.0)
        1.0
        """
        if self._clicks:
            return min(event, 1.0)
        return 1.0 if self.kind == "count" and self.event is not None else event

    def check(self, given: Any) -> float:
        """A reported value as a number, if it can occur.

        Parameters
        ----------
        given : the reported value

        Returns
        -------
        float
        """
        what = "the reward" if self.name == REWARD else f"the value of {self.name!r}"
        value = finite_number(given, what)
        low, high = self.range or (-LARGEST, LARGEST)
        if not low <= value <= high:
            where = "what can be added up" if self.range is None else "its range"
            raise InvalidInputError(
                f"{what} is {value:g}, outside of {where} ({low:g} to {high:g}); it was not stored."
            )
        return value

    def format_value(self, value: float) -> str:
        """A mean of this metric as people read it.

        Parameters
        ----------
        value : the mean
        """
        if not math.isfinite(value):
            return "unknown"
        if self._clicks:
            return percent(value)
        text = f"{value:,.2f}" if self.kind == "money" else number(value)
        return f"{text} {self.unit}".rstrip()

    @property
    def difference_unit(self) -> str:
        """The unit of a difference of two means."""
        return POINTS if self._clicks else self.unit

    def plain(self) -> dict[str, Any]:
        """All fields, in numbers, texts and lists; `from_description` reads it, too."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {name: values[name] and list(values[name]) for name in LISTS}

    def to_dict(self) -> dict[str, Any]:
        """The same with times in microseconds, as storages read them."""
        values = self.plain()
        times = {
            name: None if values[name] is None else microseconds(values[name]) for name in TIMES
        }
        return values | times

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The metric that `to_dict` wrote.

        Parameters
        ----------
        data : the result of `to_dict`

        Returns
        -------
        Metric
        """
        times = {name: None if data[name] is None else data[name] / SECOND for name in TIMES}
        return cls(**dict(data) | times)

    @classmethod
    def from_description(cls, given: Any) -> Self:
        """A metric from a table of its fields, as TOML and JSON have them.

        Parameters
        ----------
        given : a table of fields

        Returns
        -------
        Metric
        """
        if isinstance(given, cls):
            return given
        known = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping) or "name" not in given:
            expected = 'metrics, or tables of their fields such as {name = "revenue"}'
            raise InvalidInputError.of("metrics", given, expected)
        if unknown := [key for key in given if key not in known]:
            raise InvalidInputError(
                f"{unknown[0]!r} is not a setting of a metric; the settings are "
                f"{', '.join(known)}{did_you_mean(str(unknown[0]), known)}",
                field="metrics",
            )
        return cls(**given)


LISTS, TIMES = ("range", "ratio"), ("window", "grace")


def check_name(name: Any, what: str, field: str) -> str:
    """Return the name of a metric, an attribute or a covariate, if storages can keep it.

    what : "a metric"; field : the setting that it is in
    """
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    raise InvalidInputError(
        f"{what} is called {shortened(name)}; expected up to 64 letters, digits, spaces, dots, "
        "hyphens and underscores, the first a letter.",
        field=field,
    )


def validate_metrics(given: Iterable[Any]) -> tuple[Metric, ...]:
    """Metrics that belong together: names differ, one is primary at most, ratios are of others."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise InvalidInputError.of("metrics", given, "a list of metrics")
    try:
        metrics = tuple(Metric.from_description(entry) for entry in given)
    except InvalidInputError as error:
        error.field = "metrics"
        raise
    names = [metric.name for metric in metrics]
    primary = [metric.name for metric in metrics if metric.role == "primary"]
    measured = {metric.name for metric in metrics if metric.ratio is None} | {REWARD}
    faults = [f"two metrics are called {one!r}" for one in names if names.count(one) > 1]
    if len(primary) > 1:
        faults.append(f"{primary[0]!r} and {primary[1]!r} are both primary")
    if REWARD in names and primary != [REWARD]:
        faults.append(f"only the primary metric may be called {REWARD!r}")
    if primary and primary != [REWARD]:
        measured.discard(REWARD)
    for metric in metrics:
        if metric.keyed and metric.window is None:
            faults.append(
                f'{metric.name!r} combines several events and needs a window, such as "7d"'
            )
        for part in metric.ratio or ():
            if part not in measured:
                faults.append(
                    f"{metric.name!r} is a ratio of {part!r}, which is not a declared metric"
                )
    if faults:
        raise InvalidInputError(f"metrics do not fit together: {faults[0]}.", field="metrics")
    return metrics


def unnamed(metrics: Iterable[Metric]) -> bool:
    """Whether the primary metric has no entry of its own."""
    return all(metric.role != "primary" for metric in metrics)


def range_of(given: Any, what: str = "reward_range") -> tuple[float, float] | None:
    """A range of values that can be added up; None if there is none."""
    if given is None:
        return None
    low, high = validate_range(given, what)
    if low < -LARGEST or high > LARGEST:
        raise InvalidInputError.of(
            what,
            (low, high),
            f"both within ±{LARGEST:g}; use a larger unit for rewards",
        )
    return low, high


def usual_grace(window: float) -> float:
    """The default grace: how long after its window a reward may still arrive, in seconds."""
    return min(window, LONGEST_GRACE)


def microseconds(seconds: float) -> int:
    """Whole microseconds of a time or duration in seconds."""
    return round(seconds * SECOND)


def duration_text(seconds: float) -> str:
    """A duration in the largest unit of which it is a whole number, but no weeks.

    Examples
    --------
    >>> duration_text(7 * 86400), duration_text(5400), duration_text(0.5)
    ('7d', '90m', '0.5s')
    """
    for unit, length in reversed(UNITS.items()):
        if unit != "w" and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def seconds_of(given: Any, what: str = "reward_window", least: float | None = None) -> float:
    """Seconds from a number, a timedelta or a text; above 0, or exactly `least`."""
    value: Any = given
    if isinstance(given, timedelta):
        value = given.total_seconds()
    elif isinstance(given, str) and (found := DURATION.fullmatch(given.strip())):
        value = float(found[1]) * UNITS[found[2][0]]
    elif isinstance(given, str):
        value = math.nan
    try:
        seconds = finite_number(value, what)
    except InvalidInputError:
        seconds = math.nan
    if not (0 < seconds < 1e10 or seconds == least):
        limit = "above 0" if least is None else "of at least 0"
        expected = f'a time {limit}: seconds, a timedelta, or text such as "90m", "12h", "7 days"'
        raise InvalidInputError.of(what, given, expected)
    return seconds
