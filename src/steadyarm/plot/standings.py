"""Charts with a row for each variant, level, item or policy: estimates and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from steadyarm.designs import Design
from steadyarm.errors import InvalidInputError
from steadyarm.live.effects import Effects
from steadyarm.live.estimates import lift_text
from steadyarm.live.verdict import Verdict, compare_with_control
from steadyarm.plot.spec import (
    ACCENT,
    BAD,
    GOOD,
    OPEN,
    QUIET,
    ROW,
    Rows,
    Spec,
    chart,
    color,
    difference,
    field,
    hover,
    labels,
    layers,
    level,
    limits,
    number,
    shown,
    shown_apart,
)
from steadyarm.segments import Direction
from steadyarm.simulation import Results
from steadyarm.wording import POINTS, amount, counted, labels_of, p_value, percent

DRAWN = 30  # rows; the table has all


def _intervals(
    name: str,
    title: str,
    rows: Rows,
    label: str,
    value: Spec,
    kinds: dict[str, str],
    *,
    summary: str,
    note: str,
    zero: bool = False,
) -> Spec:
    """Points with intervals, one below the other.

    label : the column with the names of the rows
    value : the horizontal axis; the columns low and high are ends of intervals
    kinds : the colour of each value of the column "kind", in the order of the legend
    zero : whether there is a line at zero
    """
    top = rows[:DRAWN]
    columns = ([row[key] for row in top] for key in ("low", "high", value["field"]))
    low, high, middle = (np.array(column, dtype=float) for column in columns)
    ends = limits(low, high, *middle, *([0.0] if zero else []))
    x = value | {"scale": {"zero": False, "nice": False} | ({"domain": ends} if ends else {})}
    y = labels(label, [row[label] for row in top])
    present = [kind for kind in kinds if any(row["kind"] == kind for row in top)]
    tint = color("kind", present, [kinds[kind] for kind in present])
    if len(kinds) == 1:
        tint["legend"] = None
    tips = hover(field(label, "nominal"), x, field("low"), field("high"))
    more = len(rows) - len(top)
    cut = [{"filter": {"field": label, "oneOf": [row[label] for row in top]}}] if more else []
    return chart(
        name,
        title,
        rows,
        summary=summary,
        note=note + (f" {counted(more, 'more row')} in the table." if more else ""),
        height=ROW * max(1, len({row[label] for row in top})),
        transform=cut,
        layer=[
            *([level(0.0, "x")] if zero else []),
            *layers(
                {"y": y, "color": tint},
                {
                    "mark": {"type": "rule", "strokeWidth": 2},
                    "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                    "encoding": {"x": x, "tooltip": tips},
                },
            ),
        ],
    )


# The variants from best to worst, and against the control


def leaderboard(
    verdict: Verdict, names: Sequence[str], direction: Direction, rates: bool = False
) -> Spec:
    """Estimate and interval of each variant, the recommended one on top, then the best.

    names : of the rows of the verdict, or of all variants
    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    names = _of_rows(verdict, names)
    sign = 1.0 if direction == "maximize" else -1.0
    order = np.argsort(-sign * verdict.estimates, kind="stable")  # nan come last
    order = np.concatenate([[verdict.row], order[order != verdict.row]])
    short, alive = _labels(verdict, names, order.tolist()), set(verdict.plausible)
    rows: Rows = [
        {
            "variant": names[k],
            "label": label,
            "estimate": verdict.estimates[k],
            "standard error": verdict.standard_errors[k],
            **({} if verdict.raw is None else {"unadjusted": verdict.raw[k]}),
            "low": verdict.intervals[k, 0],
            "high": verdict.intervals[k, 1],
            "behind by": verdict.gaps[k],
            "behind by, low": verdict.gap_intervals[k, 0],
            "behind by, high": verdict.gap_intervals[k, 1],
            "kind": "leads"
            if k == verdict.row
            else "not ruled out"
            if names[k] in alive
            else "ruled out",
            **_lifts(verdict, k),
        }
        for k, label in zip(order.tolist(), short, strict=True)
    ]
    low, high = verdict.intervals[verdict.row]
    known = np.isfinite(high - low)
    reach = f" (interval {amount(low, rates)} to {amount(high, rates)})" if known else ""
    small = "Small values are good. " if direction == "minimize" else ""
    return _intervals(
        "leaderboard",
        "Variants from best to worst",
        rows,
        "label",
        number("estimate", "estimated reward", rates),
        {"leads": ACCENT, "not ruled out": OPEN, "ruled out": QUIET},
        summary=(
            f"{shown(short[0], 60)} leads with an estimate of "
            f"{amount(verdict.estimates[verdict.row], rates)}{reach}; not ruled out: "
            f"{verdict.possible:,} of {counted(verdict.variants, 'variant')}."
        ),
        note=f"{small}{_lines(verdict, rows)}",
    )


def _lines(verdict: Verdict, rows: Rows) -> str:
    """What the lines are, or why there are none."""
    if not any(np.isfinite([row["low"], row["high"]]).any() for row in rows):
        return f"No intervals: {verdict.no_interval}."
    return f"Lines: {percent(verdict.level)} intervals, for all variants at once."


def _of_rows(verdict: Verdict, names: Sequence[str]) -> Sequence[str]:
    if verdict.shown is not None and len(names) != len(verdict.shown):
        return tuple(names[k] for k in verdict.shown.tolist())
    return names


def _labels(verdict: Verdict, names: Sequence[str], order: Sequence[int]) -> tuple[str, ...]:
    called = names if verdict.shown is not None else labels_of(names)
    return shown_apart([called[k] for k in order])


def intervals_mean(verdict: Verdict) -> str:
    """What the intervals of a verdict say, and what must hold for them."""
    often = " at all times, so you may look as often as you like" if verdict.anytime else ""
    return (
        f"An interval says where the true value of a variant may lie. In {percent(verdict.level)} "
        f"of all tests those of all variants contain the true values{often}. A variant is ruled "
        "out by its difference from the leader, which is known more exactly than the value of "
        f"either; so the intervals of the two may overlap. Assumptions: {verdict.assumption}"
    )


def lifts(
    verdict: Verdict, names: Sequence[str], direction: Direction, rates: bool = False
) -> Spec:
    """Difference of each variant from the control with its interval, the best on top.

    Relative to the control's value if that is defined, else in units of the reward.

    names : of the rows of the verdict, or of all variants
    rates : whether rewards are yes or no, so that differences are percentage points
    """
    against = compare_with_control(verdict, direction)
    if against is None:
        raise InvalidInputError(
            "the test has no control, so there are no differences from it; create it with "
            "control=, the name of a variant.",
            field="control",
        )
    names = _of_rows(verdict, names)
    order = np.argsort(-against.lifts, kind="stable")  # nan come last
    order = order[order != against.control]
    key = "relative lift" if against.share else "lift"
    control = shown(_labels(verdict, names, [against.control])[0])
    better, worse = f"better than {control}", f"worse than {control}"
    short = _labels(verdict, names, order.tolist())
    rows: Rows = []
    for k, label in zip(order.tolist(), short, strict=True):
        columns = _lifts(verdict, k)
        kind = better if against.better[k] else worse if against.worse[k] else "no clear difference"
        rows.append(
            {
                "variant": names[k],
                "label": label,
                "low": columns[f"{key}, low"],
                "high": columns[f"{key}, high"],
                "kind": kind,
                **columns,
            }
        )
    title = f"difference from {control}"
    axis = {"format": "+~%"}
    value = field(key, title=title, axis=axis) if against.share else difference(key, title, rates)
    best = int(order[0])
    return _intervals(
        "lifts",
        f"Difference of each variant from {control}",
        rows,
        "label",
        value,
        {better: GOOD, "no clear difference": QUIET, worse: BAD},
        summary=(
            f"{shown(short[0], 60)} against {control}, the control: "
            f"{lift_text(verdict, best, POINTS if rates else '')}. Of "
            f"{counted(len(order), 'variant')} {int(against.better.sum()):,} clearly better than "
            f"the control, {int(against.worse.sum()):,} clearly worse."
        ),
        note=_lines(verdict, rows),
        zero=True,
    )


def _lifts(verdict: Verdict, k: int) -> dict[str, Any]:
    """Columns that compare with the control, if there is one."""
    if verdict.control is None:
        return {}
    low, high = verdict.lift_intervals[k]
    relative_low, relative_high = verdict.relative_intervals[k]
    return {
        "lift": verdict.lifts[k],
        "lift, low": low,
        "lift, high": high,
        "relative lift": verdict.relative[k],
        "relative lift, low": relative_low,
        "relative lift, high": relative_high,
    }


# Levels of factors, items of bundles


def effects(effects: Effects, rates: bool = False) -> Spec:
    """What each level of each factor adds, or what each item of bundles brings.

    rates : whether rewards are yes or no, so that differences are percentage points
    """
    items = effects.kind == "items"
    names = [
        e.level if items else f"{shown(e.factor, 16)}: {shown(e.level, 20)}" for e in effects.main
    ]
    within = "in the recommended bundle"

    def kind(low: float, high: float, level: str) -> str:
        if items and effects.chosen:
            return within if level in effects.chosen else "not in it"
        return "raises the reward" if low > 0 else "lowers it" if high < 0 else "not clear"

    rows: Rows = [
        {
            "factor": effect.factor,
            "level": effect.level,
            "label": label,
            "mean": effect.mean,
            "difference": effect.difference,
            "low": effect.low,
            "high": effect.high,
            "kind": kind(effect.low, effect.high, effect.level),
        }
        for label, effect in zip(shown_apart(names, 40), effects.main, strict=True)
    ]
    compared_with = "from bundles without it" if items else "from the average of its factor"
    return _intervals(
        "effects",
        "What each item brings, on average over all bundles"
        if items
        else "What each level adds, on average over all others",
        rows,
        "label",
        difference("difference", f"difference {compared_with}", rates),
        {
            "raises the reward": GOOD,
            "not clear": QUIET,
            "lowers it": BAD,
            within: ACCENT,
            "not in it": QUIET,
        },
        summary=_effects_summary(effects, rates),
        note=f"Lines: {percent(effects.level)} intervals, for all rows at once.",
        zero=True,
    )


def _effects_summary(effects: Effects, rates: bool) -> str:
    known = [effect for effect in effects.main if np.isfinite(effect.difference)]
    if not known:
        return "Nothing is known of them yet."
    if effects.kind == "items":
        top, said = known[0], "The best item is"  # from the best to the worst
        name = top.level
    else:
        top = max(known, key=lambda effect: abs(effect.difference))
        said = "The largest effect is that of"
        name = f"{top.factor}: {top.level}"
    clear = sum(effect.low > 0 or effect.high < 0 for effect in effects.main)
    unit = f"{100 * top.difference:+.3g} percentage points" if rates else f"{top.difference:+.4g}"
    return (
        f"{said} {shown(name, 60)}: {unit}. {clear:,} of "
        f"{len(effects.main):,} clearly differ from zero."
    )


def interactions(effects: Effects, rates: bool = False) -> Spec:
    """Mean rewards of the clearest pair of factors; lines that are not parallel interact.

    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    if effects.kind == "items" or not effects.pairs:
        raise InvalidInputError(
            "no pair of factors was measured; interactions need ArmSet.factorial with at least two "
            "factors."
        )
    quantile = scipy.stats.norm.isf((1 - effects.level) / 2)
    rows: Rows = []
    for pair in effects.pairs:
        for (i, j), mean in np.ndenumerate(pair.means):
            reach, value = quantile * pair.errors[i, j], float(mean)
            rows.append(
                {
                    "pair": f"{pair.first} and {pair.second}",
                    "first": effects.factors[pair.first][i],
                    "second": effects.factors[pair.second][j],
                    "mean": value,
                    "low": value - reach,
                    "high": value + reach,
                    "departure": pair.strength,
                    "p-value": pair.p_value,
                }
            )
    top = effects.pairs[0]
    clear = sum(pair.p_value < 1 - effects.level for pair in effects.pairs)
    reward = number("mean", "mean reward", rates, scale={"zero": False})
    x = field("second", "nominal", shown(top.second), sort=None, axis={"labelAngle": 0})
    first = color("first", effects.factors[top.first])
    first["legend"]["title"] = shown(top.first)
    name = f"{top.first} and {top.second}"
    return chart(
        "interactions",
        f"Does the effect of {shown(top.first)} depend on {shown(top.second)}?",
        rows,
        summary=(
            f"{shown(top.first, 60)} and {shown(top.second, 60)} depend on each other the most "
            f"clearly (p = {p_value(top.p_value)}). {clear:,} of "
            f"{counted(len(effects.pairs), 'pair')} clear, each taken by itself."
        ),
        note=(
            "Parallel lines: the effect of one does not depend on the other. Vertical lines: "
            f"{percent(effects.level)} intervals, each by itself. The clearest of "
            f"{counted(len(effects.pairs), 'pair')} is drawn."
        ),
        transform=[{"filter": {"field": "pair", "equal": name}}],
        encoding={"x": x, "color": first},
        layer=[
            {"mark": {"type": "line"}, "encoding": {"y": reward}},
            {
                "mark": "rule",
                "encoding": {"y": {**reward, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {
                    "type": "point",
                    "filled": True,
                    "size": 70,
                    "opacity": 1,
                    "tooltip": True,
                },
                "encoding": {"y": reward},
            },
        ],
    )


# Results of simulations, and designs


def results(found: Sequence[Results], title: str = "") -> Spec:
    """Error probability of each policy with its exact 95 % interval, in the order given."""
    if not found or not all(isinstance(one, Results) for one in found):
        raise InvalidInputError(
            f"results is {found!r}; give a list of what sa.simulate() returned, at least one."
        )
    rows: Rows = []
    for one in found:
        low, high = one.interval()
        rows.append(
            {
                "policy": one.policy,
                "wrong": one.errors,
                "simulated tests": one.trials,
                "share wrong": one.error_rate,
                "low": low,
                "high": high,
                "kind": "",
            }
        )
    best, worst = (pick(found, key=lambda one: one.error_rate) for pick in (min, max))
    return _intervals(
        "results",
        title or "How often each policy was wrong",
        rows,
        "policy",
        number("share wrong", "wrong picks", True),
        {"": ACCENT},
        summary=(
            f"Of {counted(len(found), 'policy', 'policies')} {best.policy} was wrong least often "
            f"({percent(best.error_rate)} of {best.trials:,} tests), {worst.policy} most often "
            f"({percent(worst.error_rate)} of {worst.trials:,})."
        ),
        note="Lines: exact 95 % intervals.",
        zero=True,
    )


def design(design: Design, names: Sequence[str], title: str = "") -> Spec:
    """The share of the rounds that each arm gets, the largest on top; arms without any left out."""
    order = sorted(range(len(design.support)), key=lambda i: -design.shares[i])
    rows: Rows = [{"arm": names[int(design.support[i])], "weight": design.shares[i]} for i in order]
    for row, label in zip(rows, shown_apart([row["arm"] for row in rows]), strict=True):
        row["label"] = label
    top = [row["label"] for row in rows[:DRAWN]]
    more = len(rows) - len(top)
    return chart(
        "design",
        title or "Weights of the design",
        rows,
        summary=(
            f"{counted(len(rows), 'arm')} of {design.size:,} with a positive weight, from "
            f"{percent(rows[-1]['weight'])} to {percent(rows[0]['weight'])}."
        ),
        note=f"{counted(more, 'more arm')} in the table." if more else "",
        height=ROW * len(top),
        transform=[{"filter": {"field": "label", "oneOf": top}}],
        mark={"type": "bar", "color": ACCENT, "tooltip": True},
        encoding={"y": labels("label", top), "x": number("weight", "weight", True)},
    )
