"""Analysis: what a log says, for people and for programs, and what it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis import comparing, exports, faults
from steadyarm.analysis.allocations import Described
from steadyarm.analysis.clusters import MOST_OF_ALL, Units, unit_finding
from steadyarm.analysis.log import Log
from steadyarm.analysis.splits import Split
from steadyarm.analysis.sums import Plan
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import is_one_hot
from steadyarm.inference.drift import DriftReport, drift_report
from steadyarm.inference.evidence import Evidence, json_ready
from steadyarm.inference.fit import LackOfFit
from steadyarm.inference.health import (
    ALL_ZERO,
    Finding,
    HealthReport,
    reward_findings,
    zero_finding,
)
from steadyarm.inference.intervals import Intervals, fixed_budget, variance_kept
from steadyarm.inference.limits import shortlisted
from steadyarm.inference.sequences import confidence_sequence
from steadyarm.segments import Direction
from steadyarm.wording import counted, percent, strung

if TYPE_CHECKING:
    from steadyarm.live.breakdowns import Breakdown
    from steadyarm.live.verdict import Verdict

Missing = Literal["fail", "drop", "zero"]
Rows = list[dict[str, Any]]
MOST_LABELS = 60  # periods of a drift report where there are about as many labels as pieces
MOST_LINES = 30


@dataclass(frozen=True)
class Asked:
    """What is asked of a log, and what is known of it before its sums."""

    log: Log
    table: Any
    plan: Plan
    rows: int
    arms: ArmSet | None
    described: Described | None
    broken: faults.Faults
    direction: Direction
    level: float
    reward_range: tuple[float, float] | None
    missing: Missing
    reference: bool
    thorough: bool
    budget: int | None
    by_unit: bool
    units: Units | None
    excluded: int
    covariates: tuple[str, ...] = ()
    split: Split | None = None
    rows_of: Any = None  # the table with its own units, where `table` has clusters for units
    control: str | None = None
    segments: Mapping[str, str] = field(default_factory=dict)
    pending: str = ""

    @property
    def kept(self) -> bool:
        """Whether units that are in the log several times keep their variant."""
        return self.units is not None and self.units.kept

    def bucket(self, table: Any) -> Any:
        """The fine period of each row of a table."""
        return self.plan.bucket(table.time, self.log.backend)

    def faults_of(self, rows: Rows) -> faults.Faults:
        """The faults known so far, and those that the sums show."""
        names = None if self.arms is None else self.arms.names
        return self.broken + faults.faults_in(rows, names, self.reward_range, self.missing)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The verdict on a log.

    Attributes
    ----------
    log : what was analysed
    arms : the variants
    rows, rewards : in the log, and used for estimates
    counts, means : (K,) rows with a reward and their plain mean, which drift can mislead
    intervals : estimates, intervals, gaps and the plausible set
    drift : did the world move?
    health : can the log be trusted?
    evidence : the scores behind it, for further analyses
    notes : how the log was read, one sentence each
    units : how often units are in the log, if some have several rows; variances are by unit then
    anytime : whether intervals hold at every analysis, or for one at an end fixed in advance
    covariates : what rewards are adjusted for
    raw : (K,) estimates from rewards that are not adjusted; None without covariates
    variance_kept : share of the variance of comparisons that is left after adjusting, the median
        over variants; None without covariates
    split : the shares that were given, since when and of every variant; None if the log has them
    verdict : as a live test has it: `of`, `decision`, and with a control the lifts with intervals
    segments : results by the levels of each column that was asked for
    metric : what is measured, by name, if the log was made of exposures and events
    metrics : the analyses of all metrics by name, this one first; empty if there are none by name

    Examples
    --------
    >>> import pandas as pd
    >>> import steadyarm as sa
    >>> shown = ["A", "B"] * 1000
    >>> clicks = [int(i % 10 < (4 if name == "B" else 2)) for i, name in enumerate(shown)]
    >>> when = pd.date_range("2026-03-01", periods=2000, freq="5min")
    >>> log = pd.DataFrame({"timestamp": when, "unit": range(2000), "arm": shown, "reward": clicks})
    >>> found = sa.analyze(log.assign(probability=0.5))
    >>> found.recommended, found.rows, found.counts.tolist()
    ('B', 2000, [1000, 1000])
    """

    log: str
    arms: ArmSet
    rows: int
    rewards: int
    counts: NDArray[np.int64]
    means: NDArray[np.float64]
    intervals: Intervals
    drift: DriftReport
    health: HealthReport
    evidence: Evidence
    notes: tuple[str, ...]
    verdict: Verdict
    units: Units | None = None
    anytime: bool = False
    covariates: tuple[str, ...] = ()
    raw: NDArray[np.float64] | None = None
    variance_kept: float | None = None
    split: list[dict[str, Any]] | None = None
    segments: tuple[Breakdown, ...] = ()
    metric: str = ""
    metrics: Mapping[str, Analysis] = field(default_factory=dict)

    @property
    def control(self) -> str | None:
        """The variant that others are compared with, if there is one."""
        return self.verdict.control

    @property
    def recommended(self) -> str | None:
        """The arm with the best estimate; None if all rewards are 0."""
        if any(finding.name == ALL_ZERO for finding in self.health.findings):
            return None
        return self.intervals.arms.names[int(self.intervals.recommended[0])]

    @property
    def shown(self) -> NDArray[np.int64]:
        """The arms that the rows of `intervals` are: all, or a short list of a large set."""
        shown = self.intervals.shown
        return np.arange(self.arms.size, dtype=np.int64) if shown is None else shown

    @property
    def plausible(self) -> tuple[str, ...]:
        """Arms that cannot be ruled out as the best."""
        return self.intervals.plausible_names()

    @property
    def estimates(self) -> NDArray[np.float64]:
        """(K,) estimated time-averaged reward of every arm that is `shown`."""
        return np.asarray(self.intervals.estimates[0])

    @property
    def size(self) -> str:
        """Rows, units where they repeat, and rewards, in words."""
        if self.metric:
            return f"{self.metric} of {self.rows:,} units"
        units = "" if self.units is None else f" of {counted(self.units.units, self.units.noun)}"
        return f"{self.rows:,} rows{units}, {self.rewards:,} rewards"

    @property
    def summary(self) -> str:
        """A few sentences; where a health check fails they say so instead of who is the best."""
        if self.recommended is None:
            return self.health.unhealthy
        if self.health.unhealthy:
            return f"{self.health.unhealthy} The best estimate is that of {self.recommended}."
        if self.verdict.caution:
            return f"The best estimate is that of {self.recommended}. {self.verdict.caution}"
        level = percent(self.intervals.level)
        others = [name for name in self.plausible if name != self.recommended]
        more = self.intervals.others
        if not others and not more:
            sure = f"At level {level} it is the only variant that can be the best."
        elif more:
            count = f"{len(self.plausible) + more:,} of {self.arms.size:,} variants"
            sure = f"At level {level} {count} cannot be ruled out as the best."
        elif len(others) == self.arms.size - 1:
            sure = f"At level {level} no variant can be ruled out as the best."
        else:
            sure = f"At level {level} these may be the best, too: {strung(others, 8)}."
        return f"The best variant is {self.recommended}. {sure}"

    @property
    def further(self) -> dict[str, Analysis]:
        """The metrics but this one, by name."""
        return {name: one for name, one in self.metrics.items() if name != self.metric}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is unknown or infinite is None."""
        i = self.intervals
        found: dict[str, Any] = {
            "log": self.log,
            "rows": self.rows,
            "rewards": self.rewards,
            "units": self.units,
            "anytime": self.anytime,
            "recommended": self.recommended,
            "plausible": self.plausible,
            "summary": self.summary,
            "level": i.level,
            "direction": self.evidence.direction,
            "method": i.method,
            "assumption": i.assumption,
            "arms": [
                {
                    "arm": name,
                    "rows": self.counts[arm],
                    "mean": self.means[arm],
                    "estimate": i.estimates[0, k],
                    "standard_error": i.standard_errors[0, k],
                    "interval": [i.low[0, k], i.high[0, k]],
                    "gap": i.gaps[0, k],
                    "gap_interval": [i.gap_low[0, k], i.gap_high[0, k]],
                    "plausible": i.plausible[0, k],
                }
                for k, (arm, name) in enumerate(zip(self.shown.tolist(), i.arms.names, strict=True))
            ],
            "health": self.health.to_dict(),
            "drift": self.drift.to_dict(),
            "notes": self.notes,
        }
        if self.split is not None:
            found["split"] = self.split
        found["decision"] = self.verdict.decision
        if self.control is not None:
            found["control"] = self.control
            for k, arm in enumerate(found["arms"]):
                arm |= _lift_of(self.verdict, k)
        if self.segments:
            from msgspec import to_builtins

            from steadyarm.wire.results import BreakdownAnswer

            found["segments"] = [to_builtins(BreakdownAnswer.of(one)) for one in self.segments]
        if self.raw is not None:
            found |= {
                "covariates": self.covariates,
                "variance_kept": self.variance_kept,
                "raw_estimates": self.raw,
            }
        if self.metric:
            found["metric"] = self.metric
        if self.metrics:
            found["metrics"] = {name: one.to_dict() for name, one in self.further.items()}
        plain: dict[str, Any] = json_ready(found)
        return plain

    def __str__(self) -> str:
        i = self.intervals
        level = percent(i.level)
        width = max(6, *(len(name) for name in i.arms.names)) + 2
        lines = [] if self.control is None else [self.verdict.decision.text]
        lines += [self.summary, "", f"{self.log}: {self.size}."]
        head = f"{'variant':<{width}}{'rows':>12}{'estimate':>11}{level + ', all at once':>24}"
        lines.append(f"{head}{'behind by':>11}{'plain mean':>12}")
        sign = 1 if self.evidence.direction == "maximize" else -1
        order = np.argsort(-sign * i.estimates[0], kind="stable")
        counts, means = self.counts[self.shown], self.means[self.shown]
        for k in order[:MOST_LINES]:
            reach = f"{i.low[0, k]:.4g} to {i.high[0, k]:.4g}"
            gap = "" if k == order[0] else f"{i.gaps[0, k]:.4g}"
            mark = "*" if i.plausible[0, k] else " "
            lines.append(
                f"{i.arms.names[k]:<{width}}{counts[k]:>12,}{i.estimates[0, k]:>11.4g}"
                f"{reach:>24}{gap:>11}{means[k]:>12.4g} {mark}"
            )
        if len(order) > MOST_LINES:
            more = self.arms.size - MOST_LINES
            lines.append(f"… and {more} more variants, see the JSON output")
        lines.append("* may be the best")
        if self.control is not None:
            lines += comparing.control_lines(self.verdict, order.tolist(), width, MOST_LINES)
        lines += comparing.segment_lines(self.segments)
        lines += ["", *self._further(), str(self.health), "", f"Drift: {self.drift.verdict}"]
        return "\n".join([*lines, "", *self.notes])

    def _further(self) -> list[str]:
        """The other metrics, a few lines each."""
        lines: list[str] = []
        for name, one in self.further.items():
            i = one.intervals
            width = max(6, *(len(arm) for arm in i.arms.names)) + 2
            lines.append(f"{name} of {one.rows:,} units: {_smoothed(one.summary)}")
            lines.append(one.notes[0])  # what it is
            for k, arm in list(enumerate(i.arms.names))[:MOST_LINES]:
                reach = f"{i.low[0, k]:.4g} to {i.high[0, k]:.4g}"
                lines.append(f"{arm:<{width}}{'':>12}{i.estimates[0, k]:>11.4g}{reach:>24}")
            if one.control is not None:
                order = list(range(i.arms.size))
                lines += comparing.control_lines(one.verdict, order, width, MOST_LINES)
            lines.append("")
        return lines


def _smoothed(text: str) -> str:
    return text[:1].lower() + text[1:]


def _lift_of(verdict: Verdict, row: int) -> dict[str, Any]:
    """What is said of a variant's difference from the control, by name."""
    said = verdict.of(verdict.names[row])
    return {
        "lift": said.lift,
        "lift_interval": said.lift_interval,
        "relative": said.relative,
        "relative_interval": said.relative_interval,
    }


# From the evidence to the analysis.


class Summed(NamedTuple):
    """What the sums of a log show.

    Attributes
    ----------
    arms : the variants
    evidence : of their rewards
    labels : the period of each piece of the timeline, or how many equal parts it is to have
    findings : on assignments and missing rewards
    counts, sums : (K,) of each arm's rewards
    rows : what the log was asked for
    raw : the evidence of rewards that are not adjusted for covariates, if others are
    timeline : the evidence period by period, if the other one has fewer pieces
    fit : whether the model fits; None if that was not tested
    """

    arms: ArmSet
    evidence: Evidence
    labels: list[str] | int
    findings: list[Finding]
    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    rows: Rows
    raw: Evidence | None = None
    timeline: Evidence | None = None
    fit: LackOfFit | None = None


def analysis_of(asked: Asked, summed: Summed) -> Analysis:
    """What the sums say."""
    arms, evidence, labels, findings, counts, sums, rows, raw, timeline, fit = summed
    heavy = asked.units is not None and timeline is not None
    timeline = evidence if timeline is None else timeline
    if not evidence.played[0]:
        raise no_reward(asked)
    if isinstance(labels, list) and len(set(labels)) > timeline.rounds.shape[1] // 2 > MOST_LABELS:
        labels = MOST_LABELS
    drift = drift_report(timeline, labels, asked.level)
    more, notes = _checks_and_notes(asked, rows)
    span = _span(asked, evidence)
    intervals = _intervals(asked, evidence, counts, span)
    if heavy:
        most = asked.rows // MOST_OF_ALL
        notes.append(f"The drift report leaves out units with more than {most:,} rows.")
    health = HealthReport((*findings, *more))
    beside: dict[str, Any] = {}
    if raw is not None:
        beside = _beside(asked, evidence, raw, intervals)
        left = beside["variance_kept"]
        gain = "" if left is None else f" {left:.0%} of the variance is left.".replace("%", " %")
        names = strung(list(asked.covariates), 8)
        origin = "earlier rows"
        if asked.units is not None:
            origin = f"sums over {asked.units.noun}s, those of each half for the other"
        notes.append(f"Rewards are adjusted for {names}, with slopes from {origin}.{gain}")
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return Analysis(
        log=asked.log.name,
        arms=arms,
        rows=asked.rows,
        rewards=int(counts.sum()),
        counts=counts,
        means=means,
        intervals=intervals,
        drift=drift if asked.units is None else replace(drift, method=f"{asked.units.noun}s"),
        health=health,
        evidence=evidence,
        notes=tuple(notes),
        units=asked.units,
        anytime=asked.budget is not None,
        split=None if asked.split is None else asked.split.to_list(arms),
        verdict=comparing.verdict_on(asked, evidence, intervals, health, counts, span, fit),
        **beside,
    )


def _beside(asked: Asked, evidence: Evidence, raw: Evidence, found: Intervals) -> dict[str, Any]:
    """What an analysis of adjusted rewards says of covariates."""
    if found.shown is not None:
        evidence, raw = evidence.view(found.shown), raw.view(found.shown)
    return {
        "covariates": asked.covariates,
        "raw": raw.estimates[0],
        "variance_kept": variance_kept(evidence, raw),
    }


def _checks_and_notes(asked: Asked, rows: Rows) -> tuple[list[Finding], list[str]]:
    """Further checks of the log, and how it was read."""
    log, units = asked.log, asked.units
    findings: list[Finding] = []
    if asked.reward_range is not None:
        findings += reward_findings(asked.rows, out_of_range=0, reward_range=asked.reward_range)
    if not any(row["ss"] for row in rows):
        findings.append(zero_finding(sum(int(row["m"]) for row in rows)))
    elif asked.thorough:
        findings.append(faults.largest_unit(log, asked.table))
    name = f"{asked.plan.shares} equal shares"
    if asked.plan.name != "shares":
        name = f"{asked.plan.name}s"
    notes = [f"Periods are {name}; times are in UTC."]
    mapped = log.has("unit") and log.their("unit") != "unit" and not log.single
    if mapped and not (units and units.cluster):
        notes.append(f"Units are those of the column {log.their('unit')}.")
    if units is not None:
        findings.append(unit_finding(units))
        notes.append(units.note)
    elif log.has("unit") and not asked.by_unit:
        notes.append("All rows are taken as independent, whatever their unit.")
    if asked.budget is None:
        notes.append(
            "Intervals are for one analysis: they hold if the end of the test was fixed in "
            "advance. If it was watched and might have been stopped early, use anytime (--anytime "
            "--budget ROWS)."
        )
    else:
        notes.append(
            "Intervals hold at every look at a test that was planned for "
            f"{asked.budget:,} rows, whenever it was stopped."
        )
    if asked.split is not None:
        notes.append(asked.split.note)
    if asked.described is not None:
        notes += asked.described.notes(asked.direction)
    elif asked.arms is None and exports.ours(log):
        notes.append(exports.ALONE)
    notes += [asked.pending] if asked.pending else []
    if asked.excluded:
        out = counted(asked.excluded, "row was", "rows were")
        notes.append(f"{out} excluded by hand and left out.")
    if missing := asked.rows - faults.rewards_given(rows):
        how = "left out" if asked.missing == "drop" else "counted as 0"
        notes.append(f"{missing:,} rows without reward were {how}.")
    if log.single:
        return findings, notes
    if asked.thorough:
        if log.ordered:
            findings.append(faults.order_finding(log))
        if log.has("unit"):
            table = asked.table if asked.rows_of is None else asked.rows_of
            once = asked.by_unit and units is None  # all units were counted
            findings.append(faults.NO_DUPLICATES if once else faults.duplicate_finding(log, table))
    elif (groups := faults.group_order_finding(log)) is not None:
        findings.append(groups)
        notes.append("Duplicates were not searched for.")
    else:
        notes.append("The order of rows and duplicates were not checked.")
    if asked.by_unit and log.has("unit") and units is None and not asked.thorough:
        notes.append(
            "No unit has several rows, or hardly any: of files one unit in 64 was checked."
        )
    return findings, notes


def no_reward(asked: Asked) -> InvalidInputError:
    """The error of a log without a single reward."""
    return InvalidInputError(
        f"{asked.log.name} has {asked.rows:,} rows, but not one reward. Is "
        f"{asked.log.their('reward')} the right column?"
    )


def _span(asked: Asked, evidence: Evidence) -> tuple[float, float] | None:
    """Rewards that can occur, if intervals may rely on it; of adjusted ones that is not known."""
    bounded = asked.units is None and evidence.weights is not None and not asked.covariates
    return asked.reward_range if bounded else None


def _intervals(
    asked: Asked,
    evidence: Evidence,
    counts: NDArray[np.int64],
    span: tuple[float, float] | None,
) -> Intervals:
    """For one analysis at the end, or for all; what they assume says whether it is by unit."""
    units, best, unseen = asked.units, None, None
    if evidence.arms.large and asked.control is not None:
        control = comparing.control_of(asked.control, evidence.arms, asked.log.name)
        evidence, best = shortlisted(evidence, also=[] if control is None else [control])
    if not evidence.arms.large and is_one_hot(evidence.arms.coordinates) and counts.min() == 0:
        unseen = counts == 0
    if unseen is not None:  # an arm without rewards is never recommended
        best = np.array([np.where(unseen, -np.inf, evidence.sign * evidence.estimates[0]).argmax()])
    if asked.budget is None:
        found = fixed_budget(evidence, asked.level, best)
    else:
        found = confidence_sequence(evidence, asked.budget, asked.level, span, best)
    if unseen is not None:
        found = _without(found, unseen)
    if units is None:
        return found
    method = f"{units.noun}s" if asked.budget is None else f"asymptotic, {units.noun}s"
    found = replace(found, method=method, assumption=units.assumption)
    if not units.too_few:
        return found
    unknown = np.full_like(found.low, np.inf)
    rest = np.where(np.arange(found.arms.size) == found.recommended[:, None], 0.0, np.inf)
    return replace(
        found,
        low=-unknown,
        high=unknown,
        gap_low=-rest,
        gap_high=rest,
        plausible=np.ones_like(found.plausible),
        standard_errors=unknown,
        others=evidence.arms.size - found.arms.size,
    )


def _without(found: Intervals, unseen: NDArray[np.bool_]) -> Intervals:
    """The intervals if nothing is known of some arms: they may have any value, also the best."""

    def beyond(limits: NDArray[np.float64], end: float) -> NDArray[np.float64]:
        return np.where(unseen, end, limits)

    return replace(
        found,
        low=beyond(found.low, -np.inf),
        high=beyond(found.high, np.inf),
        gap_low=beyond(found.gap_low, -np.inf),
        gap_high=beyond(found.gap_high, np.inf),
        plausible=found.plausible | unseen,
        standard_errors=beyond(found.standard_errors, np.inf),
    )
