"""Charts of errors against the budget or another parameter: comparisons, plans, the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.planning.answer import Answers, Curve, Line, Plan, Point
from steadyarm.plot.spec import (
    HEIGHT,
    LINES,
    QUIET,
    SHAPES,
    WIDTH,
    Rows,
    Spec,
    chart,
    color,
    field,
    hover,
    level,
    number,
)
from steadyarm.policies import POLICIES
from steadyarm.simulation import Comparison, Results
from steadyarm.wording import counted, percent

PAPER = ("G-BAI", "P1-RAGE", "P1-Peace", "Mixed-Peace", "Peace", "OD-LinBAI", "Steady")
KNOWN = tuple(dict.fromkeys([*PAPER, *POLICIES]))
INTERVALS = "Vertical lines: exact 95 % intervals."
NONE = " Hollow triangles: not one error, at the upper end of the interval."
NORMAL = 1.959964  # standard errors of a 95 % interval


def styles(policies: Iterable[str]) -> dict[str, int]:
    """The style of each policy in its order: the paper's policies first, then others by name.

    A known policy has the same style in every figure.

    Examples
    --------
    >>> styles(["Mine", "Steady", "Peace", "Theirs"])
    {'Peace': 4, 'Steady': 6, 'Mine': 13, 'Theirs': 14}
    """
    names = set(policies)
    known = {name: i for i, name in enumerate(KNOWN) if name in names}
    new = sorted(names.difference(KNOWN))
    return known | {name: len(KNOWN) + i for i, name in enumerate(new)}


def tint(policies: Iterable[str]) -> Spec:
    """The colour and the shape of each policy, as channels with one legend."""
    order = styles(policies)
    colors = [LINES[i % len(LINES)] for i in order.values()]
    shapes = [SHAPES[i % len(SHAPES)] for i in order.values()]
    shape = {"domain": list(order), "range": shapes}
    channel = color("policy", list(order), colors)
    channel["legend"]["columns"] = 4
    return {"color": channel, "shape": {**channel, "scale": shape}}


def error_layers(
    rows: Rows, x: Spec, title: str = "probability of error", percent: bool = False
) -> list[Spec]:
    """Lines through rates with intervals, on a logarithmic axis.

    rows : with the columns rate, low, high and policy, and that of `x`. Where a rate is zero, the
        upper end of its interval is marked
    """
    positive = [v for row in rows for v in (row["rate"], row["high"]) if v is not None and v > 0]
    floor = min(positive, default=1e-3) / 2
    scale = {"type": "log", "domainMin": floor, "nice": False}
    y = number("rate", title, percent, scale=scale)
    y["axis"] = {**y["axis"], "tickCount": 5}
    some = {"filter": "datum.rate > 0"}
    none = {"filter": "datum.rate === 0"}
    ends = {"calculate": f"max(datum.low, {floor!r})", "as": "from"}
    tips = hover(x, field("policy", "nominal"), field("rate"), field("low"), field("high"))
    return [
        {"mark": "line", "transform": [some], "encoding": {"x": x, "y": y}},
        {
            "mark": {"type": "rule", "clip": True},
            "transform": [{"filter": "isValid(datum.high)"}, ends],
            "encoding": {"x": x, "y": {**y, "field": "from"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
            "transform": [some],
            "encoding": {"x": x, "y": y, "tooltip": tips},
        },
        {
            "mark": {"type": "point", "filled": False, "size": 70},
            "transform": [none],
            "encoding": {
                "x": x,
                "y": {**y, "field": "high"},
                "shape": {"value": "triangle-down"},
                "tooltip": tips,
            },
        },
    ]


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


# Comparisons


def error_against_budget(found: Comparison, title: str = "") -> Spec:
    """Probability of error against the budget, with a panel for each world."""
    cells = _checked(found).cells
    rows: Rows = []
    for cell in cells:
        low, high = cell.interval(0.95)
        rows.append({**_setting(found, cell), "rate": cell.error_rate, "low": low, "high": high})
    none = NONE if any(cell.errors == 0 for cell in cells) else ""
    return _by_world(
        found,
        "error-against-budget",
        title or "Probability of error against the budget",
        rows,
        error_layers(rows, _budget(found)),
        f"{trials_of(cells)} trials per point. {INTERVALS}{none}",
    )


def regret(found: Comparison, title: str = "") -> Spec:
    """Simple regret of the recommendation against the budget, under the time average."""
    cells = _checked(found).cells
    if all(cell.regret is None for cell in cells):
        raise InvalidInputError(
            "no world of this comparison knows its means, so that there is no regret to draw; give "
            "your world a method regret(arms)."
        )
    rows: Rows = []
    for cell in cells:
        row = {**_setting(found, cell), "rate": cell.regret, "low": None, "high": None}
        if cell.regret and cell.regret_error is not None:
            reach = NORMAL * cell.regret_error
            row |= {"low": max(cell.regret - reach, 0.0), "high": cell.regret + reach}
        rows.append(row)
    return _by_world(
        found,
        "regret",
        title or "Simple regret against the budget",
        rows,
        error_layers(rows, _budget(found), "simple regret"),
        f"{trials_of(cells)} trials per point. Vertical lines: 95 % intervals (normal "
        "approximation). Where no trial had regret, no point is drawn.",
    )


def profile(found: Comparison, title: str = "") -> Spec:
    """In which share of worlds and budgets each policy errs at most some factor times the best.

    Higher is better; at factor 1 it is the share of settings in which the policy is the best.
    """
    factors, shares = _checked(found).profile()
    rows: Rows = [
        {"factor": factor, "policy": name, "share": share}
        for name in styles(shares)
        for factor, share in zip(factors, shares[name], strict=True)
    ]
    first = {name: float(shares[name][0]) for name in shares}
    best = max(first, key=lambda name: first[name])
    settings = counted(len(found.settings_compared), "combination")
    factor = field(
        "factor", title="errors relative to those of the best policy", scale={"type": "log"}
    )
    share = number("share", "share of settings", True, scale={"domain": [0, 1]})
    return chart(
        "profile",
        title or "How near each policy comes to the best",
        rows,
        summary=(
            f"{best} is the best, or as good, in {percent(first[best])} of {settings} of world and "
            "budget."
        ),
        note=(
            f"{settings} of world and budget, {trials_of(found.cells)} trials each. No errors "
            f"count as half of one. {setting_of(found.cells)}."
        ),
        mark={"type": "line", "interpolate": "step-after"},
        encoding={"x": factor, "y": share, "color": tint(shares)["color"]},
    )


def _checked(found: Any) -> Comparison:
    if not isinstance(found, Comparison):
        raise InvalidInputError(
            f"found is {type(found).__name__}; give what sa.compare() returned."
        )
    return found


def _setting(found: Comparison, cell: Results) -> dict[str, Any]:
    here = [one for one in found.cells if one.world == cell.world]
    return {
        "world": cell.world,
        "setting": f"{cell.world} ({setting_of(here)})",
        "budget": cell.budget,
        "policy": cell.policy,
        "errors": cell.errors,
        "trials": cell.trials,
    }


def _budget(found: Comparison) -> Spec:
    several = len({cell.budget for cell in found.cells}) > 1
    scale = {"type": "log", "nice": False, "padding": 15} if several else {}
    return field("budget", title="budget T", scale=scale, axis={"format": ",d", "tickCount": 6})


def _by_world(
    found: Comparison, name: str, title: str, rows: Rows, layers: list[Spec], note: str
) -> Spec:
    """The layers, once for each world."""
    wins = {
        policy: sum(policy in found.best(*setting) for setting in found.settings_compared)
        for policy in found.policies
    }
    best = max(wins, key=lambda name: wins[name])
    settings = counted(len(found.settings_compared), "combination")
    columns = min(len(found.worlds), 2)
    panel = {"width": WIDTH // columns, "height": HEIGHT if columns == 1 else 220}
    worlds = list(dict.fromkeys(row["setting"] for row in rows))
    return chart(
        name,
        title,
        rows,
        summary=(
            f"In {wins[best]} of {settings} of world and budget no policy errs significantly less "
            f"than {best}."
        ),
        note=note,
        facet={"field": "setting", "type": "nominal", "sort": worlds, "title": None},
        columns=columns,
        spec={**panel, "encoding": tint(found.policies), "layer": layers},
        resolve={"scale": {"x": "independent"}},
    )


# Plans


def plan(plan: Plan, clear: bool = False) -> Spec:
    """How often each policy would be wrong against the number of visits; or how often clear.

    clear : whether to draw the share of clear answers
    """
    wanted = plan.clear if clear else plan.error
    if wanted is None:
        raise InvalidInputError("this plan has no clear answers; ask for them with `clear`.")
    need = plan.clear_budget if clear else plan.budget
    rows = _plan_rows(plan, clear)
    floor: Rows = []
    if plan.theory.floor and not clear and not plan.moving:
        floor = [
            {"visits": budget, "rate": rate}
            for budget, rate in zip(plan.budgets, plan.theory.floor, strict=True)
            if rate >= max(plan.error / 30, 1e-6)
        ]
    log = {"type": "log", "nice": False, "padding": 15}
    x = field("visits", scale=log, axis={"format": ",d", "tickCount": 6})
    if clear:
        scale = {"domain": [0, 1]}
        layers = error_layers(rows, x, "clear answers", percent=True)[:3]
        for layer in layers:
            layer["encoding"]["y"] = layer["encoding"]["y"] | {"scale": scale}
    else:
        layers = error_layers(rows, x, "wrong picks", percent=True)
    y = layers[0]["encoding"]["y"]
    extra: list[Spec] = [level(wanted)]
    if floor:
        mark = {"type": "line", "strokeDash": [2, 3], "color": QUIET}
        extra.append({"data": {"values": floor}, "mark": mark, "encoding": {"x": x, "y": y}})
    if need is not None and plan.choice is not None:
        extra.append(level(float(need), "x"))
        above = {"type": "text", "text": f"{need:,} visits", "align": "left", "dx": 5, "y": 8}
        words = {"x": {"datum": float(need)}}
        extra.append({"data": {"values": [{}]}, "mark": above, "encoding": words})
    names = list(dict.fromkeys(row["policy"] for row in rows))
    star = "* trusts that nothing moves. " if any(not line.robust for line in plan.lines) else ""
    what = "wanted share of clear answers" if clear else "acceptable share of wrong picks"
    oracle = " Dotted: an oracle that knows all means." if floor else ""
    none = NONE if not clear and any(row["rate"] == 0 for row in rows) else ""
    return chart(
        "plan-clear" if clear else "plan",
        "How often the answer would be clear" if clear else _plan_title(plan),
        rows,
        summary=_plan_summary(plan),
        note=f"{star}{INTERVALS} Dashed: the {what}.{oracle}{none}",
        layer=[*extra, *({**one, "encoding": one["encoding"] | _lines(names)} for one in layers)],
    )


def _lines(names: Sequence[str]) -> Spec:
    return {"color": color("policy", names)}


def _plan_title(plan: Plan) -> str:
    if plan.choice is None:
        most = counted(plan.most_days, "day")
        return f"No robust policy errs in only {percent(plan.error)} within {most}"
    return (
        f"{plan.choice.label}: {plan.budget:,} visits in {counted(plan.days or 0, 'day')} for "
        f"about {percent(plan.error)} wrong picks"
    )


def _plan_rows(plan: Plan, clear: bool) -> Rows:
    rows: Rows = []
    for line in plan.lines:
        for point in _answers(line) if clear else _points(line.asked):
            low, high = point.interval()
            rows.append(
                {
                    "policy": line.name,
                    "visits": point.budget,
                    "tests": point.trials,
                    "rate": point.rate,
                    "low": low,
                    "high": high,
                }
            )
    return rows


def _answers(line: Line) -> list[Answers]:
    """By rising budget, each budget once, from as many tests as there were."""
    if (found := line.clear) is None:
        return []
    points = {point.budget: point for point in found.points}
    points |= {one.budget: one for one in (found.picked, found.check) if one is not None}
    return sorted(points.values(), key=lambda point: point.budget)


def _points(curve: Curve) -> list[Point]:
    """By rising budget; where the need was checked, that check of more tests than the others."""
    check = curve.need.check
    points = [point for point in curve.points if point.budget != check.budget]
    return sorted([*points, check], key=lambda point: point.budget)


def _plan_summary(plan: Plan) -> str:
    if plan.choice is None:
        return f"{_plan_title(plan)}."
    check = plan.choice.asked.need.check
    low, high = check.interval()
    text = (
        f"{plan.choice.label} needs {plan.budget:,} visits in {counted(plan.days or 0, 'day')} for "
        f"about {percent(plan.error)} wrong picks; in simulated tests {percent(check.rate)} "
        f"were wrong (95 % interval {percent(low)} to {percent(high)})."
    )
    if plan.clear is None or plan.clear_budget is None:
        return text
    days = counted(plan.clear_days or 0, "day")
    clear = f" {percent(plan.clear)} clear answers take {plan.clear_budget:,} visits in {days}."
    return text + clear
