"""analyze: the verdict on a test that ran elsewhere, from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis import checks, exports, splits, units
from steadyarm.analysis.query import Plan, as_unit, plan_periods, readable, row_sums
from steadyarm.analysis.result import Analysis, Missing, conclude
from steadyarm.analysis.source import ATTRIBUTE, COVARIATE, Source, open_log, open_tables
from steadyarm.analysis.units import Floats, Rows, Stretch, Units
from steadyarm.arms import ArmSet
from steadyarm.covariates import validate_covariates
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.estimators import is_one_hot
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.fit import LackOfFit, lack_of_fit
from steadyarm.inference.health import Finding, HealthReport, health_report
from steadyarm.live.metrics import Metric
from steadyarm.segments import Direction
from steadyarm.validation import check_choice, check_fraction, validate_range, whole_number
from steadyarm.wording import shortened, strung

MOST_ARMS = 2_000
MOST_SEGMENTS = 8  # columns whose levels results are split by
SMALL = 5_000_000  # rows up to which order and duplicates are checked, and exports replayed


@dataclass(frozen=True)
class Question:
    """What is asked of a log; see `analyze`. Columns are our names to theirs."""

    arms: ArmSet | None
    split: splits.Split | None
    control: str | None
    covariates: Mapping[str, str]
    segments: Mapping[str, str]
    cluster: Mapping[str, str]
    direction: Direction | None
    level: float
    missing: Missing | None
    budget: int | None
    period: str
    bounds: tuple[float, float] | None

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
    question : with what the description of an exported log says
    broken : faults that are known already
    units : how often units are there; None if each row is one
    rows_of : the table with its own units, where `table` has clusters for units
    excluded : rows that were left out by hand
    pending : a note on rows whose rewards may still come
    described : the test whose export the log is
    """

    log: Source
    table: Any
    arms: ArmSet
    rows: int
    plan: Plan
    question: Question
    direction: Direction
    missing: Missing
    broken: checks.Faults = field(default_factory=list)
    units: Units | None = None
    rows_of: Any = None
    excluded: int = 0
    pending: str = ""
    described: exports.Described | None = None

    @property
    def kept(self) -> bool:
        """Whether units that are in the log several times keep their variant."""
        return self.units is not None and self.units.kept

    @property
    def searched(self) -> bool:
        """Whether order and duplicates are checked."""
        return self.rows <= SMALL


@dataclass(frozen=True, eq=False)
class Scored:
    """What the sums of a log show.

    Attributes
    ----------
    evidence : of rewards, adjusted for covariates if there are any
    timeline : the same by period, which drift is told from
    labels : of the periods
    findings : on assignments and missing rewards
    counts, sums : (K,) of each arm's rewards
    given : rewards that stand in the log
    raw : the evidence of rewards that are not adjusted, if others are
    fit : whether the model fits; None if that was not tested
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
    fit: LackOfFit | None = None


def analyze(
    source: Any,
    *,
    arms: ArmSet | Sequence[str] | None = None,
    query: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    split: Any = None,
    control: str | None = None,
    covariates: Sequence[str] = (),
    segments: Sequence[str] = (),
    cluster: str | Sequence[str] | None = None,
    direction: Direction | None = None,
    level: float = 0.95,
    missing: Missing | None = None,
    budget: int | None = None,
    period: str = "auto",
    events: Any = None,
    reward_range: tuple[float, float] | None = None,
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
    arms : the variants; by default those of the test whose export this is, if its description
        stands beside it, else every arm in the log, each by itself. Arms with features need
        the whole allocation of every row: a column `probabilities` (JSON or a list), or a column
        `segment` within which probabilities are fixed
    query : the name of a table of a database, or a query; files and frames are the table log in it
    columns : our names of columns to theirs, such as {"arm": "variant"}; {"unit": None} takes all
        rows as independent. Else variances are by unit if units have several rows. Units are in the
        column unit, or in one called user_id, visitor_id, customer_id or the like. Of two tables
        usual names are found; {"events.unit": "login"} maps a column of one of them
    split : the fixed shares with which arms were drawn, for a log without probabilities: "equal",
        {"A": 0.5, "B": 0.3, "C": 0.2}, or ["equal", ("2026-03-08", {"A": 0.9, "B": 0.1})] for
        shares that changed
    control : the arm that others are compared with; the result has lifts against it, absolute and
        relative, with intervals, and says what to do
    covariates : columns with numbers that were known of units before they were assigned, at most
        five, such as ["visits_last_month", "spend"]; they take noise away. Empty cells are fine
    segments : columns with what was known of units before they were assigned, such as ["country"];
        results by their levels. Of many levels the 20 with the most rows are shown
    cluster : the column, or columns, that variants were drawn by or rows are alike in, such as
        "store", or ["store", "day"] where every store switches its variant daily. Variances are by
        cluster, with Student's t for few. hour, day, week and month need no column
    direction : "maximize" (the default) or "minimize" the reward
    level : of the intervals
    missing : what to do with rows without a reward: "fail" (the default), "drop" them, or count
        them as "zero"
    budget : rows that were planned for a test that was watched and might have been stopped at any
        time; intervals then hold at every look. By default they hold for one analysis at an end
        that was fixed in advance
    period : "hour", "day", "week", "month", "shares:20" or "auto", for the drift report
    events : `Events`: who did what when, and what is measured of it
    reward_range : (least, largest) reward that can occur, such as (0, 200): with it intervals are
        finite where few large rewards carry an estimate

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
    columns = dict(columns or {})
    shares = splits.validate_split(split)
    if shares is not None and shares.names and arms is None:
        arms = shares.names
    question = Question(
        arms=arms if isinstance(arms, ArmSet) or arms is None else ArmSet.one_hot(arms),
        split=shares,
        control=control,
        covariates=_columns_of(COVARIATE, validate_covariates(covariates), columns, "covariates"),
        segments=_columns_of(ATTRIBUTE, segments, columns, "segments"),
        cluster=units.cluster_columns(cluster, columns.get("unit", "") is not None),
        direction=direction,
        level=level,
        missing=missing,
        budget=budget,
        period=period,
        bounds=None if reward_range is None else validate_range(reward_range),
    )
    if events is not None:
        return _analyze_tables(source, query, columns, events, question)
    with (
        exports.unpacked(source) as source,
        closing(open_log(source, query, columns, question.extra)) as log,
    ):
        plain = question.arms is None and query is None and not columns
        return analyze_log(log, question, exports.described(source) if plain else None)


def _columns_of(
    prefix: str, given: Sequence[str], columns: Mapping[str, str | None], field: str
) -> dict[str, str]:
    """Our names to theirs of covariates, or of the columns that results are split by."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidInputError.of(field, given, 'names of columns, such as ["country"]')
    if len(names) > MOST_SEGMENTS or len(set(names)) < len(names):
        raise InvalidInputError(
            f"the {field} are {shortened(names)}; expected at most {MOST_SEGMENTS} different "
            "columns.",
            field=field,
        )
    for ours in ("reward", "arm"):
        if columns.get(ours, ours) in names:
            raise InvalidInputError(
                f"{columns.get(ours, ours)!r} is the {ours} itself; {field} are what was known of "
                "a unit before it was assigned.",
                field=field,
            )
    return {f"{prefix}{i}": name for i, name in enumerate(names, 1)}


def _analyze_tables(
    source: Any,
    query: str | None,
    columns: Mapping[str, str | None],
    asked: Any,
    question: Question,
) -> Analysis:
    """The analysis of the first metric of two tables, which has those of all in `metrics`.

    Intervals of the first metric have the level by themselves, those of all others at once.
    """
    from steadyarm.analysis.events import Events, join_tables, parse_metrics

    if not isinstance(asked, Events):
        raise InvalidInputError.of(
            "events", asked, 'Events, such as sa.Events("events.csv", ["purchase"])'
        )
    measured = parse_metrics(asked.metrics, asked.window, question.direction or "maximize")
    exposures, events = open_tables(source, query, asked.table, columns, question.extra)
    with closing(exposures):
        joined = join_tables(exposures, events, measured)
        further = max(len(measured.metrics) - 1, 1)
        analyses: dict[str, Analysis] = {}
        notes: list[str] = []
        if further > 1:
            notes.append(f"Intervals of the {further} further metrics hold at once.")
        for place, metric in enumerate(measured.metrics):
            level = question.level if place == 0 else 1 - (1 - question.level) / further
            about = replace(question, direction=metric.direction, level=level)
            try:
                analyses[metric.name] = _analyze_metric(joined, metric, about)
            except RewardsPendingError as error:
                if place == 0:
                    raise InvalidInputError(str(error)) from None
                notes.append(f"There is no result of {metric.name}: {error}")
    first = analyses[measured.metrics[0].name]
    return replace(first, metrics=analyses, notes=(*first.notes, *notes))


def _within_range(found: Analysis, metric: Metric) -> Analysis:
    """The analysis, without limits of means that a metric cannot have."""
    low, high = metric.clip(found.intervals.low), metric.clip(found.intervals.high)
    limits = np.column_stack([low[0], high[0]])
    return replace(
        found,
        intervals=replace(found.intervals, low=low, high=high),
        verdict=replace(found.verdict, intervals=limits),
    )


def _analyze_metric(joined: Any, metric: Any, question: Question) -> Analysis:
    from steadyarm.analysis.events import ratio_reward

    about = []
    if metric.ratio is None:
        question = replace(question, bounds=metric.bounds)
        log, waiting = joined.log_of(metric, lambda _, value: value)
        analysis = _within_range(analyze_log(log, question), metric)
    else:
        question = replace(question, segments={})
        logs = [
            joined.log_of(metric, lambda _, *both, place=place: both[place])[0] for place in (0, 1)
        ]
        parts = [analyze_log(log, question) for log in logs]
        arms = parts[0].arms
        if not is_one_hot(arms.coordinates) or parts[0].intervals.shown is not None:
            raise InvalidInputError(
                f"{metric.name} is a ratio, which follows no linear model; analyse variants that "
                "share no features, and not too many of them.",
                field="metrics",
            )
        below = joined.measured.parts(metric)[1].text
        reward = ratio_reward(logs[1], metric, below, arms, [part.estimates for part in parts])
        log, waiting = joined.log_of(metric, reward)
        analysis = analyze_log(log, question)
        sums = [part.means * part.counts for part in parts]
        with np.errstate(invalid="ignore", divide="ignore"):
            analysis = replace(analysis, means=sums[0] / sums[1])
        if any(name.startswith(ATTRIBUTE) for name in joined.log.table.columns):
            about.append(f"{metric.name} is not split by segments, as it is a ratio.")
    health = HealthReport((*analysis.health.findings, joined.finding))
    notes = (*joined.about(metric, waiting), *about, *joined.notes, *analysis.notes)
    return replace(analysis, metric=metric.name, health=health, notes=notes)


# One log.


def analyze_log(
    log: Source, question: Question, described: exports.Described | None = None
) -> Analysis:
    """The analysis of an open log."""
    sample = _sample(splits.with_split(log, question.split), question, described)
    analysis = conclude(sample, score(sample))
    if described is not None and sample.searched and exports.says_the_test(described, question):
        control = question.control or described.control
        analysis = exports.with_own_verdict(analysis, described, control, question.level)
    if not question.segments:
        return analysis
    from steadyarm.analysis.breakdown import with_breakdowns

    return with_breakdowns(sample, analysis)


def _sample(log: Source, question: Question, described: exports.Described | None) -> Sample:
    """The rows of a log, with readable columns, checked as far as no sums are needed."""
    table, excluded = _without_excluded(log)
    absent: Missing = question.missing or ("fail" if described is None else described.missing)
    frame = readable(log, table, absent == "zero")
    frame, pending = exports.mature(log, frame, described if question.missing is None else None)
    time = frame.time
    each = frame.group_by("arm").aggregate(
        n=frame.count(), timed=time.count(), first=time.min(), last=time.max()
    )
    counts = log.fetch(each)
    rows = sum(row["n"] for row in counts)
    if not rows:
        raise InvalidInputError(f"{log.name} has no rows; expected one for each assignment.")
    untimed = rows - sum(row["timed"] for row in counts)
    broken: checks.Faults = [(checks.no_time(log), untimed)] if untimed else []
    if untimed == rows:
        checks.refuse(log, broken)
    timed = [row for row in counts if row["timed"]]
    plan = plan_periods(
        question.period, min(row["first"] for row in timed), max(row["last"] for row in timed)
    )
    if described is not None:
        question = replace(question, control=question.control or described.control)
        if question.budget is None and rows < described.budget:
            question = replace(question, budget=described.budget)  # why it ended early is not known
    arms = question.arms or (described.arms if described is not None else None)
    by_arm = {row["arm"]: row["n"] for row in counts if row["arm"]}
    if question.split is not None:
        splits.check_arms(log, question.split, by_arm)
    else:
        broken += _unknown_arms(arms, by_arm)
    arms = arms or _arms_in(log, by_arm)
    if question.split is not None:
        frame = frame.mutate(p=splits.own_probability(frame, question.split, arms))
    found, rows_of = None, None
    if question.cluster:
        rows_of, frame = frame, units.with_clusters(log, frame, question.cluster)
        checks.refuse(log, checks.without_cluster(log, frame, question.cluster), frame)
        found = units.count_units(log, frame, rows, " and ".join(question.cluster.values()))
    elif log.has("unit") and not log.single:
        frame = frame.mutate(unit=as_unit(log, frame.unit))
        found = units.count_units(log, frame, rows)
    return Sample(
        log=log,
        table=frame,
        arms=arms,
        rows=rows,
        plan=plan,
        question=question,
        direction=question.direction or (described.direction if described else "maximize"),
        missing=absent,
        broken=broken,
        units=found,
        rows_of=rows_of,
        excluded=excluded,
        pending=pending,
        described=described,
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


def _unknown_arms(arms: ArmSet | None, by_arm: Mapping[str, int]) -> checks.Faults:
    if arms is None:
        return []
    strange = sum(count for name, count in by_arm.items() if name not in arms.names)
    return [(checks.unknown_arm(arms.names), strange)] if strange else []


def _arms_in(log: Source, by_arm: Mapping[str, int]) -> ArmSet:
    """Every arm of the log by itself."""
    names = sorted(by_arm)
    if not 2 <= len(names) <= MOST_ARMS:
        raise InvalidInputError(
            f"{log.name} has {len(names):,} arms ({strung(list(map(repr, names)), 5)}); expected 2 "
            f"to {MOST_ARMS:,}. Is {log.their('arm')} the right column?"
        )
    return ArmSet.one_hot(names)


# The scores.


def score(sample: Sample) -> Scored:
    """The evidence of a log: sums by period, arm and allocation, unit by unit."""
    log, arms, question = sample.log, sample.arms, sample.question
    allocation, table = _allocation(sample), sample.table
    rows = _sums(sample, table, allocation)
    checks.refuse(log, sample.broken + checks.faults_in(rows, arms.names, sample.missing))
    _check_description(sample)
    weights_of = _weights_of(sample, rows, allocation)
    parts = units.stretches(rows, arms, weights_of)
    counts, sums = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("m", "s"))
    if not counts.sum():
        raise InvalidInputError(
            f"{log.name} has {sample.rows:,} rows, but not one reward. Is {log.their('reward')} "
            "the right column?"
        )
    weigh = is_one_hot(arms.coordinates) and "p" in table.columns
    keys = ["arm"] if weigh else ["arm", *allocation]
    if sample.units is not None:
        table = _by_unit(sample, table, allocation)

    def evidence_of(
        table: Any, rows: Rows, level: float = 0.0
    ) -> tuple[Evidence, Evidence, list[str]]:
        if sample.units is None:
            found = units.single_sums(rows, keys, weigh)
        else:
            alone = sample.kept and sample.units.units < units.MANY
            found = units.unit_sums(log, table, keys, sample.plan, weigh, alone)
        if weigh:
            vectors = dict(zip(arms.names, enumerate(np.eye(arms.size)), strict=True))
        else:
            vectors = units.vectors_of(arms, found[0], keys, weights_of)
        return units.unit_evidence(arms, found, keys, vectors, sample.plan, sample.direction, level)

    evidence, timeline, labels = evidence_of(table, rows)
    raw, level, adjusted = None, None, rows
    if question.covariates:
        raw, single = evidence, sample.units is None
        other, level = units.adjust_rewards(log, table, arms.names, single)
        if single:
            adjusted = _sums(sample, other, allocation)
        evidence, timeline, labels = evidence_of(other, adjusted, level)
    if question.split is not None and sample.units is None and question.budget is None:
        plain = units.randomised_evidence(arms, parts, sample.direction)
        if plain is not None and question.covariates:
            raw, joined = plain, units.stretches(adjusted, arms, weights_of)
            plain = units.randomised_evidence(arms, joined, sample.direction, level)
        evidence = plain or evidence
    if sample.units is not None and sample.units.cluster:  # sums of many units have no tails
        evidence = replace(evidence, tails=None)
    if not question.covariates:
        evidence = _with_bounds(sample, evidence, rows)
    findings, fit = _findings(sample, table, rows, parts, allocation, weights_of)
    if evidence.rounds.shape[1] * arms.rank**2 > 50_000_000:
        raise InvalidInputError(
            f"{len(labels):,} periods of {arms.size:,} arms are too many to keep; take fewer, such "
            'as period="shares:10".'
        )
    return Scored(
        evidence,
        timeline,
        labels,
        findings,
        counts,
        sums,
        given=sum(int(row["given"]) for row in rows),
        all_zero=not any(part.ss.any() for part in parts),
        raw=raw,
        fit=fit,
    )


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
            f"reward_range is {bounds}, but {sample.log.name} has rewards from {lowest:g} to "
            f"{highest:g}; give the range of what can occur."
        )
    if bounds is None and lowest >= 0:
        bounds = (0.0, 1.0 if clicks else np.inf)
    if clicks and sample.units is None and any(row["s"] for row in with_reward):
        evidence = replace(evidence, binary=np.ones(1, dtype=bool))
    return replace(evidence, bounds=bounds)


def _check_description(sample: Sample) -> None:
    """Refuse a log whose probabilities are not those of the description beside it."""
    log, table = sample.log, sample.table
    if sample.described is None or not log.has("segment") or "p" not in table.columns:
        return
    each = table.group_by("segment", "arm").aggregate(least=table.p.min(), largest=table.p.max())
    units.segment_allocations(log.fetch(each), sample.arms, sample.described.shares)


def _sums(sample: Sample, table: Any, allocation: list[str]) -> Rows:
    """Sums over rows by period, arm and allocation."""
    keys = {"bucket": sample.plan.bucket(table.time, sample.log.backend)}
    keys |= {name: table[name] for name in ("arm", *allocation)}
    return units.fetch_limited(sample.log, row_sums(table, keys))


def _allocation(sample: Sample) -> list[str]:
    """The columns that tell the whole allocation of a row, if it is needed."""
    log, own = sample.log, "p" in sample.table.columns
    linear = not is_one_hot(sample.arms.coordinates)
    if log.has("probabilities"):
        needed = sample.question.split is not None or linear or not own
        return ["probabilities"] if needed else []
    if linear and not log.has("segment"):
        raise InvalidInputError(
            f"the arms have features in common, but {log.name} has only the probability of each "
            "row's own arm; give the whole vector in a column probabilities, or a column segment "
            "within which probabilities are fixed."
        )
    return ["segment"] if linear else []


def _weights_of(sample: Sample, rows: Rows, allocation: list[str]) -> Any:
    """What gives the allocation of a row of sums; of wrong ones all faults are named."""
    arms, known = sample.arms, {}
    if not allocation:
        return lambda _: None
    if sample.question.split is not None:
        known = sample.question.split.allocations(arms)
    elif sample.described is not None:
        known = dict(sample.described.shares)
    if allocation == ["segment"]:
        by_segment = units.segment_allocations(rows, arms, known)
        return lambda row: by_segment[str(row["segment"])]
    found: dict[Any, Floats] = {}
    wrong: checks.Faults = []
    for row in rows:
        weights, problem = units.allocation_vector(row, arms, known)
        if weights is None:
            fault = checks.vector_fault(row, problem)
            wrong.append((fault, int(row["n"])))
        else:
            found[units.key_of(row, allocation)] = weights
    checks.refuse(sample.log, wrong[: checks.SHOWN], sample.table)
    return lambda row: found[units.key_of(row, allocation)]


def _by_unit(sample: Sample, table: Any, allocation: list[str]) -> Any:
    """The table with a unit in every row, and the probabilities with which units were drawn."""
    assert sample.units is not None
    if sample.units.nameless:
        table = units.each_with_unit(table)
    if sample.kept and (sample.units.changed or "p" not in table.columns):
        own = ["p"] if "p" in table.columns else []
        table = units.with_first_probabilities(table, [*own, *allocation])
    return table


def _findings(
    sample: Sample,
    table: Any,
    rows: Rows,
    parts: list[Stretch],
    allocation: list[str],
    weights_of: Any,
) -> tuple[list[Finding], LackOfFit | None]:
    """Checks of assignments and missing rewards, and whether the model fits."""
    log, names, found = sample.log, sample.arms.names, sample.units
    own, fit = ["p"] if "p" in table.columns else [], None
    if found is not None and found.kept:
        first = units.first_rows(table, ["arm", *own, *allocation])
        rows = _sums(sample, first, allocation)
        rewarded = sum(int(part.m.sum()) for part in parts)
        parts = units.stretches(rows, sample.arms, weights_of)
        missing = checks.missing_rewards(names, parts, sample.rows - rewarded, sample.rows)
        findings = [_assignments(sample, rows, parts, allocation), missing]
        if own:
            findings.append(checks.visits_finding(log, first, found))
    else:
        findings = [_assignments(sample, rows, parts, allocation)]
        if found is not None and found.cluster:
            findings = [checks.UNKNOWN_DRAWS]
            if own:
                findings = [checks.cluster_assignments(log, table, names)]
        report = health_report(names, [part.logged for part in parts])
        findings += [one for one in report.findings if one.name == "missing rewards"]
    if allocation and found is None:  # rows of one unit are alike: not noise to this test
        fit = lack_of_fit(sample.arms, [part.played for part in parts if part.m.sum()])
        findings += [] if fit is None else [fit.finding]
    if sample.question.split is not None:
        findings = splits.against_split(findings)
    return findings, fit


def _assignments(
    sample: Sample, rows: Rows, parts: list[Stretch], allocation: list[str]
) -> Finding:
    """Whether rows per arm fit the probabilities: all of a row's, or its own arm's alone."""
    if allocation:
        return health_report(sample.arms.names, [part.logged for part in parts]).findings[0]
    of = "visits" if sample.units is None or not sample.kept else f"{sample.units.noun}s"
    return checks.assignments_of(sample.arms.names, rows, of)
