"""analyze: the verdict on a test that ran elsewhere, from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis import units
from steadyarm.analysis.query import (
    Faults,
    Floats,
    Plan,
    Rows,
    Split,
    as_unit,
    check_arms,
    faults_in,
    no_time,
    own_probability,
    plan_periods,
    readable,
    refuse,
    row_sums,
    validate_split,
    with_split,
    without_cluster,
)
from steadyarm.analysis.result import (
    Analysis,
    Missing,
    conclude,
    find_export,
    own_analysis,
    read_test,
    unpack,
)
from steadyarm.analysis.source import ATTRIBUTE, COVARIATE, Columns, Source, no_column, open_log
from steadyarm.analysis.units import Stretch, Units
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.health import Finding, HealthReport, health_report
from steadyarm.segments import Direction
from steadyarm.validation import check_choice, check_fraction, whole_number
from steadyarm.wording import counted, shortened, strung

if TYPE_CHECKING:
    from steadyarm.analysis.events import Events, Measures
    from steadyarm.live.breakdowns import Breakdown
    from steadyarm.live.metrics import Metric

MOST_ARMS = 1_000
MOST_COLUMNS = 8  # columns whose levels results are split by
MOST_LEVELS = 20  # of a column, besides "other"
SMALL = 5_000_000  # rows up to which order and duplicates are checked


@dataclass(frozen=True)
class Question:
    """The question to a log; see `analyze`. Columns map our names to those of the log."""

    names: tuple[str, ...]
    split: Split | None
    control: str | None
    covariates: Mapping[str, str]
    segments: Mapping[str, str]
    cluster: Mapping[str, str]
    direction: Direction | None
    level: float
    missing: Missing | None
    budget: int | None
    period: str
    bounds: tuple[float, float] | None = None
    cap: float | None = None
    metric: str = ""  # as people write it, without its cap; empty for a ratio

    @property
    def extra(self) -> dict[str, str]:
        """Further columns that are needed."""
        return {**self.covariates, **self.segments, **self.cluster}


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows that are analysed, and what is known of them before they are added up.

    Attributes
    ----------
    log, table : where they are, and with readable columns; units are clusters if these were asked
    arms : the variants
    rows : how many
    plan : their periods
    broken : faults that are known already
    units : how often units are there; None if each row is one
    rows_of : the table with its own units, where `table` has clusters for units
    excluded : rows that were left out by hand
    """

    log: Source
    table: Any
    arms: ArmSet
    rows: int
    plan: Plan
    question: Question
    direction: Direction
    missing: Missing
    broken: Faults = field(default_factory=list)
    units: Units | None = None
    rows_of: Any = None
    excluded: int = 0

    @property
    def kept(self) -> bool:
        """Whether units that are in the log several times keep their variant."""
        return self.units is not None and self.units.kept

    @property
    def searched(self) -> bool:
        """Whether order and duplicates are checked."""
        return self.rows <= SMALL

    @property
    def allocations(self) -> list[Floats]:
        """(K,) the allocation of each period of the split; empty if there is none."""
        return [] if self.question.split is None else self.question.split.allocations(self.arms)


@dataclass(frozen=True, eq=False)
class Scored:
    """Results that are computed from the sums of a log.

    Attributes
    ----------
    evidence : the evidence of rewards, adjusted for covariates if there are any
    timeline : the same by period, which drift is told from
    labels : the labels of the periods
    findings : on assignments and missing rewards
    counts, sums : (K,) of each arm's rewards
    given : rewards that stand in the log
    all_zero : whether all rewards are 0
    raw : the evidence of rewards that are not adjusted, if others are
    """

    evidence: Evidence
    timeline: Evidence
    labels: list[str]
    findings: list[Finding]
    counts: NDArray[np.int64]
    sums: Floats
    given: int
    all_zero: bool
    raw: Evidence | None = None


def analyze(
    source: Any,
    *,
    metrics: Any = (),
    events: Events | None = None,
    query: str | None = None,
    columns: Columns | None = None,
    split: Any = None,
    control: str | None = None,
    direction: Direction | None = None,
    level: float = 0.95,
    missing: Missing | None = None,
    budget: int | None = None,
    period: str = "auto",
) -> Analysis:
    """The verdict on a test that ran elsewhere, from its log, wherever that lives.

    The log of a live test that has its description beside it, or is in the .zip file of the
    dashboard, gets the verdict of the test itself: direction, control, missing rewards, budget,
    stopping rule and state are those of the test.

    Parameters
    ----------
    source : a CSV or Parquet file, a folder or pattern or list of them, a SQLite or DuckDB file,
        the URL of a database, a DataFrame (pandas, polars, Arrow), or an Ibis table. With `events`
        it holds the exposures: who saw which variant when (unit, timestamp, arm, …); the first
        exposure of a unit counts
    metrics : columns that are measured, such as ["converted", "revenue capped at 500", "basket =
        revenue / orders", "refunds, minimize"], or `Metric` objects that are called like columns;
        the first one is what the verdict is about. By default the column reward
    events : `Events`: who did what when, and what is measured of it
    query : the name of a table of a database, or a query; files and frames are the table log in it
    columns : `Columns`: what the columns are called, and covariates, segments and clusters
    split : the fixed shares with which arms were drawn, for a log without probabilities: "equal",
        {"A": 0.5, "B": 0.3, "C": 0.2}, or ["equal", ("2026-03-08", {"A": 0.9, "B": 0.1})] for
        shares that changed
    control : the arm that others are compared with; the result has lifts against it, absolute and
        relative, with intervals, and says what to do
    direction : "maximize" (the default) or "minimize" the reward
    level : the level of the intervals
    missing : what to do with rows without a reward: "fail" (the default), "drop" them, or count
        them as "zero"
    budget : rows that were planned for a test that was watched and might have been stopped at any
        time; intervals then hold at every interim analysis. By default they hold for one analysis
        at an end that was fixed in advance
    period : "hour", "day", "week", "month", "shares:20" or "auto", for the drift report

    Returns
    -------
    Analysis : estimates, intervals, drift, health, and the verdict

    Examples
    --------
    >>> import random, tempfile, pathlib
    >>> import steadyarm as sa
    >>> visits, lines = random.Random(1), ["timestamp,unit,arm,reward"]
    >>> for i in range(4000):
    ...     arm = visits.choice("AB")
    ...     click = int(visits.random() < {"A": 0.2, "B": 0.3}[arm])
    ...     lines.append(f"2026-03-{1 + i // 400:02} 12:00:00,{i},{arm},{click}")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = pathlib.Path(folder, "log.csv")
    ...     _ = log.write_text(chr(10).join(lines))
    ...     found = sa.analyze(log, split="equal")
    >>> found.recommended, found.plausible, found.rows
    ('B', ('B',), 4000)
    """
    check_fraction(level, "level")
    if direction is not None:
        check_choice(direction, "direction", ("maximize", "minimize"))
    if missing is not None:
        check_choice(missing, "missing", ("fail", "drop", "zero"))
    if budget is not None:
        whole_number(budget, "budget", least=1)
    columns = Columns() if columns is None else columns
    if not isinstance(columns, Columns):
        raise InvalidInputError.of("columns", columns, 'Columns, such as sa.Columns(arm="shown")')
    shares = validate_split(split)
    question = Question(
        names=shares.names if shares is not None else (),
        split=shares,
        control=control,
        covariates=_covariates(columns),
        segments=_columns_of(ATTRIBUTE, columns.segments, columns, "segments"),
        cluster=units.cluster_columns(columns.cluster, columns.unit is not None),
        direction=direction,
        level=level,
        missing=missing,
        budget=budget,
        period=period,
    )
    if events is not None or metrics:
        from steadyarm.analysis.events import open_measures

        with closing(open_measures(source, query, events, metrics, columns, question)) as measures:
            return _analyze_metrics(measures, question)
    with unpack(source) as source:
        path = find_export(source)
        others = (query, split, missing, budget)
        if path is not None:
            test = read_test(path)
            question = replace(
                question,
                control=control or test.settings.control,
                direction=direction or test.settings.direction,
            )
            plain = replace(columns, covariates=(), segments=()) == Columns()
            if plain and all(x is None for x in others) and test.answers(question):
                return own_analysis(
                    test, question.control, level, tuple(question.segments.values())
                )
        with closing(open_log(source, query, columns, question.extra)) as log:
            return analyze_log(log, replace(question, metric=log.their("reward")))


def _covariates(columns: Columns) -> dict[str, str]:
    if not columns.covariates:
        return {}
    from steadyarm.covariates import validate_covariates

    names = validate_covariates(columns.covariates)
    return _columns_of(COVARIATE, names, columns, "covariates")


def _columns_of(prefix: str, given: Sequence[str], columns: Columns, field: str) -> dict[str, str]:
    """Our names to theirs of covariates, or of the columns that results are split by."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidInputError.of(field, given, 'names of columns, such as ["country"]')
    if len(names) > MOST_COLUMNS or len(set(names)) < len(names):
        raise InvalidInputError(
            f"the {field} are {shortened(names)}; expected at most {MOST_COLUMNS} different "
            "columns.",
            field=field,
        )
    for ours in ("reward", "arm"):
        if (theirs := columns.names.get(ours, ours)) in names:
            raise InvalidInputError(
                f"{theirs!r} is the {ours}; {field} must be known before the assignment.",
                field=field,
            )
    return {f"{prefix}{i}": name for i, name in enumerate(names, 1)}


# Several metrics.


def _analyze_metrics(measures: Measures, question: Question) -> Analysis:
    """The analysis of the first metric, which has those of all in `metrics`.

    Intervals of the first metric have the level by themselves, those of all others at once.
    """
    metrics = measures.measured.metrics
    further = max(len(metrics) - 1, 1)
    analyses: dict[str, Analysis] = {}
    notes: list[str] = []
    if further > 1:
        notes.append(f"Intervals of the {further} further metrics hold together.")
    for place, metric in enumerate(metrics):
        level = question.level if place == 0 else 1 - (1 - question.level) / further
        about = replace(question, direction=metric.direction, level=level)
        try:
            analyses[metric.name] = _analyze_metric(measures, metric, about)
        except RewardsPendingError as error:
            if place == 0:
                raise InvalidInputError(str(error)) from None
            notes.append(f"There is no result of {metric.name}: {error}")
    first = analyses[metrics[0].name]
    return replace(first, metrics=analyses, notes=(*first.notes, *notes))


def _analyze_metric(measures: Measures, metric: Metric, question: Question) -> Analysis:
    from steadyarm.analysis.events import ratio_reward

    about = []
    if metric.ratio is None:
        question = replace(
            question,
            bounds=measures.bounds(metric),
            cap=metric.cap,
            metric=measures.measured.without_cap(metric),
        )
        log, waiting = measures.log_of(metric)
        analysis = _within_range(analyze_log(log, question), metric)
    else:
        if question.segments:
            about.append(f"{metric.name} has no results by segment, because it is a ratio.")
            question = replace(question, segments={})
        logs = [measures.log_of(metric, lambda *both, k=place: both[1 + k])[0] for place in (0, 1)]
        parts = [analyze_log(log, question) for log in logs]
        below = measures.measured.parts(metric)[1].text
        estimates = [part.estimates for part in parts]
        reward = ratio_reward(logs[1], metric.name, below, parts[0].arms, estimates)
        log, waiting = measures.log_of(metric, reward)
        analysis = analyze_log(log, question)
        sums = [part.means * part.counts for part in parts]
        with np.errstate(invalid="ignore", divide="ignore"):
            analysis = replace(analysis, means=sums[0] / sums[1])
    health = HealthReport((*analysis.health.findings, *measures.findings))
    notes = (*measures.about(metric, waiting), *about, *measures.notes, *analysis.notes)
    noun = "units" if log.single else "rows"
    return replace(analysis, metric=metric.name, noun=noun, health=health, notes=notes)


def _within_range(found: Analysis, metric: Metric) -> Analysis:
    """The analysis, without limits of means that a metric cannot have."""
    low, high = metric.clip(found.intervals.low), metric.clip(found.intervals.high)
    limits = np.column_stack([low[0], high[0]])
    return replace(
        found,
        intervals=replace(found.intervals, low=low, high=high),
        verdict=replace(found.verdict, intervals=limits),
    )


# One log.


def analyze_log(log: Source, question: Question) -> Analysis:
    """The analysis of an open log."""
    sample = _sample(with_split(log, question.split), question)
    analysis = conclude(sample, score(sample))
    notes, parts = list(analysis.notes), []
    for ours, theirs in question.segments.items():
        part, note = _breakdown(sample, analysis, ours, theirs)
        parts.append(part)
        notes += [note] if note else []
    return replace(analysis, segments=tuple(parts), notes=tuple(notes))


def _sample(log: Source, question: Question) -> Sample:
    """The rows of a log, with readable columns, checked as far as no sums are needed."""
    if not log.has("reward"):
        raise no_column(log.name, "log", "reward", "reward", log.there)
    table, excluded = _without_excluded(log)
    absent: Missing = question.missing or "fail"
    frame = readable(log, table, absent == "zero", question.cap)
    time = frame.time
    each = frame.group_by("arm").aggregate(
        n=frame.count(), timed=time.count(), first=time.min(), last=time.max()
    )
    counts = log.fetch(each)
    rows = sum(row["n"] for row in counts)
    if not rows:
        raise InvalidInputError(f"{log.name} has no rows; expected one for each assignment.")
    untimed = rows - sum(row["timed"] for row in counts)
    broken: Faults = [(no_time(log), untimed)] if untimed else []
    if untimed == rows:
        refuse(log, broken)
    timed = [row for row in counts if row["timed"]]
    plan = Plan("all", "D")
    if log.has("timestamp"):
        first, last = min(row["first"] for row in timed), max(row["last"] for row in timed)
        plan = plan_periods(question.period, first, last)
    by_arm = {row["arm"]: row["n"] for row in counts if row["arm"]}
    if question.split is not None:
        check_arms(log, question.split, by_arm)
    arms = ArmSet.one_hot(question.names or _arms_in(log, by_arm))
    if question.split is not None:
        frame = frame.mutate(p=own_probability(frame, question.split, arms))
    found, rows_of = None, None
    if question.cluster:
        rows_of, frame = frame, units.with_clusters(log, frame, question.cluster)
        refuse(log, without_cluster(log, frame, question.cluster), frame)
        found = units.count_units(log, frame, rows, " and ".join(question.cluster.values()))
    elif log.has("unit") and not log.single:
        frame = frame.mutate(unit=as_unit(frame.unit))
        found = units.count_units(log, frame, rows)
    return Sample(
        log=log,
        table=frame,
        arms=arms,
        rows=rows,
        plan=plan,
        question=question,
        direction=question.direction or "maximize",
        missing=absent,
        broken=broken,
        units=found,
        rows_of=rows_of,
        excluded=excluded,
    )


def _without_excluded(log: Source) -> tuple[Any, int]:
    """The rows that count, and how many others there are."""
    if not log.has("excluded"):
        return log.table, 0
    column = log.table["excluded"]  # something that says neither 0 nor no
    said = column.cast("string").strip().lower()
    out = column.notnull() & said.notin(["", "0", "0.0", "false", "no"])
    [found] = log.fetch(log.table.aggregate(out=out.sum()))
    return (log.table.filter(~out), int(found["out"])) if found["out"] else (log.table, 0)


def _arms_in(log: Source, by_arm: Mapping[str, int]) -> list[str]:
    """The names of all arms of the log."""
    names = sorted(by_arm)
    if not 2 <= len(names) <= MOST_ARMS:
        raise InvalidInputError(
            f"{log.name} has {len(names):,} arms ({strung(list(map(repr, names)), 5)}); expected 2 "
            f"to {MOST_ARMS:,}. Is {log.their('arm')!r} the right column?"
        )
    return names


def score(sample: Sample) -> Scored:
    """The evidence of a log: sums by period and arm, unit by unit."""
    log, arms, question = sample.log, sample.arms, sample.question
    table, rows = sample.table, _sums(sample, sample.table)
    refuse(log, sample.broken + faults_in(rows, sample.missing))
    parts = units.stretches(rows, arms, sample.allocations)
    counts, sums = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("m", "s"))
    if not counts.sum():
        raise InvalidInputError(
            f"{log.name} has {sample.rows:,} rows and no reward. Is {log.their('reward')!r} the "
            "right column?"
        )
    if sample.units is not None:
        table = _by_unit(sample, table)
    evidence, timeline, labels = _evidence(sample, table, rows)
    raw, level, adjusted = None, None, rows
    if question.covariates:
        from steadyarm.analysis.adjusting import adjust_rewards

        raw, single = evidence, sample.units is None
        other, level = adjust_rewards(log, table, arms.names, single)
        if single:
            adjusted = _sums(sample, other)
        evidence, timeline, labels = _evidence(sample, other, adjusted, level)
    if question.split is not None and sample.units is None and question.budget is None:
        plain = units.randomised_evidence(arms, parts, sample.direction)
        if plain is not None and question.covariates:
            raw, joined = plain, units.stretches(adjusted, arms, sample.allocations)
            plain = units.randomised_evidence(arms, joined, sample.direction, level)
        evidence = plain or evidence
    if sample.units is not None and sample.units.cluster:  # sums of many units have no tails
        evidence = replace(evidence, tails=None)
    if not question.covariates:
        evidence = _with_bounds(sample, evidence, rows)
    if evidence.rounds.shape[1] * arms.rank**2 > 50_000_000:
        raise InvalidInputError(
            f"{len(labels):,} periods of {arms.size:,} arms are too many; use fewer, such as "
            'period="shares:10".'
        )
    return Scored(
        evidence,
        timeline,
        labels,
        _findings(sample, table, rows, parts),
        counts,
        sums,
        given=sum(int(row["given"]) for row in rows),
        all_zero=not any(part.ss.any() for part in parts),
        raw=raw,
    )


def _evidence(
    sample: Sample, table: Any, rows: Rows, level: float = 0.0
) -> tuple[Evidence, Evidence, list[str]]:
    """As `units.unit_evidence`, from the sums of rows if each is a unit of its own."""
    if sample.units is None:
        found = units.single_sums(rows)
    else:
        alone = sample.kept and sample.units.units < units.MANY
        found = units.unit_sums(sample.log, table, sample.plan, alone)
    return units.unit_evidence(sample.arms, found, sample.plan, sample.direction, level)


def _with_bounds(sample: Sample, evidence: Evidence, rows: Rows) -> Evidence:
    """The evidence with the bounds of the rewards: those declared, or those that they show.

    Rewards that are 0 or 1 are yes or no; if none is negative, none can be expected to be.
    """
    with_reward = [row for row in rows if row["m"]]
    lowest = min(row["lowest"] for row in with_reward)
    highest = max(row["highest"] for row in with_reward)
    clicks = all(row["s"] == row["ss"] == row["sss"] for row in with_reward)
    bounds = sample.question.bounds
    if bounds is not None and not bounds[0] <= lowest <= highest <= bounds[1]:
        raise InvalidInputError(
            f"the range of {sample.log.their('reward')!r} is {bounds}, but {sample.log.name} has "
            f"values from {lowest:g} to {highest:g}; give the range of what can occur."
        )
    if bounds is None and lowest >= 0:
        cap = sample.question.cap
        bounds = (0.0, 1.0 if clicks else np.inf if cap is None else cap)
    if clicks and sample.units is None and any(row["s"] for row in with_reward):
        evidence = replace(evidence, binary=np.ones(1, dtype=bool))
    return replace(evidence, bounds=bounds)


def _sums(sample: Sample, table: Any) -> Rows:
    """Sums over rows by period, arm and split."""
    keys = {"bucket": sample.plan.bucket(table.time), "arm": table.arm}
    if sample.question.split is not None:
        keys["split"] = table.split
    return sample.log.fetch(row_sums(table, keys))


def _by_unit(sample: Sample, table: Any) -> Any:
    """The table with a unit in every row, and the probabilities with which units were drawn."""
    assert sample.units is not None
    if sample.units.nameless:
        table = units.each_with_unit(table)
    if sample.kept and sample.units.changed:
        split = ["split"] if sample.question.split is not None else []
        table = units.with_first_probabilities(table, ["p", *split])
    return table


def _findings(sample: Sample, table: Any, rows: Rows, parts: list[Stretch]) -> list[Finding]:
    """Checks of assignments and missing rewards."""
    log, names, found = sample.log, sample.arms.names, sample.units
    if found is not None and found.kept:
        split = ["split"] if sample.question.split is not None else []
        first = units.first_rows(table, ["arm", "p", *split])
        rows = _sums(sample, first)
        rewarded = sum(int(part.m.sum()) for part in parts)
        parts = units.stretches(rows, sample.arms, sample.allocations)
        missing = units.missing_rewards(names, parts, sample.rows - rewarded, sample.rows)
        visits = units.visits_finding(log, first, found)
        return [_assignments(sample, rows, parts), missing, visits]
    report = health_report(names, [part.logged for part in parts])
    others = [finding for finding in report.findings if finding.name == "missing rewards"]
    if found is not None and found.cluster:
        return [_for_split(sample, units.cluster_assignments(log, table, names)), *others]
    return [_assignments(sample, rows, parts), *others]


def _assignments(sample: Sample, rows: Rows, parts: list[Stretch]) -> Finding:
    """Whether rows per arm fit the shares, or each row's own probability."""
    if sample.question.split is None:
        of = "visits" if sample.units is None or not sample.kept else f"{sample.units.noun}s"
        return units.assignments_of(sample.arms.names, rows, of)
    logged = [part.logged for part in parts]
    return _for_split(sample, health_report(sample.arms.names, logged).findings[0])


def _for_split(sample: Sample, finding: Finding) -> Finding:
    """A finding on assignments, in the words of a split if there is one."""
    if sample.question.split is None:
        return finding
    text = finding.explanation.replace("the logged probabilities", "the split")
    advice = f"Check that the split is the one that was used. {finding.advice}"
    return replace(finding, explanation=text, advice="" if finding.status == "ok" else advice)


# Results by the levels of an attribute, as live tests have them.


def _breakdown(sample: Sample, analysis: Analysis, ours: str, theirs: str) -> tuple[Breakdown, str]:
    from steadyarm.live.breakdowns import (
        Breakdown,
        LevelResult,
        estimate_level,
        interaction,
        is_enough,
    )
    from steadyarm.live.units import OTHER

    question, names, log = sample.question, sample.arms.names, sample.log
    level = sample.table[ours].cast("string").nullif("")
    counts = sample.table.group_by(level=level).aggregate(
        rows=sample.table.count(), rewards=sample.table.r.count()
    )
    counts = counts.filter(counts.level.notnull())
    ranked = counts.order_by([counts.rows.desc(), counts.level])
    shown = log.fetch(ranked.limit(MOST_LEVELS))
    [whole] = log.fetch(
        counts.aggregate(
            levels=counts.count(), rows=counts.rows.sum(), rewards=counts.rewards.sum()
        )
    )
    if len(shown) < 2:
        values = f"only {shown[0]['level']!r}" if shown else "no value"
        raise InvalidInputError(
            f"the column {theirs!r} of {log.name} has {values}; results by segment need at least "
            "two levels.",
            field="segments",
        )
    note, known = "", [row["level"] for row in shown]
    selections: list[tuple[dict[str, Any], Any]] = [(row, level == row["level"]) for row in shown]
    if whole["levels"] > len(shown):
        rest = {key: whole[key] - sum(row[key] for row in shown) for key in ("rows", "rewards")}
        selections.append((rest | {"level": OTHER}, level.notnull() & level.notin(known)))
        note = (
            f"{theirs} has {whole['levels']:,} levels: the {len(shown)} with the most rows are "
            f"shown, all others together are {OTHER!r}."
        )
    against = question.control or analysis.verdict.name
    row, share = sample.arms.index(against), (1 - question.level) / len(selections)
    budget = None if question.budget is None else max(question.budget // len(selections), 1)
    results: list[LevelResult] = []
    tested: dict[str, Evidence] = {}
    for found, selection in selections:
        result = LevelResult(name=str(found["level"]), names=names, visits=int(found["rows"]))
        part = _part(sample, selection, int(found["rows"]))
        obstacle = "" if found["rewards"] else "no reward"
        if part.units is not None and part.units.too_few:
            obstacle = f"only {counted(part.units.units, 'unit')}"
        if obstacle:
            results.append(replace(result, obstacle=obstacle))
            continue
        scored = score(part)
        if is_enough(scored.counts, scored.counts, scored.sums, scored.evidence):
            tested[result.name] = scored.evidence
        chosen = question.control is None
        results.append(estimate_level(result, scored.evidence, row, share, chosen, budget, None))
    return Breakdown(
        theirs,
        against,
        tuple(names),
        tuple(results),
        unknown=sample.rows - sum(one.visits for one in results),
        interaction=interaction(tested.values(), row),
        left_out=tuple(one.name for one in results if one.visits and one.name not in tested),
        level=question.level,
        anytime=question.budget is not None,
    ), note


def _part(sample: Sample, selection: Any, rows: int) -> Sample:
    """Some rows of a log."""
    table, found = sample.table.filter(selection), sample.units
    if found is not None:
        found = units.count_units(sample.log, table, rows, found.cluster)
    question = replace(sample.question, control=None, segments={})
    return replace(sample, table=table, rows=rows, units=found, question=question)
