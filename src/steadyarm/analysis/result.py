"""Analysis: what a log says, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.query import as_number
from steadyarm.analysis.source import Columns, open_log
from steadyarm.analysis.units import (
    NO_DUPLICATES,
    Units,
    duplicate_finding,
    largest_unit,
    unit_finding,
)
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.drift import DriftReport, drift_report
from steadyarm.inference.evidence import Evidence, json_ready
from steadyarm.inference.health import ALL_ZERO, Finding, HealthReport, zero_finding
from steadyarm.inference.intervals import Intervals, fixed_budget, variance_kept
from steadyarm.inference.lift import Lifts, lift_sequence, lifts
from steadyarm.inference.sequences import confidence_sequence
from steadyarm.live.estimates import lift_text
from steadyarm.live.verdict import Verdict, explain_doubt, make_decision
from steadyarm.wording import counted, did_you_mean, number, percent, reach, shortened, strung

if TYPE_CHECKING:
    from steadyarm.analysis.analyze import Question, Sample, Scored
    from steadyarm.live.breakdowns import Breakdown
    from steadyarm.live.export import ExportedTest
    from steadyarm.live.settings import Settings

Missing = Literal["fail", "drop", "zero"]
Part = TypeVar("Part", Intervals, Lifts)
MOST_LABELS = 60  # periods of a drift report where there are about as many labels as pieces
MOST_LINES = 30


@dataclass(frozen=True, eq=False)
class Analysis:
    """The verdict on a log.

    Attributes
    ----------
    log : the log that was analyzed
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
    noun : what rows are: units, if the log was made of exposures and events

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
    noun: str = "rows"

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
            return f"{self.metric} of {self.rows:,} {self.noun}"
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
            sure = f"At level {level} these may also be the best: {strung(others, 8)}."
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
                arm |= {
                    "lift": self.verdict.lifts[k],
                    "lift_interval": self.verdict.lift_intervals[k],
                    "relative": self.verdict.relative[k],
                    "relative_interval": self.verdict.relative_intervals[k],
                }
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
        lines = [] if self.control is None else [self.verdict.decision.text]
        lines += [self.summary, "", f"{self.log}: {self.size}.", *self._table()]
        for part in self.segments:
            lines += ["", f"By {part.attribute}:", str(part)]
            if part.unknown:
                rows = counted(part.unknown, "row has", "rows have")
                lines.append(f"{rows} no {part.attribute}.")
        lines.append("")
        for one in self.further.values():
            summary = one.summary[:1].lower() + one.summary[1:]
            what = one.notes[0]  # what it is
            lines += [f"{one.size}: {summary}", what, *one._table(), ""]
        lines += [str(self.health), "", f"Drift: {self.drift.verdict}", "", *self.notes]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """Estimates, and differences from the control, as text."""
        i, level = self.intervals, f"{percent(self.intervals.level)}, all at once"
        width = max(6, *(len(name) for name in i.arms.names)) + 2
        head = f"{'variant':<{width}}{'rows':>12}{'estimate':>11}{level:>24}"
        lines = [f"{head}{'behind by':>11}{'plain mean':>12}"]
        order = np.argsort(-self.evidence.sign * i.estimates[0], kind="stable").tolist()
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
            lines.append(f"… and {more} more variants (see the JSON output)")
        lines.append("* may be the best")
        lines += [self.why_means_differ] if self.why_means_differ else []
        verdict = self.verdict
        if verdict.control is None:
            return lines
        head = f"{'':<{width}}{'difference':>12}{level:>24}   against {verdict.control}"
        lines += ["", head]
        for k in [k for k in order if verdict.names[k] != verdict.control][:MOST_LINES]:
            ends, value = reach(*verdict.lift_intervals[k].tolist()), number(verdict.lifts[k])
            lines.append(
                f"{verdict.names[k]:<{width}}{value:>12}{ends:>24}   {lift_text(verdict, k)}"
            )
        return lines

    @property
    def why_means_differ(self) -> str:
        """Why plain means differ from the estimates, in one sentence; empty if they hardly do."""
        means, errors = self.means[self.shown], self.intervals.standard_errors[0]
        with np.errstate(invalid="ignore"):
            if not (np.abs(means - self.estimates) > errors / 10).any():
                return ""
        if self.raw is not None:
            return "Estimates differ from plain means because they are adjusted for the covariates."
        return (
            "Estimates differ from plain means because they correct for when each variant was "
            "shown. Plain means favour variants that were shown more at good times."
        )


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
        adjusted = {
            "covariates": tuple(question.covariates.values()),
            "raw": scored.raw.estimates[0],
            "variance_kept": variance_kept(evidence, scored.raw),
        }
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
        notes=(*_notes(sample, scored, left), *_refusals(question.metric, intervals)),
        units=sample.units,
        anytime=question.budget is not None,
        split=None if question.split is None else question.split.to_list(sample.arms),
        verdict=_verdict(sample, scored, intervals, health),
        **adjusted,
    )


def _refusals(metric: str, intervals: Intervals) -> list[str]:
    """What gives the limits that are refused, because hardly any rewards carry them."""
    known = np.isfinite([intervals.low, intervals.high])
    if known.all() or not known.any():  # not any: too few rows, or clusters
        return []
    how = f"Declare a cap (--metric '{metric} capped at NUMBER') to get it."
    if not metric:
        how = "Declare caps for what the ratio is made of."
    return [f"Too few rewards carry an interval without an end. {how}"]


def _more_findings(sample: Sample, scored: Scored) -> list[Finding]:
    """Further checks of the log."""
    log, units = sample.log, sample.units
    findings: list[Finding] = []
    if scored.all_zero:
        findings.append(zero_finding(int(scored.counts.sum())))
    elif sample.searched:
        metric = sample.question.metric
        findings.append(largest_unit(log, sample.table, metric, sample.direction))
    if units is not None:
        findings.append(unit_finding(units))
    if sample.searched and not log.single and log.has("unit") and log.has("timestamp"):
        table = sample.table if sample.rows_of is None else sample.rows_of
        once = units is None and "unit" in sample.table.columns  # all units were counted
        findings.append(NO_DUPLICATES if once else duplicate_finding(log, table))
    return findings


def _notes(sample: Sample, scored: Scored, variance_left: float | None) -> list[str]:
    """Notes on how the log was read, one sentence each."""
    log, units, question, plan = sample.log, sample.units, sample.question, sample.plan
    periods = f"{plan.shares} equal shares" if plan.name == "shares" else f"{plan.name}s"
    notes = [f"Periods are {periods}; times are in UTC."]
    if plan.name == "all":
        notes = ["The log has no times, so drift cannot be tested."]
    if log.mapping and not log.single:
        notes.append(log.mapping)
    if units is not None:
        notes.append(units.note)
        told, rows = (int(each.played[0]) for each in (scored.timeline, scored.evidence))
        if told < rows:
            notes.append(
                f"Drift is tested with {told:,} of {rows:,} rewards: in the other periods a few "
                f"{units.noun}s have most rows."
            )
    notes.append(
        "Intervals hold for one analysis at an end that was fixed in advance. If the test was "
        "watched and might have been stopped early, give the budget (--budget ROWS)."
        if question.budget is None
        else f"Intervals hold at every look, for a test planned for {question.budget:,} rows."
    )
    if question.split is not None:
        notes.append(question.split.note)
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
            f"Rewards are adjusted for {names}; the slopes for each half of the {noun} are fitted "
            f"on the other half.{gain}"
        )
    return notes


def _intervals(sample: Sample, evidence: Evidence, counts: NDArray[np.int64]) -> Intervals:
    """For one analysis at the end, or for all; what they assume says whether it is by unit."""
    question, units, best, unseen = sample.question, sample.units, None, None
    if counts.min() == 0:
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
    return _without(found, np.ones(found.arms.size, dtype=bool))


def _without(found: Intervals, unknown: NDArray[np.bool_]) -> Intervals:
    """The intervals if nothing is known of some arms: they may have any value, also the best."""
    gaps = unknown & (np.arange(len(unknown)) != found.recommended[0])
    found = _with(found, unknown, low=-np.inf, high=np.inf, plausible=True, standard_errors=np.inf)
    return _with(found, gaps, gap_low=-np.inf, gap_high=np.inf)


def _with(found: Part, where: NDArray[np.bool_], **values: float) -> Part:
    """Intervals or lifts with these values in place of some."""
    new: dict[str, Any] = {
        name: np.where(where, value, getattr(found, name)) for name, value in values.items()
    }
    return replace(found, **new)


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
        f"the control {shortened(control)} is not one of the arms of {log}: "
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
    verdict = replace(verdict, caution=explain_doubt(verdict, direction, lambda: None))
    over = budget is None or rows >= budget
    decision = make_decision(verdict, direction, budget or rows, over, spent=over)
    return replace(verdict, decision=decision)


def _lifts(sample: Sample, evidence: Evidence, intervals: Intervals) -> Lifts | None:
    """Differences from the control; None without one."""
    question = sample.question
    control = _control_index(question.control, evidence.arms, sample.log.name)
    if control is None:
        return None
    if question.budget is None:
        found = lifts(evidence, control, question.level, intervals=intervals)
    else:
        found = lift_sequence(
            evidence, question.budget, control, question.level, None, intervals=intervals
        )
    unknown = ~np.isfinite(intervals.standard_errors[0])
    others = (unknown | unknown[control]) & (np.arange(len(unknown)) != control)
    relative = dict.fromkeys(("relative", "relative_low", "relative_high"), np.nan)
    return _with(found, others, low=-np.inf, high=np.inf, standard_errors=np.inf, **relative)


# Exports of live tests: what the test itself says.


def find_export(source: Any) -> Path | None:
    """The log, if it is one file that was exported with its description beside it."""
    if isinstance(source, (list, tuple)) and len(source) == 1:
        source = source[0]
    if not isinstance(source, (str, Path)) or "://" in str(source):
        return None
    return Path(source) if Path(f"{source}.experiment.json").is_file() else None


@contextmanager
def unpack(source: Any) -> Iterator[Any]:
    """The log within a .zip file that a dashboard gave, beside its description; else the source."""
    name = source[0] if isinstance(source, (list, tuple)) and len(source) == 1 else source
    if not isinstance(name, (str, Path)) or Path(name).suffix.lower() != ".zip":
        yield source
        return
    with TemporaryDirectory() as folder:
        try:
            with ZipFile(name) as file:
                file.extractall(folder)
        except (BadZipFile, OSError) as error:
            raise InvalidInputError(f"{name} cannot be read: {error}") from None
        logs = [log for log in Path(folder).iterdir() if log.suffix == ".csv"]
        yield logs[0] if len(logs) == 1 else folder


@dataclass(frozen=True, eq=False)
class OwnTest:
    """A live test as it stood when it was exported to `path`."""

    path: Path
    exported: ExportedTest
    settings: Settings

    def answers(self, question: Question) -> bool:
        """Whether a question is about the test as it was declared."""
        asked = question.covariates.values()
        return (
            question.direction == self.settings.direction
            and (not asked or tuple(asked) == tuple(self.settings.covariates))
            and set(question.segments.values()) <= set(self.settings.attributes)
        )


def read_test(path: Path) -> OwnTest:
    """The test whose log is at `path`, with its description beside it."""
    from steadyarm.live.export import read_export  # which imports all that storages keep
    from steadyarm.live.settings import Settings

    try:
        test = read_export(path)
        return OwnTest(path, test, Settings.from_dict(test.snapshot.experiment.config))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{path.name} cannot be read together with the description beside it: {error} Export "
            f"the test again, or remove {path.name}.experiment.json to analyse the rows alone."
        ) from None


def own_analysis(test: OwnTest, control: str | None, level: float, by: Sequence[str]) -> Analysis:
    """The settings of a test in its own export: budget, stopping rule and state.

    control : if not the one that was declared; by : attributes whose levels have results
    """
    from steadyarm.live.moment import Moment
    from steadyarm.live.results import with_outlier
    from steadyarm.live.stopping import find_early_stop

    path, exported, head = test.path, test.exported, test.exported.snapshot.experiment
    settings = replace(test.settings, control=control)
    _control_index(control, settings.arms, path.name)
    stopped = find_early_stop(lambda name: exported.trace.entries, settings, head)
    moment = Moment(
        settings, exported.snapshot, exported.days, exported.series, exported.exported, stopped
    )
    verdict, results = moment.recommend(level), moment.results
    unbiased = settings.policy.unbiased
    evidence = results.evidence if unbiased else results.raw_evidence
    counts, sums = np.zeros(settings.arms.size, dtype=np.int64), np.zeros(settings.arms.size)
    for piece in results.judged():
        columns = slice(None) if piece.segment.arms is None else piece.segment.arms
        counts[columns] += piece.stats.counts[0]
        sums[columns] += results.sign * piece.stats.sums[0]
    notes = [
        f"Verdict and intervals are those of the test {head.name}, on "
        f"{counted(verdict.judged, 'visit')} of {settings.budget:,} planned."
    ]
    if verdict.waiting:
        newest = counted(verdict.waiting, "visit was", "visits were")
        notes.append(f"The newest {newest} left out: some of their rewards may still come.")
    if results.excluded:
        out = counted(results.excluded, "visit was", "visits were")
        notes.append(f"{out} excluded by hand and left out.")
    if verdict.missing:
        how = "left out" if settings.missing == "drop" else "counted as 0"
        notes.append(f"{counted(verdict.missing, 'visit')} without reward: {how}.")
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return Analysis(
        log=path.name,
        arms=settings.arms,
        rows=verdict.judged,
        rewards=verdict.rewards,
        counts=counts,
        means=means,
        intervals=_intervals_of(verdict, settings.arms),
        drift=drift_report(evidence, 4, level, settings.budget, results.ended),
        health=with_outlier(results, None if results.clicks else _furthest_reward(path)),
        evidence=evidence,
        notes=tuple(notes),
        verdict=verdict,
        anytime=verdict.anytime,
        covariates=() if verdict.raw is None else tuple(settings.covariates),
        raw=verdict.raw,
        variance_kept=verdict.variance_kept,
        segments=tuple(moment.breakdown(name, level) for name in by),
    )


def _furthest_reward(path: Path) -> tuple[str, float] | None:
    """The unit with the reward furthest from 0 in an exported log, and this reward."""
    with closing(open_log(path, None, Columns(), {})) as log:
        table = log.table.mutate(r=as_number(log, log.table.reward))
        size = table.r.abs()
        [row] = log.fetch(table.aggregate(unit=table.unit.argmax(size), r=table.r.argmax(size)))
    return None if row["r"] is None else (str(row["unit"]), float(row["r"]))


def _intervals_of(verdict: Verdict, arms: ArmSet) -> Intervals:
    """The numbers of a live test's verdict as those of a log."""
    low, high = verdict.intervals.T[:, None]
    gap_low, gap_high = verdict.gap_intervals.T[:, None]
    return Intervals(
        arms=arms if verdict.shown is None else arms.subset(verdict.shown),
        recommended=np.array([verdict.row]),
        estimates=verdict.estimates[None],
        low=low,
        high=high,
        gaps=verdict.gaps[None],
        gap_low=gap_low,
        gap_high=gap_high,
        plausible=np.array([[name in verdict.plausible for name in verdict.names]]),
        winner=np.array([verdict.sure]),
        too_few=~np.isfinite(high - low),
        standard_errors=verdict.standard_errors[None],
        rounds=np.array([verdict.judged]),
        level=verdict.level,
        method=verdict.method,
        assumption=verdict.assumption,
        shown=verdict.shown,
        others=verdict.others,
    )
