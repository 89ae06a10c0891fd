"""Analysis: what a log says, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis import checks, exports
from steadyarm.analysis.units import Units
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import is_one_hot
from steadyarm.inference.drift import DriftReport, drift_report
from steadyarm.inference.evidence import Evidence, json_ready
from steadyarm.inference.health import ALL_ZERO, Finding, HealthReport, zero_finding
from steadyarm.inference.intervals import Intervals, fixed_budget, variance_kept
from steadyarm.inference.lift import Lifts, lift_sequence, lifts
from steadyarm.inference.limits import shortlisted
from steadyarm.inference.sequences import confidence_sequence
from steadyarm.live.estimates import lift_text
from steadyarm.live.verdict import Verdict, decision_of, doubt_of
from steadyarm.wording import counted, did_you_mean, number, percent, reach, shortened, strung

if TYPE_CHECKING:
    from steadyarm.analysis.analyze import Sample, Scored
    from steadyarm.live.breakdowns import Breakdown

Missing = Literal["fail", "drop", "zero"]
MOST_LABELS = 60  # periods of a drift report where there are about as many labels as pieces
MOST_LINES = 30


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

            from steadyarm.wire.responses import BreakdownAnswer

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
            limits = reach(i.low[0, k], i.high[0, k])
            gap = "" if k == order[0] else f"{i.gaps[0, k]:.4g}"
            mark = "*" if i.plausible[0, k] else " "
            lines.append(
                f"{i.arms.names[k]:<{width}}{counts[k]:>12,}{i.estimates[0, k]:>11.4g}"
                f"{limits:>24}{gap:>11}{means[k]:>12.4g} {mark}"
            )
        if len(order) > MOST_LINES:
            more = self.arms.size - MOST_LINES
            lines.append(f"… and {more} more variants, see the JSON output")
        lines.append("* may be the best")
        if self.control is not None:
            lines += _control_lines(self.verdict, order.tolist(), width, MOST_LINES)
        lines += _segment_lines(self.segments)
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
                limits = reach(i.low[0, k], i.high[0, k])
                lines.append(f"{arm:<{width}}{'':>12}{i.estimates[0, k]:>11.4g}{limits:>24}")
            if one.control is not None:
                order = list(range(i.arms.size))
                lines += _control_lines(one.verdict, order, width, MOST_LINES)
            lines.append("")
        return lines


def _smoothed(text: str) -> str:
    return text[:1].lower() + text[1:]


def _lift_of(verdict: Verdict, row: int) -> dict[str, Any]:
    """What is said of a variant's difference from the control, by name."""
    return {
        "lift": verdict.lifts[row],
        "lift_interval": verdict.lift_intervals[row],
        "relative": verdict.relative[row],
        "relative_interval": verdict.relative_intervals[row],
    }


# From the scores to the analysis.


def conclude(sample: Sample, scored: Scored) -> Analysis:
    """What the sums say."""
    question, evidence, counts = sample.question, scored.evidence, scored.counts
    timeline, labels = scored.timeline, scored.labels
    periods: list[str] | int = labels
    if len(set(labels)) > timeline.rounds.shape[1] // 2 > MOST_LABELS:
        periods = MOST_LABELS
    drift = drift_report(timeline, periods, question.level)
    health = HealthReport((*scored.findings, *_more_findings(sample, scored)))
    intervals = _intervals(sample, evidence, counts)
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, scored.sums / np.maximum(counts, 1), np.nan)
    adjusted: dict[str, Any] = {}
    if scored.raw is not None:
        adjusted = _beside(tuple(question.covariates.values()), evidence, scored.raw, intervals)
    left = adjusted.get("variance_kept")
    return Analysis(
        log=sample.log.name,
        arms=sample.arms,
        rows=sample.rows,
        rewards=int(counts.sum()),
        counts=counts,
        means=means,
        intervals=intervals,
        drift=drift if sample.units is None else replace(drift, method=f"{sample.units.noun}s"),
        health=health,
        evidence=evidence,
        notes=tuple(_notes(sample, scored, left)),
        units=sample.units,
        anytime=question.budget is not None,
        split=None if question.split is None else question.split.to_list(sample.arms),
        verdict=_verdict(sample, scored, intervals, health),
        **adjusted,
    )


def _beside(
    covariates: tuple[str, ...], evidence: Evidence, raw: Evidence, intervals: Intervals
) -> dict[str, Any]:
    """What an analysis of adjusted rewards says of covariates."""
    if intervals.shown is not None:
        evidence, raw = evidence.view(intervals.shown), raw.view(intervals.shown)
    return {
        "covariates": covariates,
        "raw": raw.estimates[0],
        "variance_kept": variance_kept(evidence, raw),
    }


def _more_findings(sample: Sample, scored: Scored) -> list[Finding]:
    """Further checks of the log."""
    log, units = sample.log, sample.units
    findings: list[Finding] = []
    if scored.all_zero:
        findings.append(zero_finding(int(scored.counts.sum())))
    elif sample.searched:
        findings.append(checks.largest_unit(log, sample.table))
    if units is not None:
        findings.append(checks.unit_finding(units))
    if sample.searched and not log.single and log.has("unit"):
        table = sample.table if sample.rows_of is None else sample.rows_of
        once = units is None and "unit" in sample.table.columns  # all units were counted
        findings.append(checks.NO_DUPLICATES if once else checks.duplicate_finding(log, table))
    return findings


def _notes(sample: Sample, scored: Scored, variance_left: float | None) -> list[str]:
    """How the log was read, one sentence each."""
    log, units, question, plan = sample.log, sample.units, sample.question, sample.plan
    periods = f"{plan.shares} equal shares" if plan.name == "shares" else f"{plan.name}s"
    notes = [f"Periods are {periods}; times are in UTC."]
    mapped = log.has("unit") and log.their("unit") != "unit" and not log.single
    if mapped and not (units and units.cluster):
        notes.append(f"Units are those of the column {log.their('unit')}.")
    if units is not None:
        notes.append(units.note)
        told, rows = (int(each.played[0]) for each in (scored.timeline, scored.evidence))
        if told < rows:
            notes.append(
                f"Drift is told from {told:,} of {rows:,} rewards: a few {units.noun}s with many "
                "rows dominate the other periods."
            )
    notes.append(
        "Intervals are for one analysis: they hold if the end of the test was fixed in advance. If "
        "it was watched and might have been stopped early, give the budget (--budget ROWS)."
        if question.budget is None
        else "Intervals hold at every look at a test that was planned for "
        f"{question.budget:,} rows, whenever it was stopped."
    )
    if question.split is not None:
        notes.append(question.split.note)
    if sample.described is not None:
        notes += sample.described.notes(sample.direction)
    elif question.arms is None and exports.ours(log):
        notes.append(exports.ALONE)
    notes += [sample.pending] if sample.pending else []
    if sample.excluded:
        out = counted(sample.excluded, "row was", "rows were")
        notes.append(f"{out} excluded by hand and left out.")
    if missing := sample.rows - scored.given:
        how = "left out" if sample.missing == "drop" else "counted as 0"
        notes.append(f"{missing:,} rows without reward were {how}.")
    if not sample.searched and not log.single:
        notes.append("Duplicates were not checked.")
    if question.covariates:
        names = strung(list(question.covariates.values()), 8)
        noun = "rows" if units is None else f"{units.noun}s"
        gain = (
            ""
            if variance_left is None
            else f" {100 * variance_left:.0f} % of the variance is left."
        )
        notes.append(
            f"Rewards are adjusted for {names}, with slopes of each half of the {noun} for the "
            f"other.{gain}"
        )
    return notes


def _intervals(sample: Sample, evidence: Evidence, counts: NDArray[np.int64]) -> Intervals:
    """For one analysis at the end, or for all; what they assume says whether it is by unit."""
    question, units, best, unseen = sample.question, sample.units, None, None
    if evidence.arms.large and question.control is not None:
        control = _control_index(question.control, evidence.arms, sample.log.name)
        evidence, best = shortlisted(evidence, also=[] if control is None else [control])
    if not evidence.arms.large and is_one_hot(evidence.arms.coordinates) and counts.min() == 0:
        unseen = counts == 0  # an arm without rewards is never recommended
        best = np.array([np.where(unseen, -np.inf, evidence.sign * evidence.estimates[0]).argmax()])
    if question.budget is None:
        found = fixed_budget(evidence, question.level, best)
    else:
        found = confidence_sequence(evidence, question.budget, question.level, None, best)
    if unseen is not None:
        found = _without(found, unseen)
    if units is None:
        return found
    method = f"{units.noun}s" if question.budget is None else f"asymptotic, {units.noun}s"
    found = replace(found, method=method, assumption=units.assumption)
    if not units.too_few:
        return found
    others = evidence.arms.size - found.arms.size
    return replace(_without(found, np.ones(found.arms.size, dtype=bool)), others=others)


def _without(found: Intervals, unknown: NDArray[np.bool_]) -> Intervals:
    """The intervals if nothing is known of some arms: they may have any value, also the best."""
    gaps = unknown & (np.arange(len(unknown)) != found.recommended[0])
    return replace(
        found,
        low=np.where(unknown, -np.inf, found.low),
        high=np.where(unknown, np.inf, found.high),
        gap_low=np.where(gaps, -np.inf, found.gap_low),
        gap_high=np.where(gaps, np.inf, found.gap_high),
        plausible=found.plausible | unknown,
        standard_errors=np.where(unknown, np.inf, found.standard_errors),
    )


# Against a control, in the words of a live test.


def _control_index(control: Any, arms: ArmSet, log: str) -> int | None:
    """The index of the control among the arms; None if there is none."""
    if control is None:
        return None
    if isinstance(control, str) and control in arms.names:
        return arms.index(control)
    alike = [name for name in arms.names if name.strip().lower() == str(control).strip().lower()]
    near = f"; did you mean {alike[0]!r}?" if alike else did_you_mean(str(control), arms.names)
    raise InvalidInputError(
        f"the control {shortened(control)} is no arm of {log}; the arms are "
        f"{strung([repr(name) for name in arms.names], 8)}{near}",
        field="control",
    )


def _verdict(sample: Sample, scored: Scored, intervals: Intervals, health: HealthReport) -> Verdict:
    """The verdict as a live test has it: what to do and, with a control, lifts."""
    budget, rows, direction = sample.question.budget, sample.rows, sample.direction
    rewards = int(scored.counts.sum())
    verdict = Verdict.from_intervals(
        intervals,
        sample.arms.size,
        anytime=budget is not None,
        lifts=_lifts(sample, scored.evidence, intervals),
        rewards=rewards,
        missing=rows - rewards,
        judged=rows,
        unhealthy=health.unhealthy,
    )
    verdict = replace(verdict, caution=doubt_of(verdict, direction, lambda: scored.fit))
    over = budget is None or rows >= budget
    decision = decision_of(verdict, direction, budget or rows, over, spent=over)
    return replace(verdict, decision=decision)


def _lifts(sample: Sample, evidence: Evidence, intervals: Intervals) -> Lifts | None:
    """Differences from the control; None without one."""
    question = sample.question
    control = _control_index(question.control, evidence.arms, sample.log.name)
    if control is None:
        return None
    if intervals.shown is not None:
        evidence = evidence.view(intervals.shown)
        control = int(np.searchsorted(intervals.shown, control))
    if question.budget is None:
        found = lifts(evidence, control, question.level, intervals=intervals)
    else:
        found = lift_sequence(
            evidence, question.budget, control, question.level, None, intervals=intervals
        )
    unknown = ~np.isfinite(intervals.standard_errors[0])
    return _lifts_without(found, unknown | unknown[control]) if unknown.any() else found


def _lifts_without(found: Lifts, unknown: NDArray[np.bool_]) -> Lifts:
    """The lifts if nothing is known of some arms."""
    others = unknown & (np.arange(len(unknown)) != found.control)
    return replace(
        found,
        low=np.where(others, -np.inf, found.low),
        high=np.where(others, np.inf, found.high),
        relative=np.where(others, np.nan, found.relative),
        relative_low=np.where(others, np.nan, found.relative_low),
        relative_high=np.where(others, np.nan, found.relative_high),
        standard_errors=np.where(others, np.inf, found.standard_errors),
    )


# As text.


def _segment_lines(parts: Sequence[Breakdown]) -> list[str]:
    """Breakdowns as text."""
    lines: list[str] = []
    for part in parts:
        lines += ["", f"By {part.attribute}:", str(part)]
        if part.unknown:
            rows = counted(part.unknown, "row has", "rows have")
            lines.append(f"{rows} no {part.attribute}.")
    return lines


def _control_lines(verdict: Verdict, order: Sequence[int], width: int, most: int) -> list[str]:
    """Differences from the control as text."""
    level = f"{percent(verdict.level)}, all at once"
    head = f"{'':<{width}}{'difference':>12}{level:>24}   against {verdict.control}"
    lines = ["", head.rstrip()]
    others = [k for k in order if verdict.names[k] != verdict.control]
    for k in others[:most]:
        ends = reach(*verdict.lift_intervals[k].tolist())
        value = number(float(verdict.lifts[k]))
        lines.append(f"{verdict.names[k]:<{width}}{value:>12}{ends:>24}   {lift_text(verdict, k)}")
    return lines
