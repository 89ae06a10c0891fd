"""What each level of each factor does, on average over all others; or what each item brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.live.scorecard import Effect, Effects, Interaction
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.common import MOST, shown, split
from steadyarm.wording import number, percent

# What each item brings to the bundles it is in.


ROWS = 40


def items(effects: Effects) -> Chart:
    """Items from the best to the worst; those of the recommended bundle are picked out."""
    main, chosen = effects.main, effects.chosen
    far = np.argsort([-abs(effect.difference) for effect in main], kind="stable")  # nan come last
    drawn = tuple(main[i] for i in sorted(far[:ROWS].tolist()))
    cut = ""
    if len(drawn) < len(main):
        cut = f"Drawn are the {len(drawn)} of {len(main):,} items farthest from zero. "
    return Chart(
        "items",
        "What each item brings, on average over all bundles",
        _summary(effects),
        (_panel(drawn, frozenset(chosen)),),
        Table.of(
            {"item": [effect.level for effect in main]}
            | _columns(effects, "mean with it", "difference from without it")
            | {"recommended": [e.level in chosen if chosen else None for e in main]}
        ),
        f"{cut}Lines: {percent(effects.level)} intervals that hold for all items at once. Zero: "
        "bundles with the item are as good as bundles without it, on average.",
    )


def _panel(drawn: tuple[Effect, ...], chosen: frozenset[str]) -> Panel:
    names = tuple(effect.level for effect in drawn)
    inside = np.array([name in chosen for name in names])
    parts: dict[str, tuple[NDArray[np.bool_], int | None]] = {"item": (~inside, 0)}
    if chosen:
        parts = {"in the recommended bundle": (inside, 0), "not in it": (~inside, None)}
    more = Axis("reward with the item, minus reward without it")
    series = split(_differences("", drawn, 0), parts)
    return Panel(Axis("", "label"), more, series, level=0.0, sideways=True)


def _differences(name: str, found: Sequence[Effect], color: int) -> Series:
    values = np.array([(effect.difference, effect.low, effect.high) for effect in found], float)
    levels, (y, low, high) = tuple(effect.level for effect in found), values.T
    return Series(name, levels, y, low, high, kind="points", color=color)


def _summary(effects: Effects) -> str:
    best = effects.main[0]
    if not np.isfinite(best.difference):
        return "Nothing is known of the items yet."
    clear = sum(effect.low > 0 or effect.high < 0 for effect in effects.main)
    return (
        f"The best item is {shown(best.level, 60)}: it changes the reward of a bundle by "
        f"{number(best.difference)} on average (interval {number(best.low)} to "
        f"{number(best.high)}). {clear:,} of {len(effects.main):,} items clearly raise or lower it."
    )


def _columns(effects: Effects, mean: str, difference: str) -> dict[str, list[Any]]:
    """What is known of each level or item, as columns of these names."""
    main = effects.main
    return {
        mean: [effect.mean for effect in main],
        difference: [effect.difference for effect in main],
        "low": [effect.low for effect in main],
        "high": [effect.high for effect in main],
    }


def effects(effects: Effects) -> Chart:
    """Main effects: one panel per factor, the distance of each level from their average.

    Of bundles one panel: items from the best to the worst.
    """
    if effects.kind == "items":
        return items(effects)
    return Chart(
        "effects",
        "What each level adds, on average over all others",
        _effects_summary(effects),
        tuple(_effects_panel(effects, factor, i) for i, factor in enumerate(effects.factors)),
        Table.of(
            {
                "factor": [effect.factor for effect in effects.main],
                "level": [effect.level for effect in effects.main],
            }
            | _columns(effects, "mean", "difference from average")
        ),
        f"Lines: {percent(effects.level)} intervals. Zero is the average over the factor's levels.",
    )


def _effects_panel(effects: Effects, factor: str, color: int) -> Panel:
    found = [effect for effect in effects.main if effect.factor == factor]
    series, axis = _differences(factor, found, color), Axis("difference from average")
    title = shown(factor)
    return Panel(Axis("", "label"), axis, (series,), title, level=0.0, sideways=True)


def _effects_summary(effects: Effects) -> str:
    known_ones = [effect for effect in effects.main if np.isfinite(effect.difference)]
    if not known_ones:
        return "Nothing is known of the factors yet."
    top = max(known_ones, key=lambda effect: abs(effect.difference))
    clear = sum(effect.low > 0 or effect.high < 0 for effect in effects.main)
    return (
        f"The largest effect is {shown(top.factor, 60)}: {shown(top.level, 60)}, which changes the "
        f"reward by {number(top.difference)} from the average (interval {number(top.low)} to "
        f"{number(top.high)}). {clear:,} of {len(effects.main):,} levels differ clearly from the "
        "average of their factor."
    )


# Does the effect of one factor depend on another?


PANELS = 4


def interactions(effects: Effects) -> Chart:
    """Mean rewards of the clearest pairs of factors; lines that are not parallel interact."""
    if effects.kind == "items":
        raise InvalidInputError(
            "the test is of bundles; interactions are of the factors of ArmSet.factorial. What "
            "each item brings is drawn by effects."
        )
    if not effects.pairs:
        raise InvalidInputError(
            f"the test has {len(effects.factors)} factor(s) and no pair of them was measured; "
            "interactions need at least two factors."
        )
    seen = effects.pairs[:PANELS]
    keys = list(
        dict.fromkeys((pair.first, level) for pair in seen for level in effects.factors[pair.first])
    )
    color = {key: i % MOST for i, key in enumerate(keys)}
    more = len(effects.pairs) - len(seen)
    cut = f" The {len(seen)} clearest of {len(effects.pairs):,} pairs are drawn." if more else ""
    return Chart(
        "interactions",
        "Does the effect of one factor depend on another?",
        _interactions_summary(effects),
        tuple(_interactions_panel(effects, pair, color) for pair in seen),
        _interactions_table(effects),
        f"Parallel lines: no interaction. Bars: {percent(effects.level)} intervals, each by "
        f"itself.{cut}",
    )


def _interactions_panel(
    effects: Effects, pair: Interaction, color: dict[tuple[str, str], int]
) -> Panel:
    reach = scipy.stats.norm.isf((1 - effects.level) / 2) * pair.errors
    x = tuple(effects.factors[pair.second])
    lines = tuple(
        Series(
            f"{pair.first}: {level}",
            x,
            pair.means[i],
            pair.means[i] - reach[i],
            pair.means[i] + reach[i],
            kind="points",
            color=color[pair.first, level],
        )
        for i, level in enumerate(effects.factors[pair.first])
    )
    title = f"{shown(pair.first, 18)} and {shown(pair.second, 18)}, p = {pair.p_value:.2g}"
    return Panel(Axis(shown(pair.second), "label"), Axis("mean reward"), lines, title)


def _interactions_summary(effects: Effects) -> str:
    top = effects.pairs[0]
    clear = sum(pair.p_value < 1 - effects.level for pair in effects.pairs)
    return (
        f"The clearest interaction is that of {shown(top.first, 60)} and {shown(top.second, 60)}: "
        f"a pair departs by up to {number(top.strength)} from the sum of both effects "
        f"(p = {top.p_value:.2g}). {clear:,} of {len(effects.pairs):,} pairs are clear, each "
        "taken by itself."
    )


def _interactions_table(effects: Effects) -> Table:
    header = (
        "first factor", "its level", "second factor", "its level", "mean", "standard error",
        "strength of the pair", "p-value of the pair",
    )  # fmt: skip  # a table reads better so
    rows: list[tuple[Any, ...]] = []
    for pair in effects.pairs:
        first, second = effects.factors[pair.first], effects.factors[pair.second]
        cells = {"mean": pair.means, "error": pair.errors}
        both = {"strength": np.array(pair.strength), "p": np.array(pair.p_value)}
        own = Table.grid({"one": first}, {"two": second}, cells | both)
        rows += [(pair.first, one, pair.second, *others) for one, *others in own.rows]
    return Table(header, tuple(rows))
