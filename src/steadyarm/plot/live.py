"""Charts of a test over time: estimates, shares of the visits, the lead, and rewards that came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.inference import DriftReport
from steadyarm.live.scorecard import Course, Shares, Waiting
from steadyarm.live.verdict import Verdict
from steadyarm.plot.spec import (
    ACCENT,
    BAD,
    DOT,
    LINES,
    QUIET,
    RULER,
    Measure,
    Rows,
    Spec,
    chart,
    color,
    cut,
    cut_apart,
    difference,
    field,
    hover,
    intervals,
    layers,
    level,
    number,
    plain,
    scale_of,
    thin_out,
)
from steadyarm.wording import counted, labels_of, listed, percent

MOST = 5  # variants that are drawn
BANDS = 2  # of them have a band; more cover each other
POINTS = 200  # of a line
EARLY = 0.25  # share of the visits until which bands may be wider than the picture
COLUMNS = 120  # of the areas of shares
MARKS = 20  # changes of the allocation that are marked
ENOUGH = 0.25  # share of the usual visits of a period from which on it sets the scale
Floats = NDArray[np.float64]
DAY, DATE = re.compile(r"\d{4}-\d\d-\d\d"), "utcFormat(toDate(datum.label), '%-d %b')"


def nearest(verdict: Verdict) -> list[str]:
    """The variants that charts draw: the leader, then those that can still win, by distance."""
    away = np.abs(verdict.estimates - verdict.estimates[verdict.row])
    ruled_out = ~np.isin(verdict.names, verdict.plausible)
    order = np.lexsort((np.nan_to_num(away, nan=np.inf), ruled_out))
    chosen = [verdict.row, *order[order != verdict.row].tolist()][:MOST]
    return [verdict.names[k] for k in sorted(chosen)]


def _labels(names: Sequence[str], picked: Sequence[str] | None) -> dict[int, str]:
    """The picked variants, or the first ones if none of them is here, and what they are called."""
    drawn = [k for k, name in enumerate(names) if name in (picked or ())]
    drawn = drawn or list(range(min(len(names), MOST)))
    labels = labels_of(names)
    return dict(zip(drawn, cut_apart([labels[k] for k in drawn]), strict=True))


def _clock(times: Sequence[datetime] | None, visits: str = "visits") -> Spec:
    """The axis of time, by the clock or by visits."""
    if times is None:
        return field("visits", title=visits, axis={"format": ",d"}, scale={"nice": False})
    days = (times[-1] - times[0]) / timedelta(days=1)
    ticks: Any = {"expr": "max(2, floor(width / 110))"}
    if days > 4:
        ticks = {"interval": "day", "step": max(1, round(days / 8))}
    form = "%-d %b" if days > 4 else "%-d %b %H:%M" if days > 1 else "%H:%M"
    axis = {"format": form, "tickCount": ticks, "labelOverlap": "greedy"}
    return field("time", "temporal", "time (UTC)", scale={"type": "utc", "nice": False}, axis=axis)


def lead_text(
    label: str, estimate: float, ends: Floats, measure: Measure, possible: int, variants: int
) -> str:
    """Which variant leads, and how many can still win."""
    low, high = ends.tolist()
    known = np.isfinite(high - low)
    interval = f" (interval {measure.text(low)} to {measure.text(high)})" if known else ""
    return (
        f"{cut(label, 60)} leads with an estimate of {measure.text(estimate)}{interval}; not "
        f"ruled out: {possible:,} of {counted(variants, 'variant')}."
    )


# Estimates


def estimates(course: Course, picked: Sequence[str] | None, measure: Measure) -> Spec:
    """The estimates of the leading variants over time, with their intervals.

    picked : names of the variants that are drawn
    measure : the measure that is estimated
    """
    names, leader = _labels(course.names, picked), int(course.leaders[-1])
    here = np.ix_(course.rounds >= EARLY * course.rounds[-1], list(names))
    rows: Rows = [
        {
            **({} if course.times is None else {"time": course.times[j]}),
            "visits": course.rounds[j],
            "variant": name,
            "estimate": course.estimates[j, k],
            "low": course.low[j, k],
            "high": course.high[j, k],
            "not ruled out": course.plausible[j, k],
        }
        for j in thin_out(len(course.rounds), POINTS)
        for k, name in names.items()
    ]
    clock = _clock(course.times, "visits in the verdict")
    lone = float(len(course.rounds) == 1)  # a line through one point cannot be seen
    scale = scale_of(course.low[here], course.high[here], course.estimates[here])
    value = number("estimate", measure.title, measure.rates, scale=scale)
    tips = hover(clock, field("variant", "nominal"), value, field("low"), field("high"))
    last = course.estimates[-1]
    rivals = sorted(names, key=lambda k: abs(last[k] - last[leader]))
    banded = [names[k] for k in rivals if np.isfinite(course.low[:, k]).any()][:BANDS]
    level, left = percent(course.level), course.variants - len(names)
    notes = [
        f"Bands: {level} intervals of {listed(banded)}, at all times at once." if banded else "",
        f"{counted(left, 'other variant')} not drawn." if left else "",
    ]
    changes = int(np.count_nonzero(np.diff(course.leaders)))
    changed = {0: "never changed", 1: "changed once"}.get(changes, f"changed {changes:,} times")
    lead = lead_text(
        labels_of(course.names)[leader],
        last[leader],
        np.array([course.low[-1, leader], course.high[-1, leader]]),
        measure,
        int(course.possible[-1]),
        course.variants,
    )
    return chart(
        "estimates",
        "Estimated reward of each variant, from all visits so far",
        rows,
        summary=(f"After {counted(int(course.rounds[-1]), 'visit')} {lead} The leader {changed}."),
        note=" ".join(filter(None, notes)),
        encoding={"x": clock, "color": color("variant", list(names.values()))},
        layer=layers(
            {"y": value},
            {
                "mark": {"type": "area", "opacity": 0.16, "clip": True},
                "transform": [{"filter": {"field": "variant", "oneOf": banded}}],
                "encoding": {"y": {**value, "field": "low"}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "clip": True}},
            {
                "mark": {**DOT, "opacity": lone},
                "encoding": {"tooltip": tips},
            },
        ),
    )


# Shares of the visits


def allocation(shares: Shares, picked: Sequence[str] | None = None) -> Spec:
    """Which share of the visits each variant got; those that are not picked are summed up."""
    names = _labels(shares.names[: shares.single], picked)
    drawn, left = list(names), shares.variants - len(names)
    rest = [counted(left, "other variant")] if left else []
    groups = _groups(shares.rounds)
    planned = np.where(shares.given.sum(axis=1, keepdims=True) == 0, shares.planned * 1e-12, 0.0)
    given = np.add.reduceat(shares.given + planned, groups, axis=0)
    part = given / np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
    others = np.clip(1 - part[:, drawn].sum(axis=1), 0, 1)
    columns = np.column_stack([part[:, drawn], *([others] if left else [])])
    columns = np.append(columns, columns[-1:], axis=0)  # the last area ends where the test does
    bottoms = 1 - np.cumsum(columns, axis=1)
    begin = np.append(0, np.cumsum(shares.rounds))
    stops = [*groups.tolist(), len(shares.rounds)]
    times: list[datetime] | None = None
    if shares.starts is not None and shares.ends is not None:
        times = [*shares.starts, shares.ends[-1]]

    def at(j: int) -> dict[str, Any]:
        return ({} if times is None else {"time": times[j]}) | {"visits": int(begin[j])}

    domain = [*names.values(), *rest]
    rows: Rows = [
        {
            **at(j),
            "variant": name,
            "share": columns[i, k],
            "from": bottoms[i, k],
            "to": bottoms[i, k] + columns[i, k],
        }
        for i, j in enumerate(stops)
        for k, name in enumerate(domain)
    ]
    axis = _clock(times)
    share = number("from", "share of visits", True, scale={"domain": [0, 1]})
    area = {
        "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.85},
        "encoding": {
            "y": share,
            "y2": {"field": "to"},
            "color": color("variant", domain, [*LINES[: len(drawn)], QUIET]),
            "tooltip": hover(axis, field("variant", "nominal"), field("share")),
        },
    }
    turns = [j for j in np.flatnonzero(shares.turns).tolist() if j]
    few = 0 < len(turns) <= MARKS
    marks = [{key: plain(value) for key, value in at(j).items()} for j in turns]
    ruler = {"data": {"values": marks}, "mark": {**RULER, "opacity": 0.6}}
    return chart(
        "allocation",
        "Which share of the visits each variant got",
        rows,
        summary=(
            f"{counted(int(shares.given.sum()), 'visit')} so far. {_largest(shares)} The "
            f"allocation was updated {counted(len(turns), 'time')}."
        ),
        note="Dashed lines: the allocation was updated." if few else "",
        encoding={"x": axis},
        layer=[area, *([ruler] if few else [])],
    )


def _groups(rounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first piece of each area of the picture: short pieces are drawn together."""
    if len(rounds) <= COLUMNS:
        return np.arange(len(rounds))
    before = np.cumsum(rounds) - rounds
    column = (before * COLUMNS) // max(int(rounds.sum()), 1)
    return np.flatnonzero(np.diff(column, prepend=-1))


def _largest(shares: Shares) -> str:
    """The variant with the largest share now."""
    planned = shares.planned[-1, : shares.single].round(4)
    top = np.flatnonzero(planned == planned.max())
    share = percent(float(planned.max()))
    if len(top) > 1:
        return f"{len(top):,} variants now have the largest share, {share} each."
    return f"{cut(labels_of(shares.names)[int(top[0])], 60)} now has the largest share, {share}."


# The lead by day or period


def drift(report: DriftReport, picked: Sequence[str] | None = None, rates: bool = False) -> Spec:
    """The lead of the best variant over its strongest rivals in each period."""
    names, best = _labels(report.names, picked), report.names.index(report.best)
    rivals = {k: name for k, name in names.items() if k != best}
    known = np.isfinite(report.errors) & np.isfinite(report.gap_errors)  # else too little data
    quantile = scipy.stats.norm.isf((1 - report.level) / 2)
    half = np.where(known, quantile * report.gap_errors, np.nan)
    low, high = report.gaps - half, report.gaps + half
    usual = np.median(report.rounds[report.rounds > 0]) if report.rounds.any() else 0
    few = report.rounds < ENOUGH * usual
    rows: Rows = [
        {
            "period": period,
            "visits": report.rounds[j],
            "ahead of": name,
            "lead": report.gaps[j, k],
            "low": low[j, k],
            "high": high[j, k],
            "few visits": few[j],
        }
        for j, period in enumerate(report.periods)
        for k, name in rivals.items()
    ]
    enough = [values[~few][:, [*rivals]] for values in (low, high, report.gaps)]
    y = difference("lead", "lead", rates, scale=scale_of(*enough, 0.0))
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "title": None}
    if all(DAY.fullmatch(period) for period in report.periods):
        axis |= {"labelExpr": DATE, "title": "day (UTC)"}
    x = field("period", "ordinal", "period", sort=None, axis=axis)
    series, taken = field("ahead of", "nominal"), list(rivals.values())
    tint = color("ahead of", list(names.values()))  # as in the other charts
    tint["legend"]["values"] = taken
    shared = {
        "x": x,
        "xOffset": {"field": "ahead of", "scale": {"domain": taken, "paddingOuter": 0.3}},
        "color": tint,
        "opacity": {"condition": {"test": "datum['few visits']", "value": 0.35}, "value": 1},
    }
    tips = hover(x, series, y, field("low"), field("high"), field("visits"))
    pale = " Pale: few visits." if few.any() else ""
    return chart(
        "drift",
        f"Lead of {_best(report)} over the others",
        rows,
        summary=report.verdict,
        note=(
            f"Below zero the other variant was ahead. Lines: {percent(report.level)} intervals."
            f"{pale}"
        ),
        layer=[level(0.0), *layers(shared, *intervals("y", y, tips))],
    )


def _best(report: DriftReport) -> str:
    return cut(labels_of(report.names)[report.names.index(report.best)])


# Rewards that came


def waiting(waiting: Waiting) -> Spec:
    """Visits by day, and how many of them have a reward."""
    kinds = {"visits": waiting.assigned, "reward came": waiting.rewarded}
    if waiting.late.any():
        kinds["came too late"] = waiting.late
    rows: Rows = [
        {"day": day, "what": what, "visits": counts[j], "mean hours": waiting.hours[j]}
        for j, day in enumerate(waiting.days)
        for what, counts in kinds.items()
    ]
    assigned, came = int(waiting.assigned.sum()), int(waiting.rewarded.sum())
    late = int(waiting.late.sum())
    share = percent(came / assigned) if assigned else "none"
    said = [f"Rewards have come for {came:,} of {counted(assigned, 'visit')} ({share})."]
    seen = np.isfinite(waiting.hours) & (waiting.rewarded > 0)
    if seen.any():
        mean = float(np.average(waiting.hours[seen], weights=waiting.rewarded[seen]))
        said.append(f"A reward took {_lasting(mean)} on average.")
    if late:
        said.append(f"{counted(late, 'reward')} came too late.")
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "labelExpr": DATE}
    return chart(
        "waiting",
        "Visits of each day, and their rewards",
        rows,
        summary=" ".join(said),
        note="Rewards of the newest days may still come." if came < assigned else "",
        mark={"type": "bar", "tooltip": True},
        encoding={
            "x": field("day", "ordinal", "day of the visit (UTC)", axis=axis),
            "xOffset": {"field": "what", "sort": list(kinds)},
            "y": field("visits", axis={"format": ",d"}),
            "color": color("what", list(kinds), (QUIET, ACCENT, BAD)),
        },
    )


def _lasting(hours: float) -> str:
    """A time in words.

    Examples
    --------
    >>> _lasting(4.225), _lasting(0.05), _lasting(100.0)
    ('4.2 hours', '3 minutes', '4.2 days')
    """
    units = (("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60), ("seconds", 1 / 3600))
    name, size = next((unit for unit in units if hours >= 2 * unit[1]), units[-1])
    return f"{hours / size:.2g} {name}"
