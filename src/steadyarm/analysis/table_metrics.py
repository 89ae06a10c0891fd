"""Analyses of metrics of two tables: one of each, by the way that any log is analysed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.event_metrics import EventMetric
from steadyarm.analysis.exposures import Contaminated, Joined, join_tables
from steadyarm.analysis.log import ATTRIBUTE, Log
from steadyarm.analysis.result import Analysis
from steadyarm.analysis.two_tables import Tables
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.estimators import is_one_hot
from steadyarm.inference.health import HealthReport
from steadyarm.live.metrics import duration_text
from steadyarm.segments import Direction
from steadyarm.wording import counted

# of a log: direction, level, by level of segments, whether the range of rewards is of this one
Verdict = Callable[[Log, Direction, float, bool, bool], Analysis]
Floats = NDArray[np.float64]


def analyze_tables(
    tables: Tables,
    metrics: Sequence[EventMetric],
    verdict: Verdict,
    level: float,
    contaminated: Contaminated = "first",
) -> Analysis:
    """The analysis of the first metric, which has those of all in `metrics`.

    Intervals of the first metric have the level by themselves, those of all others at once.

    verdict : analyses a log
    """
    joined = join_tables(tables, metrics, contaminated)
    further = max(len(metrics) - 1, 1)
    found: dict[str, Analysis] = {}
    missing = []
    for place, metric in enumerate(metrics):
        share = level if place == 0 else 1 - (1 - level) / further
        try:
            found[metric.name] = _analysis(joined, metric, verdict, share, place == 0)
        except RewardsPendingError as error:
            if place == 0:
                raise InvalidInputError(str(error)) from None
            missing.append(f"There is no result of {metric.name}: {error}")
    primary = found[metrics[0].name]
    said = []
    if further > 1:
        said = [f"Intervals of the {further} further metrics hold at once."]
    return replace(primary, metrics=found, notes=(*primary.notes, *said, *missing))


def _analysis(
    joined: Joined, metric: EventMetric, verdict: Verdict, level: float, first: bool
) -> Analysis:
    """The analysis of one metric."""
    for part in metric.parts:
        if part in joined.empty:
            raise RewardsPendingError(joined.empty[part])
    table, waiting = joined.mature(metric)
    above = joined.value(table, metric.above)
    if metric.below is None:
        found = _verdict_on(joined, table, above, metric, verdict, level, first)
    else:
        below = joined.value(table, metric.below)
        parts = [
            _verdict_on(joined, table, part, metric, verdict, level, False)
            for part in (above, below)
        ]
        reward = _linearised(joined.log(table), table, metric, parts, above, below)
        found = _verdict_on(joined, table, reward, metric, verdict, level, False)
        sums = [part.means * part.counts for part in parts]
        with np.errstate(invalid="ignore", divide="ignore"):
            found = replace(found, means=sums[0] / sums[1])
    health = HealthReport((*found.health.findings, joined.exposed.finding))
    notes = (
        *_about(joined, metric, waiting),
        *joined.exposed.notes,
        *joined.tables.notes,
        *found.notes,
    )
    return replace(found, metric=metric.name, health=health, notes=notes)


def _verdict_on(
    joined: Joined,
    table: Any,
    reward: Any,
    metric: EventMetric,
    verdict: Verdict,
    level: float,
    bounded: bool,
) -> Analysis:
    out = [name for name in table.columns if name.startswith("measure ")]
    log = joined.log(table.mutate(reward=reward).drop(*out))
    log = replace(log, columns={**log.columns, "reward": metric.name})
    return verdict(log, metric.direction, level, metric.below is None, bounded)


def _about(joined: Joined, metric: EventMetric, waiting: int) -> list[str]:
    said = [f"{metric.name} is {metric.text}; a unit without such an event counts as 0."]
    if metric.below is not None:
        said = [
            f"{metric.name} is {metric.text}: the sum over all units of the one over the sum "
            "of the other, with errors by the delta method."
        ]
        if any(name.startswith(ATTRIBUTE) for name in joined.table.columns):
            said.append(f"{metric.name} is not split by segments, as it is a ratio.")
    if metric.window is None:
        said.append(
            "There is no window: all events after the first exposure count, and units that "
            "came late had less time."
        )
    elif waiting:
        who = counted(waiting, "unit was", "units were")
        said.append(
            f"{who} exposed less than {duration_text(metric.window)} before the data end "
            f"({joined.exposed.end:%Y-%m-%d %H:%M}) and left out, since more may come."
        )
    return said


def _linearised(
    log: Log,
    table: Any,
    metric: EventMetric,
    parts: Sequence[Analysis],
    above: Any,
    below: Any,
) -> Any:
    """R + (a - R b) / B of every unit: a mean of these is the ratio R = A / B of two means.

    Its error is that of the ratio to first order, the delta method. See `live.measured`, which has
    the same for live tests.
    """
    import ibis

    from steadyarm.live.measured import ratio_widening

    arms = parts[0].arms
    if not is_one_hot(arms.coordinates) or parts[0].intervals.shown is not None:
        raise InvalidInputError(
            f"{metric.name} is a ratio, which follows no linear model; analyse variants that share "
            "no features, and not too many of them.",
            field="metrics",
        )
    numerators, denominators = (part.estimates for part in parts)
    if not (denominators > 0).all():
        nothing = arms.names[int(np.argmin(denominators))]
        raise RewardsPendingError(
            f"{metric.name} is divided by {metric.parts[1].text}, of which {nothing} has nothing."
        )
    named = table.mutate(below=below)
    rows = log.fetch(
        named.group_by("arm").aggregate(
            total=named.below.sum(), squares=(named.below * named.below).sum()
        )
    )
    by_arm = {row["arm"]: row for row in rows}
    sums, squares = (
        np.array([float(by_arm[arm][key]) for arm in arms.names]) for key in ("total", "squares")
    )
    widening = ratio_widening(metric.name, metric.parts[1].text, sums, squares)

    def by(values: Floats) -> Any:
        each = zip(arms.names, values.tolist(), strict=True)
        return ibis.cases(*((table.arm == name, value) for name, value in each), else_=0.0)

    ratio = by(numerators / denominators)
    return ratio + (above - ratio * below) * by(widening / denominators)
