"""Charts of comparisons: errors and regret against the budget, and performance profiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from steadyarm.errors import InvalidInputError
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.policies import POLICIES
from steadyarm.simulation import Comparison, Results
from steadyarm.wording import counted, percent

PAPER = ("G-BAI", "P1-RAGE", "P1-Peace", "Mixed-Peace", "Peace", "OD-LinBAI", "Steady")
KNOWN = tuple(dict.fromkeys([*PAPER, *POLICIES]))
COLOURS = 8  # of lines, after which they repeat
ERROR = Axis("probability of error", "log")
STRIP = " The grey strip stands for no errors at all."
INTERVALS = "Lines: exact 95 % intervals."
NORMAL = 1.959964  # standard errors of a 95 % interval


def styles(policies: Iterable[str]) -> dict[str, int]:
    """The style of each policy in its order: the paper's policies first, then others by name.

    A known policy has the same style in every figure. A new one has a colour of its own among
    them, as long as there is one.

    Examples
    --------
    >>> styles(["Mine", "Steady", "Peace", "Theirs"])
    {'Peace': 4, 'Steady': 6, 'Mine': 13, 'Theirs': 15}
    """
    names = set(policies)
    found = {name: i for i, name in enumerate(KNOWN) if name in names}
    free = len(KNOWN)
    for name in sorted(names.difference(KNOWN)):
        used = {style % COLOURS for style in found.values()}
        while len(used) < COLOURS and free % COLOURS in used:
            free += 1
        found[name] = free
        free += 1
    return found


def error_series(name: str, x: tuple[Any, ...], cells: Sequence[Results], style: int) -> Series:
    """Error rates with their exact 95 % intervals."""
    rates = np.array([cell.error_rate for cell in cells])
    low, high = np.array([cell.interval(0.95) for cell in cells]).T
    return Series(name, x, rates, low, high, kind="points", color=style)


def setting_of(cells: Sequence[Results]) -> str:
    """What figures say of their worlds: rounds, arms, features and noise, where they are alike.

    Examples
    --------
    >>> cell = Results("P", {0: 8, 1: 1}, None, 0, budget=500, arms=5, features=3)
    >>> setting_of([cell])
    'T = 500, K = 5, d = 3'
    """
    known = [cell for cell in cells if cell.arms]
    parts = []
    for letter, values in (
        ("T", {cell.budget for cell in known}),
        ("K", {cell.arms for cell in known}),
        ("d", {cell.features for cell in known}),
    ):
        if values:
            few, most = min(values), max(values)
            parts.append(f"{letter} = {few:,}" + ("" if few == most else f" to {most:,}"))
    noises = sorted({cell.noise for cell in known if cell.noise})
    return ", ".join([*parts, *(noises if len(noises) == 1 else [])])


def trials_of(cells: Iterable[Results]) -> str:
    """How many trials there are for each point."""
    trials = {cell.trials for cell in cells}
    few, most = f"{min(trials):,}", f"{max(trials):,}"
    return few if few == most else f"{few} to {most}"


def error_against_budget(found: Comparison, title: str = "") -> Chart:
    """Probability of error against the budget, a panel for each world and a line for each policy.

    Examples
    --------
    >>> import steadyarm as sa
    >>> def still(budget):
    ...     return sa.Environment.from_means(sa.ArmSet.one_hot(["A", "B"]), [0.3, 0], budget=budget)
    >>> found = sa.compare(["steady", "g-bai"], {"still": still}, budgets=[50, 100], trials=100)
    >>> chart = error_against_budget(found)
    >>> [series.name for series in chart.panels[0].series]
    ['G-BAI', 'Steady']
    """
    cells = _checked(found).cells
    zero = any(cell.errors == 0 for cell in cells)
    return Chart(
        "error-against-budget",
        title or "Probability of error against the budget",
        _summary(found),
        tuple(_panel(found, world, ERROR, error_series) for world in found.worlds),
        Table.of(found.columns()),
        f"{trials_of(cells)} trials per point. {INTERVALS}{STRIP if zero else ''}",
    )


def regret(found: Comparison, title: str = "") -> Chart:
    """Simple regret of the recommendation against the budget, under the time average."""
    cells = _checked(found).cells
    if all(cell.regret is None for cell in cells):
        raise InvalidInputError(
            "no world of this comparison knows its means, so that there is no regret to draw; give "
            "your world a method regret(arms)."
        )
    zero = any(cell.regret == 0 for cell in cells)
    return Chart(
        "regret",
        title or "Simple regret against the budget",
        _summary(found),
        tuple(
            _panel(found, world, Axis("simple regret", "log"), _regret_series)
            for world in found.worlds
        ),
        Table.of(found.columns()),
        f"{trials_of(cells)} trials per point. Lines: 95 % intervals (normal approximation)."
        + (
            " The grey strip stands for no regret in any trial, which has no such interval."
            if zero
            else ""
        ),
    )


def profile(found: Comparison, title: str = "") -> Chart:
    """In which share of worlds and budgets each policy errs at most some factor times the best.

    Higher is better; at factor 1 it is the share of settings in which the policy is the best.
    """
    factors, shares = _checked(found).profile()
    count = len(found.settings_compared)
    order = styles(shares)
    series = tuple(
        Series(name, tuple(factors.tolist()), shares[name], kind="steps", color=style)
        for name, style in order.items()
    )
    first = {name: float(shares[name][0]) for name in order}
    best = max(first, key=lambda name: first[name])
    settings = counted(count, "combination")
    return Chart(
        "profile",
        title or "How near each policy comes to the best",
        f"{best} is the best, or as good, in {percent(first[best])} of {settings} of world and "
        "budget.",
        (
            Panel(
                Axis("errors relative to those of the best policy", "log"),
                Axis("share of settings", percent=True),
                series,
                y_range=(-0.02, 1.02),
            ),
        ),
        Table.grid(
            {"factor": factors},
            {"policy": list(order)},
            {"share": np.column_stack([shares[name] for name in order])},
        ),
        f"{settings} of world and budget, {trials_of(found.cells)} trials each. No errors count as "
        f"half of one. {setting_of(found.cells)}.",
    )


def _checked(found: Any) -> Comparison:
    if not isinstance(found, Comparison):
        raise InvalidInputError(
            f"found is {type(found).__name__}; give what sa.compare() returned."
        )
    return found


def _panel(found: Comparison, world: str, axis: Axis, series_of: Any) -> Panel:
    here = [cell for cell in found.cells if cell.world == world]
    series = []
    for policy, style in styles(cell.policy for cell in here).items():
        own = sorted((c for c in here if c.policy == policy), key=lambda c: c.budget)
        series.append(series_of(policy, tuple(float(c.budget) for c in own), own, style))
    several = len({cell.budget for cell in here}) > 1
    text = setting_of(here)
    return Panel(
        Axis("budget T", "log" if several else "number"), axis, tuple(series), f"{world} ({text})"
    )


def _regret_series(name: str, x: tuple[Any, ...], cells: Sequence[Results], style: int) -> Series:
    regrets = np.array([cell.regret for cell in cells], dtype=float)  # None becomes nan
    reach = NORMAL * np.array([cell.regret_error for cell in cells], dtype=float)
    reach[regrets == 0] = np.nan  # no regret in any trial: nothing to approximate
    return Series(
        name, x, regrets, np.maximum(regrets - reach, 0), regrets + reach, "points", style
    )


def _summary(found: Comparison) -> str:
    wins = {
        policy: sum(policy in found.best(*setting) for setting in found.settings_compared)
        for policy in found.policies
    }
    count = len(found.settings_compared)
    best = max(wins, key=lambda name: wins[name])
    return (
        f"In {wins[best]} of {counted(count, 'combination')} of world and budget no policy errs "
        f"significantly less than {best}."
    )
