"""What each level of each factor does, on average over all others; or what each item brings."""

from __future__ import annotations

import numpy as np

from steadyarm.looks.look import Effects
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.items import items
from steadyarm.plot.charts.words import known, shown
from steadyarm.wording import number, percent

__all__ = ["effects"]


def effects(effects: Effects) -> Chart:
    """Main effects: one panel per factor, the distance of each level from their average.

    Of bundles one panel: items from the best to the worst.
    """
    if effects.kind == "items":
        return items(effects)
    return Chart(
        "effects",
        "What each level adds, on average over all others",
        _summary(effects),
        tuple(_panel(effects, factor, i) for i, factor in enumerate(effects.factors)),
        _table(effects),
        f"Lines: {percent(effects.level)} intervals. Zero is the average over the factor's levels.",
    )


def _panel(effects: Effects, factor: str, color: int) -> Panel:
    found = [effect for effect in effects.main if effect.factor == factor]
    series = Series(
        factor,
        tuple(effect.level for effect in found),
        np.array([effect.difference for effect in found], float),
        np.array([effect.low for effect in found], float),
        np.array([effect.high for effect in found], float),
        kind="points",
        color=color % 8,
    )
    return Panel(
        Axis("", "label"),
        Axis("difference from average"),
        (series,),
        shown(factor),
        level=0.0,
        sideways=True,
    )


def _summary(effects: Effects) -> str:
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


def _table(effects: Effects) -> Table:
    header = ("factor", "level", "mean", "difference from average", "low", "high")
    rows = tuple(
        (e.factor, e.level, known(e.mean), known(e.difference), known(e.low), known(e.high))
        for e in effects.main
    )
    return Table(header, rows)
