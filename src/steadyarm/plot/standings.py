"""Charts with a row for each variant, level, item or policy: estimates and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from steadyarm.designs import Design
from steadyarm.errors import InvalidInputError
from steadyarm.live.effects import Effect, Effects
from steadyarm.live.estimates import lift_text
from steadyarm.live.verdict import Verdict, compare_with_control
from steadyarm.plot.live import lead_text
from steadyarm.plot.spec import (
    ACCENT,
    BAD,
    GOOD,
    OPEN,
    QUIET,
    ROW,
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
    labels,
    layers,
    level,
    number,
    p_text,
    scale_of,
)
from steadyarm.segments import Direction
from steadyarm.simulation import Results
from steadyarm.wording import POINTS, counted, labels_of, percent

DRAWN = 30  # rows; the table has all
UNCLEAR = "no clear difference"


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
    names = [row[label] for row in top]
    columns = ([row[key] for row in top] for key in ("low", "high", value["field"]))
    x = value | {"scale": scale_of(*columns, *([0.0] if zero else []))}
    present = [kind for kind in kinds if any(row["kind"] == kind for row in top)]
    tint = color("kind", present, [kinds[kind] for kind in present])
    if len(kinds) == 1:
        tint["legend"] = None
    tips = hover(field(label, "nominal"), x, field("low"), field("high"))
    marks = layers({"y": labels(label, names), "color": tint}, *intervals("x", x, tips))
    return chart(
        name,
        title,
        rows,
        summary=summary,
        note=f"{note} {_more(rows)}".strip(),
        height=ROW * max(1, len(names)),
        transform=[{"filter": {"field": label, "oneOf": names}}],
        layer=[*([level(0.0, "x")] if zero else []), *marks],
    )


def _more(rows: Rows) -> str:
    more = len(rows) - DRAWN
    return f"{counted(more, 'more row')} in the table." if more > 0 else ""


# The variants from best to worst, and against the control


def leaderboard(verdict: Verdict, direction: Direction, measure: Measure) -> Spec:
    """Estimate and interval of each variant, the recommended one on top, then the best.

    measure : the measure that is estimated
    """
    sign = 1.0 if direction == "maximize" else -1.0
    order = np.argsort(-sign * verdict.estimates, kind="stable")  # nan come last
    ranked = [verdict.row, *order[order != verdict.row].tolist()]
    short, alive = _labels(verdict, ranked), set(verdict.plausible)
    rows: Rows = [
        {
            "variant": verdict.names[k],
            "label": label,
            "estimate": verdict.estimates[k],
            "standard error": verdict.standard_errors[k],
            **({} if verdict.raw is None else {"unadjusted": verdict.raw[k]}),
            "low": verdict.intervals[k, 0],
            "high": verdict.intervals[k, 1],
            "behind by": verdict.gaps[k],
            "behind by, low": verdict.gap_intervals[k, 0],
            "behind by, high": verdict.gap_intervals[k, 1],
            "kind": "not ruled out" if verdict.names[k] in alive else "ruled out",
            **_lifts(verdict, k),
        }
        for k, label in zip(ranked, short, strict=True)
    ]
    rows[0]["kind"] = "leads"
    small = "Small values are good. " if direction == "minimize" else ""
    return _intervals(
        "leaderboard",
        "Variants from best to worst",
        rows,
        "label",
        number("estimate", measure.title, measure.rates),
        {"leads": ACCENT, "not ruled out": OPEN, "ruled out": QUIET},
        summary=lead_text(
            short[0],
            verdict.estimates[verdict.row],
            verdict.intervals[verdict.row],
            measure,
            verdict.possible,
            verdict.variants,
        ),
        note=f"{small}{_lines(verdict, rows)}",
    )


def _lines(verdict: Verdict, rows: Rows) -> str:
    """Explain the lines, or why there are none."""
    if not any(np.isfinite([row["low"], row["high"]]).any() for row in rows):
        return f"No intervals: {verdict.no_interval}."
    return f"Lines: {percent(verdict.level)} intervals, for all variants at once."


def _labels(verdict: Verdict, order: Sequence[int]) -> tuple[str, ...]:
    names = verdict.names if verdict.shown is not None else labels_of(verdict.names)
    return cut_apart([names[k] for k in order])


def intervals_mean(verdict: Verdict) -> str:
    """Explain the intervals of a verdict, and their assumption."""
    often = " at all times, so you may look as often as you like" if verdict.anytime else ""
    return (
        f"An interval says where the true value of a variant may lie. In {percent(verdict.level)} "
        f"of all tests those of all variants contain the true values{often}. A variant is ruled "
        "out by its difference from the leader, which is known more exactly than the value of "
        f"either; so the intervals of the two may overlap. Assumptions: {verdict.assumption}"
    )


def lifts(verdict: Verdict, direction: Direction, rates: bool = False) -> Spec:
    """Difference of each variant from the control with its interval, the best on top.

    Relative to the control's value if that is defined, else in units of the reward.

    rates : whether rewards are yes or no, so that differences are percentage points
    """
    against = compare_with_control(verdict, direction)
    if against is None:
        raise InvalidInputError(
            "the test has no control, so there are no differences from it; create it with "
            "control=, the name of a variant.",
            field="control",
        )
    order = np.argsort(-against.lifts, kind="stable")  # nan come last
    ranked = order[order != against.control].tolist()
    key = "relative lift" if against.share else "lift"
    control = cut(_labels(verdict, [against.control])[0])
    better, worse = f"better than {control}", f"worse than {control}"
    short = _labels(verdict, ranked)
    rows: Rows = []
    for k, label in zip(ranked, short, strict=True):
        columns = _lifts(verdict, k)
        ends = {"low": columns[f"{key}, low"], "high": columns[f"{key}, high"]}
        kind = better if against.better[k] else worse if against.worse[k] else UNCLEAR
        rows.append({"variant": verdict.names[k], "label": label, **ends, "kind": kind, **columns})
    title = f"difference from {control}"
    share = field(key, title=title, axis={"format": "+~%"})
    return _intervals(
        "lifts",
        f"Difference of each variant from {control}",
        rows,
        "label",
        share if against.share else difference(key, title, rates),
        {better: GOOD, UNCLEAR: QUIET, worse: BAD},
        summary=(
            f"{cut(short[0], 60)} against {control}, the control: "
            f"{lift_text(verdict, ranked[0], POINTS if rates else '')}. Of "
            f"{counted(len(rows), 'variant')} {int(against.better.sum()):,} clearly better than "
            f"the control, {int(against.worse.sum()):,} clearly worse."
        ),
        note=_lines(verdict, rows),
        zero=True,
    )


def _lifts(verdict: Verdict, k: int) -> dict[str, Any]:
    """Columns that compare with the control, if there is one."""
    if verdict.control is None:
        return {}
    columns: dict[str, Any] = {}
    for name, values, ends in (
        ("lift", verdict.lifts, verdict.lift_intervals),
        ("relative lift", verdict.relative, verdict.relative_intervals),
    ):
        columns |= {name: values[k], f"{name}, low": ends[k, 0], f"{name}, high": ends[k, 1]}
    return columns


# Levels of factors, items of bundles


def effects(effects: Effects, rates: bool = False) -> Spec:
    """The effect of each level of each factor, or of each item of bundles.

    rates : whether rewards are yes or no, so that differences are percentage points
    """
    items = effects.kind == "items"
    names = [e.level if items else f"{cut(e.factor, 16)}: {cut(e.level, 20)}" for e in effects.main]
    kinds = {"raises the reward": GOOD, "not clear": QUIET, "lowers it": BAD}
    if items and effects.chosen:
        kinds = {"in the recommended bundle": ACCENT, "not in it": QUIET}
    words = list(kinds)

    def kind(effect: Effect) -> str:
        if len(words) == 2:
            return words[effect.level not in effects.chosen]
        return words[0 if effect.low > 0 else 2 if effect.high < 0 else 1]

    rows: Rows = [
        {
            "factor": effect.factor,
            "level": effect.level,
            "label": label,
            "mean": effect.mean,
            "difference": effect.difference,
            "low": effect.low,
            "high": effect.high,
            "kind": kind(effect),
        }
        for label, effect in zip(cut_apart(names, 40), effects.main, strict=True)
    ]
    title, against = "What each level adds, on average over all others", "the average of its factor"
    if items:
        title, against = "Effect of each item, on average over all bundles", "bundles without it"
    return _intervals(
        "effects",
        title,
        rows,
        "label",
        difference("difference", f"difference from {against}", rates),
        kinds,
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
        f"{said} {cut(name, 60)}: {unit}. {clear:,} of "
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
    rows: Rows = [
        {
            "pair": f"{pair.first} and {pair.second}",
            "first": effects.factors[pair.first][i],
            "second": effects.factors[pair.second][j],
            "mean": mean,
            "low": mean - quantile * pair.errors[i, j],
            "high": mean + quantile * pair.errors[i, j],
            "departure": pair.strength,
            "p-value": pair.p_value,
        }
        for pair in effects.pairs
        for (i, j), mean in np.ndenumerate(pair.means)
    ]
    top, pairs = effects.pairs[0], counted(len(effects.pairs), "pair")
    clear = sum(pair.p_value < 1 - effects.level for pair in effects.pairs)
    y = number("mean", "mean reward", rates, scale={"zero": False})
    x = field("second", "nominal", cut(top.second), sort=None, axis={"labelAngle": 0})
    first = color("first", effects.factors[top.first])
    first["legend"]["title"] = cut(top.first)
    tips = hover(field("first", "nominal"), x, y, field("low"), field("high"))
    return chart(
        "interactions",
        f"Does the effect of {cut(top.first)} depend on {cut(top.second)}?",
        rows,
        summary=(
            f"{cut(top.first, 60)} and {cut(top.second, 60)} depend on each other the most "
            f"clearly ({p_text(top.p_value)}). {clear:,} of {pairs} clear, each taken by "
            "itself."
        ),
        note=(
            "Parallel lines: the effect of one does not depend on the other. Vertical lines: "
            f"{percent(effects.level)} intervals, each by itself. The clearest of {pairs} is drawn."
        ),
        transform=[{"filter": {"field": "pair", "equal": rows[0]["pair"]}}],
        encoding={"x": x, "color": first},
        layer=[{"mark": "line", "encoding": {"y": y}}, *intervals("y", y, tips)],
    )


# Results of simulations, and designs


def results(found: Sequence[Results], title: str = "") -> Spec:
    """Error probability of each policy with its exact 95 % interval, in the order given."""
    if not found or not all(isinstance(one, Results) for one in found):
        raise InvalidInputError(
            f"results is {found!r}; give a list of what sa.simulate() returned, at least one."
        )
    rows: Rows = [
        {
            "policy": one.policy,
            "wrong": one.errors,
            "simulated tests": one.trials,
            "share wrong": one.error_rate,
            **dict(zip(("low", "high"), one.interval(), strict=True)),
            "kind": "",
        }
        for one in found
    ]
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
    order = np.argsort(-design.shares, kind="stable")
    arms = [names[k] for k in design.support[order].tolist()]
    rows: Rows = [
        {"arm": arm, "weight": weight, "label": label}
        for arm, weight, label in zip(arms, design.shares[order], cut_apart(arms), strict=True)
    ]
    top = [row["label"] for row in rows[:DRAWN]]
    return chart(
        "design",
        title or "Weights of the design",
        rows,
        summary=(
            f"{counted(len(rows), 'arm')} of {design.size:,} with a positive weight, from "
            f"{percent(rows[-1]['weight'])} to {percent(rows[0]['weight'])}."
        ),
        note=_more(rows),
        height=ROW * len(top),
        transform=[{"filter": {"field": "label", "oneOf": top}}],
        mark={"type": "bar", "color": ACCENT, "tooltip": True},
        encoding={"y": labels("label", top), "x": number("weight", "weight", True)},
    )
