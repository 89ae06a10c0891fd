"""Estimates of variants with intervals, as all results contain them, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import Lifts
from steadyarm.wording import by_how_much

if TYPE_CHECKING:
    from steadyarm.live.metrics import Metric
    from steadyarm.live.verdict import Verdict

Floats = NDArray[np.float64]
Safety = Literal["safe", "unclear", "broken", "control"]

SAFETY: dict[Safety | None, str] = {
    "safe": "within the margin",
    "broken": "worse than the margin",
    "unclear": "not clear yet",
    "control": "",
    None: "",
}
FEW = 5  # variants up to which each has a row for every metric


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimates:
    """Estimates of K variants, and their differences from one of them.

    Attributes
    ----------
    names : (K,) of the variants
    estimates : (K,) the mean of each
    intervals : (K, 2) that hold for all variants at once
    control : the variant that differences are from; None if there is none
    lifts : (K,) the value of each variant minus that of the control; nan without a control
    lift_intervals : (K, 2) that hold for all lifts at once
    relative : (K,) lifts as shares of the control's value; nan where that cannot be told from 0
    relative_intervals : (K, 2) that hold for all relative lifts at once
    """

    names: Sequence[str]
    estimates: Floats = field(default_factory=lambda: np.empty(0))
    intervals: Floats = field(default_factory=lambda: np.empty((0, 2)))
    control: str | None = None
    lifts: Floats = field(default_factory=lambda: np.empty(0))
    lift_intervals: Floats = field(default_factory=lambda: np.empty((0, 2)))
    relative: Floats = field(default_factory=lambda: np.empty(0))
    relative_intervals: Floats = field(default_factory=lambda: np.empty((0, 2)))

    def columns(self) -> dict[str, list[Any]]:
        """All numbers as columns, with a row for each variant."""
        return {
            "name": list(self.names),
            "estimate": self.estimates.tolist(),
            **with_ends("", self.intervals),
            "lift": self.lifts.tolist(),
            **with_ends("lift_", self.lift_intervals),
            "relative": self.relative.tolist(),
            **with_ends("relative_", self.relative_intervals),
        }


def with_ends(name: str, intervals: Floats) -> dict[str, list[float]]:
    """Two columns: where intervals begin and end."""
    return {f"{name}low": intervals[:, 0].tolist(), f"{name}high": intervals[:, 1].tolist()}


def differences(names: Sequence[str], lifts: Lifts | None) -> dict[str, Any]:
    """Return the fields of `Estimates` that compare with the control, from the lifts of a test."""
    if lifts is None:
        unknown = np.full((len(names), 2), np.nan)
        return {
            "lifts": unknown[:, 0],
            "lift_intervals": unknown,
            "relative": unknown[:, 0],
            "relative_intervals": unknown,
        }
    return {
        "control": names[lifts.control],
        "lifts": lifts.differences[0],
        "lift_intervals": np.column_stack([lifts.low[0], lifts.high[0]]),
        "relative": lifts.relative[0],
        "relative_intervals": np.column_stack([lifts.relative_low[0], lifts.relative_high[0]]),
    }


def lift_text(result: Estimates, row: int, unit: str = "") -> str:
    """A variant's difference from the control, such as "+8 % (3 to 13 %)"; relative if defined.

    unit : the unit of differences that are not relative
    """
    if result.control is None:
        return ""
    if result.names[row] == result.control:
        return "control"
    share = not np.isnan(result.relative[row])
    value = float(result.relative[row] if share else result.lifts[row])
    low, high = (result.relative_intervals if share else result.lift_intervals)[row].tolist()
    if np.isnan(value):
        return "unknown"
    return f"{'+' * (value > 0)}{by_how_much(value, low, high, share, unit)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class MetricResult(Estimates):
    """Results of one metric; of a ratio estimates are ratios of two means.

    Attributes
    ----------
    metric : its declaration
    visits : visits that this rests on: those whose window has ended
    safety : of a guardrail, by variant: "safe" if it is not worse than the control by more than
        the margin, "broken" if it is, "unclear" if neither is shown; empty for other metrics
    level : probability with which all intervals of this metric hold at once
    anytime : whether they hold at all times, or for the analysis at the end
    obstacle : why there is no result yet, in one sentence; empty if there is one
    segment : index of the last segment that this rests on; None without a result
    """

    metric: Metric
    visits: int = 0
    safety: tuple[Safety, ...] = ()
    level: float = 0.95
    anytime: bool = False
    obstacle: str = ""
    segment: int | None = None

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self.metric.name

    @property
    def broken(self) -> tuple[str, ...]:
        """Variants that are shown to be worse than the control by more than the margin."""
        return self._with("broken")

    @property
    def unsure(self) -> tuple[str, ...]:
        """Variants of which it is not shown whether they keep to the margin."""
        return self._with("unclear")

    def _with(self, wanted: Safety) -> tuple[str, ...]:
        known = self.safety or ("unclear",) * len(self.names)  # without a result nothing is shown
        pairs = zip(self.names, known, strict=True)
        return tuple(name for name, safety in pairs if safety == wanted)


class MetricRow(NamedTuple):
    """The texts of one variant in one metric.

    control : the control's value; empty if there is no control
    difference : from the control
    safety : the safety of a guardrail, whether it keeps to its margin; None for other metrics
    """

    metric: str
    role: str
    variant: str
    value: str
    control: str = ""
    difference: str = ""
    safety: Safety | None = None


def metric_rows(verdict: Verdict) -> list[MetricRow]:
    """All further metrics of a verdict, for its variants, or for the recommended one of many.

    The control's own values stand beside those of the others.
    """
    rows = []
    for result in verdict.metrics:
        role, shown = result.metric.role, result.metric.format_value
        if result.obstacle:
            rows.append(MetricRow(result.name, role, "", result.obstacle))
            continue
        control = None if result.control is None else result.names.index(result.control)
        others = [k for k in range(len(result.names)) if k != control]
        if len(others) > FEW:
            others = [k for k in others if result.names[k] == verdict.name]
        rows += [
            MetricRow(
                result.name,
                role,
                result.names[k],
                shown(float(result.estimates[k])),
                "" if control is None else shown(float(result.estimates[control])),
                lift_text(result, k, result.metric.difference_unit),
                result.safety[k] if result.safety else None,
            )
            for k in others
        ]
    return rows


def metric_cells(verdict: Verdict) -> list[tuple[str, ...]]:
    """The same as plain cells: metric, variant, value, control, difference and guardrail.

    Why a metric is not known yet is too long for a cell, see `metric_obstacles`.
    """
    return [
        (
            row.metric,
            row.variant,
            row.value if row.variant else "not yet",
            row.control,
            row.difference,
            SAFETY[row.safety],
        )
        for row in metric_rows(verdict)
    ]


def metric_obstacles(verdict: Verdict) -> list[str]:
    """Explain why metrics have no results yet, a sentence for each such metric."""
    return [f"{result.name}: {result.obstacle}" for result in verdict.metrics if result.obstacle]
