"""A verdict as a table: columns of plain values, a data frame, or HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from steadyarm.wording import by_how_much, listed, number, percent, reach, span

if TYPE_CHECKING:
    from steadyarm.live.metrics import Safety
    from steadyarm.live.settings import Settings
    from steadyarm.live.verdict import Verdict

Floats = NDArray[np.float64]

SAFETY = {  # of a guardrail, in words
    "safe": "within the margin",
    "broken": "worse than the margin",
    "unclear": "not clear yet",
    "control": "",
}

MOST = 30  # variants that a notebook shows


FEW = 5  # variants up to which each has a row for every metric


class MetricRow(NamedTuple):
    """What is said of one variant in one metric, in words.

    control : the control's value; empty if there is no control
    difference : from the control
    safety : of a guardrail, whether it keeps to its margin; empty for other metrics
    selected : whether the difference is among those that were selected; None if nothing was
    """

    metric: str
    role: str
    variant: str
    value: str
    control: str
    difference: str
    safety: Safety | None
    selected: bool | None = None


def metric_rows(verdict: Verdict) -> list[MetricRow]:
    """All further metrics of a verdict, for its variants, or for the recommended one of many.

    The control's own values stand beside those of the others.
    """
    found = []
    for result in verdict.metrics:
        if result.obstacle or result.estimates is None:
            role = result.metric.role
            found.append(MetricRow(result.name, role, "", result.obstacle, "", "", None))
            continue
        shown = result.metric.shown
        control = None if result.control is None else result.names.index(result.control)
        others = [k for k in range(len(result.names)) if k != control]
        if len(others) > FEW:
            others = [k for k in others if result.names[k] == verdict.name]
        for k in others:
            found.append(
                MetricRow(
                    result.name,
                    result.metric.role,
                    result.names[k],
                    shown(float(result.estimates[k])),
                    "" if control is None else shown(float(result.estimates[control])),
                    lift_text(result, k, result.metric.difference_unit),
                    result.safety[k] if result.safety else None,
                    result.selected[k] if result.selected else None,
                )
            )
    return found


def metric_cells(verdict: Verdict) -> list[tuple[str, ...]]:
    """The same as plain cells: metric, variant, value, control, difference and guardrail.

    Why a metric is not known yet is too long for a cell, see `metric_obstacles`.
    """
    return [
        (
            *(row.metric, row.variant, row.value if row.variant else "not yet"),
            *(row.control, row.difference),
            "" if row.safety is None else SAFETY[row.safety],
        )
        for row in metric_rows(verdict)
    ]


def metric_obstacles(verdict: Verdict) -> list[str]:
    """Why metrics are not known yet, a sentence for each that is not."""
    return [f"{one.name}: {one.obstacle}" for one in verdict.metrics if one.obstacle]


def adjusted_text(verdict: Verdict, covariates: Sequence[str]) -> str:
    """How much noise covariates have taken away; empty where estimates are not adjusted.

    covariates : their names
    """
    if verdict.raw is None or verdict.variance_kept is None:
        return ""
    names, saved = listed(covariates), 1 - verdict.variance_kept
    if saved < 0.005:
        return f"Adjusted for {names}, which have not taken any noise away so far."
    return f"Adjusted for {names}: variance down by {percent(round(saved, 2))}."


MISSING = {
    "zero": "A reward that never came counts as zero.",
    "drop": "A reward that never came counts as the mean of its variant's rewards around it; that "
    "is right if rewards are lost regardless of their value.",
    "fail": "There is no verdict while a reward is missing.",
}


def rewards_in_words(settings: Settings) -> tuple[str, ...]:
    """Which rewards count, and as what."""
    good = "Larger" if settings.direction == "maximize" else "Smaller"
    window = "Rewards count whenever they come."
    if settings.reward_window is not None:
        grace = settings.reward_grace
        arriving = f"and arrive at most {span(grace)} after that" if grace else "and arrive by then"
        window = (
            f"Rewards count if they happen within {span(settings.reward_window)} {arriving}; later "
            "ones are refused."
        )
    if settings.reward_window is not None and settings.missing == "fail":
        window = (
            f"Rewards are expected within {span(settings.reward_window)}; later ones count, too."
        )
    ends = (
        "No range of possible rewards was declared."
        if settings.reward_range is None
        else f"Rewards lie between {number(settings.reward_range[0])} and "
        f"{number(settings.reward_range[1])}; others are refused."
    )
    return (f"{good} rewards are better.", window, MISSING[settings.missing], ends)


class AgainstControl(Protocol):
    """What has differences from a control, as `Verdict` describes them."""

    @property
    def names(self) -> Sequence[str]:
        """Of the variants."""

    @property
    def control(self) -> str | None:
        """The variant that differences are from."""

    @property
    def lifts(self) -> Floats | None:
        """(K,) differences."""

    @property
    def lift_intervals(self) -> Floats | None:
        """(K, 2) their intervals."""

    @property
    def relative(self) -> Floats | None:
        """(K,) the same divided by the control's value."""

    @property
    def relative_intervals(self) -> Floats | None:
        """(K, 2) their intervals."""


def lift_text(verdict: AgainstControl, row: int, unit: str = "") -> str:
    """How a variant differs from the control, such as "+8 % (3 to 13 %)"; relative if defined.

    unit : of differences that are not relative
    """
    absolute, ends = verdict.lifts, verdict.lift_intervals
    shares, between = verdict.relative, verdict.relative_intervals
    if absolute is None or ends is None:
        return ""
    if verdict.names[row] == verdict.control:
        return "control"
    share = shares is not None and between is not None and not np.isnan(shares[row])
    if share and shares is not None and between is not None:
        absolute, ends = shares, between
    value, (low, high) = float(absolute[row]), ends[row].tolist()
    if np.isnan(value):
        return "unknown"
    return f"{'+' * (value > 0)}{by_how_much(value, low, high, share, unit)}"


def columns_of(verdict: Verdict) -> dict[str, list[Any]]:
    """Raw numbers by column, a row for each variant; infinite limits where nothing is known.

    Lifts are there if the test has a control, raw estimates if it has covariates.
    """
    arms = range(len(verdict.names)) if verdict.shown is None else verdict.shown.tolist()
    plausible = set(verdict.plausible)
    found: dict[str, Any] = {
        "name": list(verdict.names),
        "arm": list(arms),
        "recommended": [name == verdict.name for name in verdict.names],
        "plausible": [name in plausible for name in verdict.names],
        "estimate": verdict.estimates,
        "standard_error": verdict.standard_errors,
    }
    found |= _with_ends("", verdict.intervals)
    if verdict.raw is not None:
        found |= {"raw": verdict.raw}
    found |= {"gap": verdict.gaps} | _with_ends("gap_", verdict.gap_intervals)
    if verdict.control is not None:
        found |= {"lift": verdict.lifts} | _with_ends("lift_", verdict.lift_intervals)
        found |= {"relative": verdict.relative}
        found |= _with_ends("relative_", verdict.relative_intervals)
    return {
        name: column.tolist() if isinstance(column, np.ndarray) else column
        for name, column in found.items()
    }


def _with_ends(name: str, intervals: Any) -> dict[str, Any]:
    return {f"{name}low": intervals[:, 0], f"{name}high": intervals[:, 1]}


def html_of(verdict: Verdict) -> str:
    """The decision and a small table, for notebooks; names are escaped."""
    columns = ["variant", "estimate", f"{percent(verdict.level)} interval"]
    columns += [] if verdict.raw is None else ["unadjusted"]
    columns += [] if verdict.control is None else [f"against {verdict.control}"]
    plausible = set(verdict.plausible)
    order = sorted(range(len(verdict.names)), key=lambda k: _place(verdict, k))
    rows = []
    for k in order[:MOST]:
        name = verdict.names[k]
        cells = [name, number(float(verdict.estimates[k])), _interval(verdict, k)]
        cells += [] if verdict.raw is None else [number(float(verdict.raw[k]))]
        cells += [] if verdict.control is None else [lift_text(verdict, k)]
        standing = "recommended" if k == verdict.row else ""
        cells.append(standing or ("may be the best" if name in plausible else "ruled out"))
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in (*columns, ""))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = len(verdict.names) - len(rows)
    cut = f"<p>{more:,} more are in to_pandas().</p>" if more > 0 else ""
    return (
        f"<div><p><strong>{escape(verdict.decision.text)}</strong></p>"
        f"<p>{escape(str(verdict))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{cut}</div>"
    )


def _interval(verdict: Verdict, k: int) -> str:
    low, high = verdict.intervals[k].tolist()
    return reach(low, high, unknown=verdict.no_interval)


def _place(verdict: Verdict, k: int) -> tuple[bool, float]:
    """The recommended variant first, then by distance from it; unknown ones last."""
    gap = float(verdict.gaps[k])
    return k != verdict.row, np.inf if np.isnan(gap) else gap
