"""Does the effect of one factor depend on another?"""

from __future__ import annotations

import scipy

from steadyarm.errors import InvalidInputError
from steadyarm.looks.look import Effects, Interaction
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.picks import MOST
from steadyarm.plot.charts.words import known, shown
from steadyarm.wording import number, percent

__all__ = ["interactions"]

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
        _summary(effects),
        tuple(_panel(effects, pair, color) for pair in seen),
        _table(effects),
        f"Parallel lines: no interaction. Bars: {percent(effects.level)} intervals, each by "
        f"itself.{cut}",
    )


def _panel(effects: Effects, pair: Interaction, color: dict[tuple[str, str], int]) -> Panel:
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


def _summary(effects: Effects) -> str:
    top = effects.pairs[0]
    clear = sum(pair.p_value < 1 - effects.level for pair in effects.pairs)
    return (
        f"The clearest interaction is that of {shown(top.first, 60)} and {shown(top.second, 60)}: "
        f"a pair departs by up to {number(top.strength)} from the sum of both effects "
        f"(p = {top.p_value:.2g}). {clear:,} of {len(effects.pairs):,} pairs are clear, each "
        "taken by itself."
    )


def _table(effects: Effects) -> Table:
    header = (
        "first factor", "its level", "second factor", "its level", "mean", "standard error",
        "strength of the pair", "p-value of the pair",
    )  # fmt: skip  # a table reads better so
    rows = tuple(
        (
            pair.first,
            one,
            pair.second,
            two,
            known(pair.means[i, j]),
            known(pair.errors[i, j]),
            known(pair.strength),
            known(pair.p_value),
        )
        for pair in effects.pairs
        for i, one in enumerate(effects.factors[pair.first])
        for j, two in enumerate(effects.factors[pair.second])
    )
    return Table(header, rows)
