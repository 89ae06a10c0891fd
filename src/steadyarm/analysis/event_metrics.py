"""Metrics of two tables: what events say of a unit, as people write it in a line.

    purchase                                   did it happen?
    revenue = sum(purchase) within 14 days
    basket = revenue / count(purchase)
    refunds = count(refund), minimize

Names, directions, windows and caps are those of live tests, see `steadyarm.live.metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from steadyarm.errors import InvalidInputError
from steadyarm.live.metrics import DURATION, check_name, duration_text, seconds_of
from steadyarm.segments import Direction
from steadyarm.validation import finite_number
from steadyarm.wording import shortened

Kind = Literal["conversion", "count", "sum", "max"]
KINDS: tuple[Kind, ...] = get_args(Kind)

FORMS = (
    'expected the name of an event, such as "purchase", or NAME = conversion(EVENT), count(EVENT), '
    "sum(EVENT), max(EVENT) or the ratio of two of these, such as basket = sum(purchase) / "
    'count(purchase); then, if wanted, "within 14 days", "capped at 500" and "minimize"'
)
CALL = re.compile(rf"({'|'.join(KINDS)})\s*\(([^()]*)\)", re.IGNORECASE)
WITHIN = rf"within\s+(?P<window>{DURATION.pattern})"
CAPPED = r"capped\s+at\s+(?P<cap>\S+)"
ENDING = re.compile(
    rf"(?:^|[\s,]\s*)(?:{WITHIN}|{CAPPED}|(?P<direction>minimize|maximize))\s*$", re.IGNORECASE
)


@dataclass(frozen=True)
class Measure:
    """One number of every unit, made of its events.

    Attributes
    ----------
    kind : "conversion" (1 if there is an event, else 0), "count" of events, "sum" of their values,
        or the largest of them, "max"; without any event all of these are 0
    event : its name; None for every row of the table of events
    window : seconds after the first exposure within which events count; None for all later ones
    cap : larger values of a unit count as this much
    """

    kind: Kind
    event: str | None
    window: float | None = None
    cap: float | None = None

    @property
    def text(self) -> str:
        """As people write it."""
        within = "" if self.window is None else f" within {duration_text(self.window)}"
        cap = "" if self.cap is None else f" capped at {self.cap:g}"
        return f"{self.kind}({self.event or ''}){within}{cap}"


@dataclass(frozen=True)
class EventMetric:
    """A metric of two tables.

    Attributes
    ----------
    name : of the metric
    above : what is measured
    below : if the metric is a ratio, what it is divided by: the sum of `above` over the sum of
        `below`
    direction : whether large or small values are good
    """

    name: str
    above: Measure
    below: Measure | None = None
    direction: Direction = "maximize"

    @property
    def window(self) -> float | None:
        """Seconds after the first exposure until the metric is final; None if it never is."""
        windows = [part.window for part in self.parts]
        known = [window for window in windows if window is not None]
        return max(known) if len(known) == len(windows) else None

    @property
    def parts(self) -> tuple[Measure, ...]:
        """What has to be measured."""
        return (self.above,) if self.below is None else (self.above, self.below)

    @property
    def text(self) -> str:
        """What is measured, as people write it."""
        return " / ".join(part.text for part in self.parts)


def event_metrics(
    given: Any, window: Any = None, direction: Direction = "maximize"
) -> tuple[EventMetric, ...]:
    """The metrics that were given, as texts or as a mapping of names to what they are.

    Parameters
    ----------
    window, direction : of metrics that have none of their own

    Examples
    --------
    >>> found = event_metrics(["purchase", "basket = sum(purchase) / purchase"], "7 days")
    >>> [metric.text for metric in found]
    ['conversion(purchase) within 7d', 'sum(purchase) within 7d / conversion(purchase) within 7d']
    >>> [refunds] = event_metrics({"refunds": "count(refund) within 2w, minimize"})
    >>> refunds.window, refunds.direction
    (1209600.0, 'minimize')
    """
    usual = None if window is None else seconds_of(window, "window")
    if isinstance(given, Mapping):
        texts = [f"{name} = {text}" for name, text in given.items()]
    elif isinstance(given, str):
        texts = [given]
    elif isinstance(given, Iterable):
        texts = list(given)
    else:
        texts = []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidInputError(f"metrics is {shortened(given)}; {FORMS}.", field="metrics")
    found: dict[str, EventMetric] = {}
    for text in texts:
        metric = _metric(text, found, usual, direction)
        if metric.name in found:
            raise InvalidInputError(f"two metrics are called {metric.name!r}.", field="metrics")
        found[metric.name] = metric
    return tuple(found.values())


def _metric(
    text: str, known: Mapping[str, EventMetric], window: float | None, direction: Direction
) -> EventMetric:
    rest, cap, seen = text.strip(), None, set()
    while (ending := ENDING.search(rest)) is not None:
        said = next(name for name in ("window", "cap", "direction") if ending[name])
        if said in seen:
            raise _wrong(text, f"says twice what its {said} is")
        seen.add(said)
        if said == "window":
            window = seconds_of(ending["window"], "window")
        elif said == "cap":
            cap = finite_number(_number(ending["cap"]), f"the cap of the metric {text!r}")
        else:
            direction = cast(Direction, ending["direction"].lower())
        rest = rest[: ending.start()].rstrip(" ,")
    name, equals, what = (part.strip() for part in rest.partition("="))
    check_name(name, "a metric", "metrics")
    if not equals:
        return EventMetric(name, Measure("conversion", name, window, cap), None, direction)
    if (call := CALL.fullmatch(what)) is not None:
        return EventMetric(name, _measure(call, window, cap), None, direction)
    above, below = _halves(what, text)
    if cap is not None:
        raise _wrong(text, "is a ratio with a cap; give the cap to a metric that it is made of")
    parts = [_part(half.strip(), known, window, text) for half in (above, below)]
    return EventMetric(name, parts[0], parts[1], direction)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _measure(call: re.Match[str], window: float | None, cap: float | None = None) -> Measure:
    kind, event = call[1].lower(), call[2].strip()
    if len(event) > 1 and event[0] == event[-1] and event[0] in "'\"":
        event = event[1:-1]
    return Measure(cast(Kind, kind), event if event not in ("", "*") else None, window, cap)


def _halves(what: str, text: str) -> tuple[str, str]:
    """What a ratio is made of; a stroke in the name of an event is none."""
    depth = 0
    for place, letter in enumerate(what):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "/" and depth == 0:
            return what[:place], what[place + 1 :]
    raise _wrong(text, "cannot be read")


def _part(half: str, known: Mapping[str, EventMetric], window: float | None, text: str) -> Measure:
    """A half of a ratio: a measure, the name of an earlier metric, or an event that happened."""
    if (call := CALL.fullmatch(half)) is not None:
        return _measure(call, window)
    if half not in known:
        raise _wrong(
            text, f"is a ratio of {half!r}, which is neither a measure nor an earlier metric"
        )
    if known[half].below is not None:
        raise _wrong(text, f"is a ratio of {half!r}, which is a ratio itself")
    return known[half].above


def _wrong(text: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"the metric {shortened(text)} {why}; {FORMS}.", field="metrics")
