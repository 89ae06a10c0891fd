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
from steadyarm.plot.spec import (
    ACCENT,
    BAD,
    LINES,
    QUIET,
    RULER,
    Rows,
    Spec,
    chart,
    color,
    difference,
    field,
    hover,
    layers,
    level,
    limits,
    number,
    shown,
    shown_apart,
    thinned,
)
from steadyarm.wording import amount, counted, labels_of, listed, p_value, percent

MOST = 5  # variants that are drawn
BANDS = 2  # of them have a band; more cover each other
POINTS = 200  # of a line
EARLY = 0.25  # share of the visits until which bands may be wider than the picture
COLUMNS = 120  # of the areas of shares
MARKS = 20  # changes of the allocation that are marked
ENOUGH = 0.25  # share of the usual visits of a period from which on it sets the scale
DAY, DATE = re.compile(r"\d{4}-\d\d-\d\d"), "utcFormat(toDate(datum.label), '%-d %b')"

Floats = NDArray[np.float64]


def nearest(estimates: Floats, first: int, may_win: NDArray[np.bool_]) -> list[int]:
    """The variants that charts draw: the first, then those that can still win, by distance."""
    away = np.nan_to_num(np.abs(estimates - estimates[first]), nan=np.inf)
    order = np.lexsort((away, ~may_win))
    return sorted([first, *(int(k) for k in order if k != first)][:MOST])


def places(names: Sequence[str], picked: Sequence[str] | None) -> list[int]:
    """Where the picked variants are among the names; the first ones if there is none of them."""
    if picked is not None:
        found = {name: k for k, name in enumerate(names)}
        known = [found[name] for name in picked if name in found]
        if known:
            return known
    return list(range(min(len(names), MOST)))


def _legend(names: Sequence[str], drawn: Sequence[int]) -> dict[int, str]:
    """What the drawn variants are called."""
    labels = labels_of(names)
    return dict(zip(drawn, shown_apart([labels[k] for k in drawn]), strict=True))


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


# Estimates


def estimates(course: Course, picked: Sequence[str] | None = None, rates: bool = False) -> Spec:
    """How the estimates of the leading variants settled, with their intervals.

    picked : names of the variants that are drawn
    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    drawn = places(course.names, picked)
    names, leader = _legend(course.names, drawn), int(course.leaders[-1])
    late = course.rounds >= EARLY * course.rounds[-1]
    here = np.ix_(late, drawn)
    ends = limits(
        course.low[here].ravel(), course.high[here].ravel(), *course.estimates[here].ravel()
    )
    rows: Rows = [
        {
            **({} if course.times is None else {"time": course.times[j]}),
            "visits": course.rounds[j],
            "variant": names[k],
            "estimate": course.estimates[j, k],
            "low": course.low[j, k],
            "high": course.high[j, k],
            "not ruled out": course.plausible[j, k],
        }
        for j in thinned(len(course.rounds), POINTS)
        for k in drawn
    ]
    scale = {"zero": False, "nice": False} | ({"domain": ends} if ends else {})
    clock = _clock(course.times, "visits in the verdict")
    value = number("estimate", "estimated reward", rates, scale=scale)
    low, high = field("low"), field("high")
    band: Spec = {
        "mark": {"type": "area", "opacity": 0.16, "clip": True},
        "encoding": {"y": {**value, "field": "low"}, "y2": {"field": "high"}},
    }
    rivals = sorted(
        drawn, key=lambda k: abs(course.estimates[-1, k] - course.estimates[-1, leader])
    )
    banded = [k for k in rivals if np.isfinite(course.low[:, k]).any()][:BANDS]
    band["transform"] = [{"filter": {"field": "variant", "oneOf": [names[k] for k in banded]}}]
    note = ""
    if banded:
        owners = listed([names[k] for k in banded])
        note = f"Bands: {percent(course.level)} intervals of {owners}, at all times at once."
    left = course.variants - len(drawn)
    return chart(
        "estimates",
        "Estimated reward of each variant, from all visits so far",
        rows,
        summary=_estimates_summary(course, labels_of(course.names)[leader], rates),
        note=note + (f" {counted(left, 'other variant')} not drawn." if left else ""),
        encoding={"x": clock, "color": color("variant", list(names.values()))},
        layer=[
            band,
            {"mark": {"type": "line", "clip": True}, "encoding": {"y": value}},
            {
                "mark": {"type": "point", "opacity": 0, "size": 80, "clip": True},
                "encoding": {
                    "y": value,
                    "tooltip": hover(clock, field("variant", "nominal"), value, low, high),
                },
            },
        ],
    )


def _estimates_summary(course: Course, label: str, rates: bool) -> str:
    k = int(course.leaders[-1])
    low, high = course.low[-1, k], course.high[-1, k]
    known = np.isfinite(high - low)
    reach = f" (interval {amount(low, rates)} to {amount(high, rates)})" if known else ""
    changes = int(np.count_nonzero(np.diff(course.leaders)))
    times = {0: "never changed", 1: "changed once"}.get(changes, f"changed {changes:,} times")
    return (
        f"After {counted(int(course.rounds[-1]), 'visit')} {shown(label, 60)} leads with an "
        f"estimate of {amount(course.estimates[-1, k], rates)}{reach}; not ruled out: "
        f"{int(course.possible[-1]):,} of {counted(course.variants, 'variant')}. The leader "
        f"{times}."
    )


def plausible(course: Course) -> Spec:
    """How many variants are not ruled out, as the test went on."""
    counts = course.possible
    changes = (1 + np.flatnonzero(np.diff(counts))).tolist()
    rows: Rows = [
        {
            **({} if course.times is None else {"time": course.times[j]}),
            "visits": course.rounds[j],
            "not ruled out": counts[j],
        }
        for j in sorted({*thinned(len(counts), POINTS), *changes})
    ]
    clock = _clock(course.times, "visits in the verdict")
    most = {"domain": [0, int(counts.max()) + 1], "nice": False}
    whole = {"format": "d", "tickMinStep": 1}
    value = field("not ruled out", title="variants", scale=most, axis=whole)
    return chart(
        "plausible",
        "How many variants are not ruled out",
        rows,
        summary=(
            f"{int(counts[-1]):,} of {counted(course.variants, 'variant')} not ruled out after "
            f"{counted(int(course.rounds[-1]), 'visit')}."
        ),
        note="Ruled out: the interval of the difference from another variant excludes zero.",
        mark={"type": "line", "interpolate": "step-after", "color": ACCENT, "tooltip": True},
        encoding={"x": clock, "y": value},
    )


# Shares of the visits


def allocation(shares: Shares, picked: Sequence[str] | None = None) -> Spec:
    """Which share of the visits each variant got; those that are not picked are summed up."""
    drawn = [k for k in places(shares.names, picked) if k < shares.single]
    names, left = _legend(shares.names, drawn), shares.variants - len(drawn)
    rest = counted(left, "other variant")
    groups = _groups(shares.rounds)
    planned = np.where(shares.given.sum(axis=1, keepdims=True) == 0, shares.planned * 1e-12, 0.0)
    given = np.add.reduceat(shares.given + planned, groups, axis=0)
    part = given / np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
    begin = np.cumsum(shares.rounds) - shares.rounds
    stops = [*begin[groups].tolist(), int(shares.rounds.sum())]
    times: list[datetime] | None = None
    if shares.starts is not None and shares.ends is not None:
        times = [*(shares.starts[j] for j in groups), shares.ends[-1]]
    rows: Rows = []
    for i, visits in enumerate(stops):  # the last area ends where the test does
        own = part[min(i, len(part) - 1)]
        clock = {} if times is None else {"time": times[i]}
        columns = [(names[k], own[k]) for k in drawn]
        if left:
            columns.append((rest, own.sum() - own[drawn].sum()))
        top = np.cumsum([1.0, *(-share for _, share in columns)])
        rows += [
            {**clock, "visits": visits, "variant": v, "share": s, "from": top[k + 1], "to": top[k]}
            for k, (v, s) in enumerate(columns)
        ]
    turns = [int(j) for j in np.flatnonzero(shares.turns) if j]
    domain = [*names.values(), *([rest] if left else [])]
    axis = _clock(times)
    tint = color("variant", domain, [*LINES[: len(drawn)], QUIET])
    share = number("from", "share of visits", True, scale={"domain": [0, 1]})
    tips = hover(axis, field("variant", "nominal"), field("share"))
    marks = [
        {**({} if shares.starts is None else {"time": shares.starts[j].isoformat()}),
         "visits": int(begin[j])}
        for j in turns
    ]  # fmt: skip
    ruler = {"data": {"values": marks}, "mark": {**RULER, "opacity": 0.6}}
    area = {
        "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.85},
        "encoding": {"y": share, "y2": {"field": "to"}, "color": tint, "tooltip": tips},
    }
    few = 0 < len(turns) <= MARKS
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
    """Where each area of the picture begins: short pieces are drawn together."""
    if len(rounds) <= COLUMNS:
        return np.arange(len(rounds))
    before = np.cumsum(rounds) - rounds
    column = (before * COLUMNS) // max(int(rounds.sum()), 1)
    return np.flatnonzero(np.diff(column, prepend=-1))


def _largest(shares: Shares) -> str:
    """Who has the largest share now."""
    planned = shares.planned[-1, : shares.single].round(4)
    top = np.flatnonzero(planned == planned.max())
    share = percent(float(planned.max()))
    if len(top) > 1:
        return f"{len(top):,} variants now have the largest share, {share} each."
    return f"{shown(labels_of(shares.names)[int(top[0])], 60)} now has the largest share, {share}."


# By day or period


def drift(report: DriftReport, picked: Sequence[str] | None = None, rates: bool = False) -> Spec:
    """The lead of the best variant over its strongest rivals in each period."""
    best = report.names.index(report.best)
    drawn = places(report.names, picked)
    known = np.isfinite(report.errors) & np.isfinite(report.gap_errors)  # else too little data
    quantile = scipy.stats.norm.isf((1 - report.level) / 2)
    reach = np.where(known, quantile * report.gap_errors, np.nan)
    return _by_period(
        report,
        {"lead": report.gaps, "low": report.gaps - reach, "high": report.gaps + reach},
        drawn,
        [k for k in drawn if k != best],
        difference("lead", "lead", rates, scale={"zero": True}),
        name="drift",
        series="ahead of",
        title=f"Lead of {_best(report)} over the others",
        summary=_drift_summary(report),
        note=f"Below zero the other variant was ahead. Lines: {percent(report.level)} intervals.",
        also=[level(0.0)],
    )


def _best(report: DriftReport) -> str:
    return shown(labels_of(report.names)[report.names.index(report.best)])


def _drift_summary(report: DriftReport) -> str:
    if len(report.periods) < 2:
        return "There is one period only, so nothing can be said about drift."
    gaps = "changed" if report.gaps_move else "were not seen to change"
    common = "moved" if report.level_moves else "was not seen to move"
    behind = sum(leader != report.best for leader in report.leaders)
    return (
        f"Differences between variants {gaps} over time (p = {p_value(report.gap_p_value)}); the "
        f"level common to all {common} (p = {p_value(report.level_p_value)}), which is harmless. "
        f"{_best(report)}, the best on average, was behind in {behind:,} of "
        f"{len(report.periods):,} periods."
    )


def daily(report: DriftReport, picked: Sequence[str] | None = None, rates: bool = False) -> Spec:
    """What each period said on its own."""
    drawn, low, high = places(report.names, picked), *np.moveaxis(report.intervals, 2, 0)
    ahead = sum(leader == report.best for leader in report.leaders)
    return _by_period(
        report,
        {"estimate": report.estimates, "low": low, "high": high},
        drawn,
        drawn,
        number("estimate", "estimated reward", rates, scale={"zero": False}),
        name="daily",
        series="variant",
        title="Estimated reward in each period by itself",
        summary=(
            f"{_best(report)}, the best over the whole test, was ahead in {ahead:,} of "
            f"{len(report.periods):,} periods."
        ),
        note=f"Lines: {percent(report.level)} intervals. Periods differ by chance alone, too.",
    )


def _by_period(
    report: DriftReport,
    columns: dict[str, Floats],
    drawn: Sequence[int],
    series_drawn: Sequence[int],
    value: Spec,
    *,
    name: str,
    series: str,
    title: str,
    summary: str,
    note: str,
    also: Sequence[Spec] = (),
) -> Spec:
    """Points with intervals beside each other in every period.

    drawn : variants that have a colour, as in the other charts; `series_drawn` of them have points
    """
    names = _legend(report.names, drawn)
    usual = np.median(report.rounds[report.rounds > 0]) if report.rounds.any() else 0
    few = report.rounds < ENOUGH * usual
    rows: Rows = [
        {
            "period": report.periods[j],
            "visits": report.rounds[j],
            series: names[k],
            **{key: values[j, k] for key, values in columns.items()},
            "few visits": few[j],
        }
        for j in range(len(report.periods))
        for k in series_drawn
    ]
    scaled = [values[~few][:, list(series_drawn)].ravel() for values in columns.values()]
    ends = limits(scaled[1], scaled[2], *scaled[0], *([0.0] if also else []))
    y = value | {"scale": value["scale"] | {"nice": False} | ({"domain": ends} if ends else {})}
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "title": None}
    if all(DAY.fullmatch(period) for period in report.periods):
        axis |= {"labelExpr": DATE, "title": "day (UTC)"}
    x = field("period", "ordinal", "period", sort=None, axis=axis)
    taken = [names[k] for k in series_drawn]
    tint = color(series, list(names.values()))
    tint["legend"] = {**tint["legend"], "values": taken}
    if few.any():
        note += " Pale: few visits."
    pale = {"condition": {"test": "datum['few visits']", "value": 0.35}, "value": 1}
    tips = hover(x, field(series, "nominal"), y, field("low"), field("high"), field("visits"))
    offset = {"field": series, "scale": {"domain": taken, "paddingOuter": 0.3}}
    return chart(
        name,
        title,
        rows,
        summary=summary,
        note=note,
        layer=[
            *also,
            *layers(
                {"x": x, "xOffset": offset, "color": tint, "opacity": pale},
                {
                    "mark": {"type": "rule", "clip": True, "strokeWidth": 1.5},
                    "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
                },
                {
                    "mark": {
                        "type": "point",
                        "filled": True,
                        "size": 40,
                        "opacity": 1,
                        "clip": True,
                    },
                    "encoding": {"y": y, "tooltip": tips},
                },
            ),
        ],
    )


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
    seen = np.isfinite(waiting.hours) & (waiting.rewarded > 0)
    slow = ""
    if seen.any():
        mean = float(np.average(waiting.hours[seen], weights=waiting.rewarded[seen]))
        slow = f" A reward took {_lasting(mean)} on average."
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "labelExpr": DATE}
    kind = color("what", list(kinds), (QUIET, ACCENT, BAD)[: len(kinds)])
    return chart(
        "waiting",
        "Visits of each day, and their rewards",
        rows,
        summary=(
            f"Rewards have come for {came:,} of {counted(assigned, 'visit')} "
            f"({percent(came / assigned) if assigned else 'none'}).{slow}"
            + (f" {counted(late, 'reward')} came too late." if late else "")
        ),
        note="Rewards of the newest days may still come." if came < assigned else "",
        mark={"type": "bar", "tooltip": True},
        encoding={
            "x": field("day", "ordinal", "day of the visit (UTC)", axis=axis),
            "xOffset": {"field": "what", "sort": list(kinds)},
            "y": field("visits", axis={"format": ",d"}),
            "color": kind,
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
