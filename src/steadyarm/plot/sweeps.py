"""Charts of errors against the budget or another parameter: comparisons, plans, the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steadyarm.errors import InvalidInputError
from steadyarm.planning.answer import Line, Plan, Share
from steadyarm.plot.spec import (
    DOT,
    HEIGHT,
    LINES,
    SHAPES,
    WIDTH,
    Rows,
    Spec,
    chart,
    color,
    field,
    hover,
    layers,
    level,
    number,
)
from steadyarm.policies import POLICIES
from steadyarm.simulation import Comparison, Results
from steadyarm.wording import counted

PAPER = ("G-BAI", "P1-RAGE", "P1-Peace", "Mixed-Peace", "Peace", "OD-LinBAI", "Steady")
KNOWN = tuple(dict.fromkeys([*PAPER, *POLICIES]))
INTERVALS = "Vertical lines: exact 95 % intervals."
NONE = " Hollow triangles: not one error, at the upper end of the interval."
LOG = {"type": "log", "nice": False, "padding": 15}


def tint(policies: Iterable[str]) -> Spec:
    """The colour and the shape of each policy, as channels with one legend.

    A known policy has the same style in every figure. The legend has the order that is given.

    Examples
    --------
    >>> tint(["Mine", "Steady", "Peace", "Theirs"])["color"]["scale"]["domain"]
    ['Mine', 'Steady', 'Peace', 'Theirs']
    """
    names = list(dict.fromkeys(policies))
    all_names = [*KNOWN, *sorted(set(names).difference(KNOWN))]
    place = {name: i for i, name in enumerate(all_names) if name in names}
    order = {name: place[name] for name in names}
    shapes = [SHAPES[i % len(SHAPES)] for i in order.values()]
    channel = color("policy", list(order), [LINES[i % len(LINES)] for i in order.values()])
    channel["legend"]["columns"] = 4
    return {
        "color": channel,
        "shape": {**channel, "scale": {"domain": list(order), "range": shapes}},
    }


def error_layers(
    rows: Rows,
    x: Spec,
    style: Spec,
    title: str = "probability of error",
    percent: bool = False,
    scale: Spec | None = None,
) -> list[Spec]:
    """Lines through rates with intervals, on a logarithmic axis unless another scale is given.

    rows : with the columns rate, low, high and policy, and that of `x`. Where a rate is zero, the
        upper end of its interval is marked
    style : channels for the colour and the shape of each policy
    """
    positive = [v for row in rows for v in (row["rate"], row["high"]) if v is not None and v > 0]
    floor = min(positive, default=1e-3) / 2
    log = {"type": "log", "domainMin": floor, "nice": False}
    y = number("rate", title, percent, scale=scale or log)
    y["axis"]["tickCount"] = 5
    some = [{"filter": "datum.rate > 0"}]
    ends = {"calculate": f"max(datum.low, {floor!r})", "as": "from"}
    tips = hover(x, field("policy", "nominal"), field("rate"), field("low"), field("high"))
    hollow = {"type": "point", "filled": False, "size": 70}
    return layers(
        {"x": x, "color": style["color"]},
        {"mark": "line", "transform": some, "encoding": {"y": y}},
        {
            "mark": {"type": "rule", "clip": True},
            "transform": [{"filter": "isValid(datum.high)"}, ends],
            "encoding": {"y": {**y, "field": "from"}, "y2": {"field": "high"}},
        },
        {
            "mark": {**DOT, "size": 55, "clip": False},
            "transform": some,
            "encoding": {**style, "y": y, "tooltip": tips},  # lines would draw shapes, too
        },
        {
            "mark": hollow,
            "transform": [{"filter": "datum.rate === 0"}],
            "encoding": {
                "y": {**y, "field": "high"},
                "shape": {"value": "triangle-down"},
                "tooltip": tips,
            },
        },
    )


def setting_of(cells: Sequence[Results]) -> str:
    """The setting of a figure: rounds, arms, features, and the noise if it is the same for all.

    Examples
    --------
    >>> cell = Results("P", {0: 8, 1: 1}, None, 0, budget=500, arms=5, features=3)
    >>> setting_of([cell])
    'T = 500, K = 5, d = 3'
    """
    known = [cell for cell in cells if cell.arms]
    parts = []
    for letter, name in (("T", "budget"), ("K", "arms"), ("d", "features")):
        if values := {getattr(cell, name) for cell in known}:
            few, most = min(values), max(values)
            parts.append(f"{letter} = {few:,}" + ("" if few == most else f" to {most:,}"))
    noises = sorted({cell.noise for cell in known if cell.noise})
    return ", ".join([*parts, *(noises if len(noises) == 1 else [])])


def trials_of(cells: Iterable[Results]) -> str:
    """The number of trials per point."""
    trials = {cell.trials for cell in cells}
    few, most = f"{min(trials):,}", f"{max(trials):,}"
    return few if few == most else f"{few} to {most}"


# Comparisons


def error_against_budget(
    comparison: Comparison, title: str = "", width: int = 0, height: int = 0
) -> Spec:
    """Probability of error against the budget, with a panel for each world.

    width, height : of a panel in pixels; chosen by the number of worlds if 0
    """
    if not isinstance(comparison, Comparison):
        raise InvalidInputError(
            f"comparison is {type(comparison).__name__}; pass the result of sa.compare()."
        )
    cells, settings = comparison.cells, comparison.settings_compared
    worlds = {
        world: f"{world} ({setting_of([cell for cell in cells if cell.world == world])})"
        for world in comparison.worlds
    }
    rows: Rows = [
        {
            "world": cell.world,
            "setting": worlds[cell.world],
            "budget": cell.budget,
            "policy": cell.policy,
            "errors": cell.errors,
            "trials": cell.trials,
            "rate": cell.error_rate,
            **dict(zip(("low", "high"), cell.interval(0.95), strict=True)),
        }
        for cell in cells
    ]
    budgets = sorted({cell.budget for cell in cells})
    scale = LOG if len(budgets) > 1 else {}
    axis = {"format": ",d", "values": budgets, "labelOverlap": "greedy"}
    x = field("budget", title="budget T", scale=scale, axis=axis)
    wins = {
        policy: sum(policy in comparison.best(*setting) for setting in settings)
        for policy in comparison.policies
    }
    best = max(wins, key=lambda name: wins[name])
    columns = min(len(worlds), 2)
    panel = {
        "width": width or WIDTH // columns,
        "height": height or (HEIGHT if columns == 1 else 220),
    }
    none = NONE if any(cell.errors == 0 for cell in cells) else ""
    return chart(
        "error-against-budget",
        title or "Probability of error against the budget",
        rows,
        summary=(
            f"In {wins[best]} of {counted(len(settings), 'combination')} of world and budget no "
            f"policy errs significantly less than {best}."
        ),
        note=f"{trials_of(cells)} trials per point. {INTERVALS}{none}",
        facet={"field": "setting", "type": "nominal", "sort": [*worlds.values()], "title": None},
        columns=columns,
        spec={**panel, "layer": error_layers(rows, x, tint(comparison.policies))},
        resolve={"scale": {"x": "independent", "y": "independent"}},
    )


# Plans


def plan(plan: Plan, clear: bool = False) -> Spec:
    """The share of wrong picks, or of clear answers, against the number of visits.

    clear : whether to draw the share of clear answers
    """
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"plan is {type(plan).__name__}; pass the result of sa.plan().")
    question = plan.question
    wanted = question.clear if clear else question.error
    need = plan.clear_budget if clear else plan.budget
    if wanted is None:
        raise InvalidInputError("this plan has no clear answers; set `clear` in the question.")
    rows = [
        {
            "policy": line.name,
            "visits": budget,
            "tests": share.trials,
            "rate": share.rate,
            "low": share.low,
            "high": share.high,
        }
        for line in plan.lines
        for budget, share in _shares(line, clear)
    ]
    x = field("visits", scale=LOG, axis={"format": ",d", "tickCount": 6})
    style = {"color": color("policy", [line.name for line in plan.lines])}
    if clear:
        curves = error_layers(rows, x, style, "clear answers", True, {"domain": [0, 1]})[:-1]
    else:
        curves = error_layers(rows, x, style, "wrong picks", True)
    extra: list[Spec] = [level(wanted)]
    notes = ["* assumes no drift."] if any(not line.robust for line in plan.lines) else []
    what = "wanted share of clear answers" if clear else "acceptable share of wrong picks"
    notes += [INTERVALS, f"Dashed: the {what}."]
    if not clear and any(row["rate"] == 0 for row in rows):
        notes.append(NONE.strip())
    if need is not None and plan.choice is not None:
        above = {"type": "text", "text": f"{need:,} visits", "align": "left", "dx": 5, "y": 8}
        words = {"x": {"datum": float(need)}}
        label = {"data": {"values": [{}]}, "mark": above, "encoding": words}
        extra += [level(float(need), "x"), label]
    return chart(
        "plan-clear" if clear else "plan",
        "Share of clear answers" if clear else plan.answer.rstrip("."),
        rows,
        summary=plan.verdict.replace("\n", " "),
        note=" ".join(notes),
        layer=[*extra, *curves],
    )


def _shares(line: Line, clear: bool) -> list[tuple[int, Share]]:
    """Budgets and shares in ascending order; a check replaces the point of the same budget."""
    points = {point.budget: point for point in line.points}
    if not clear:
        points[line.asked.check.budget] = line.asked.check
        return [(budget, points[budget].wrong) for budget in sorted(points)]
    checks = (line.picked, None if line.clear is None else line.clear.check)
    points |= {point.budget: point for point in checks if point is not None}
    return [(budget, share) for budget in sorted(points) if (share := points[budget].clear)]
