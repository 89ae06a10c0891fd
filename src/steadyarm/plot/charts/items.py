"""What each item brings to the bundles it is in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.looks.look import Effect, Effects
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.words import known, shown
from steadyarm.wording import number, percent

__all__ = ["items"]

ROWS = 40


def items(effects: Effects) -> Chart:
    """Items from the best to the worst; those of the recommended bundle are picked out."""
    drawn = _farthest(effects.main)
    cut = ""
    if len(drawn) < len(effects.main):
        cut = f"Drawn are the {len(drawn)} of {len(effects.main):,} items farthest from zero. "
    return Chart(
        "items",
        "What each item brings, on average over all bundles",
        _summary(effects),
        (_panel(drawn, frozenset(effects.chosen)),),
        _table(effects),
        f"{cut}Lines: {percent(effects.level)} intervals that hold for all items at once. Zero: "
        "bundles with the item are as good as bundles without it, on average.",
    )


def _farthest(main: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """In the same order."""
    far = np.argsort([-abs(effect.difference) for effect in main], kind="stable")  # nan come last
    return tuple(main[i] for i in sorted(far[:ROWS].tolist()))


def _panel(drawn: tuple[Effect, ...], chosen: frozenset[str]) -> Panel:
    names = tuple(effect.level for effect in drawn)
    inside = np.array([name in chosen for name in names])
    groups: list[tuple[str, NDArray[np.bool_], int | None]]
    groups = [("in the recommended bundle", inside, 0), ("not in it", ~inside, None)]
    if not chosen:
        groups = [("item", ~inside, 0)]
    found = [(effect.difference, effect.low, effect.high) for effect in drawn]
    series = []
    for name, here, color in groups:
        if here.any():
            y, low, high = np.where(here, np.array(found, float).T, np.nan)
            series.append(Series(name, names, y, low, high, kind="points", color=color))
    more = Axis("reward with the item, minus reward without it")
    return Panel(Axis("", "label"), more, tuple(series), level=0.0, sideways=True)


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


def _table(effects: Effects) -> Table:
    header = ("item", "mean with it", "difference from without it", "low", "high", "recommended")
    rows = tuple(
        (
            e.level,
            known(e.mean),
            known(e.difference),
            known(e.low),
            known(e.high),
            e.level in effects.chosen if effects.chosen else None,
        )
        for e in effects.main
    )
    return Table(header, rows)
