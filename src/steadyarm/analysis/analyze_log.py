"""analyze: the verdict on a test that ran elsewhere, from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis import (
    adjusting,
    allocations,
    clusters,
    comparing,
    exports,
    faults,
    row_groups,
    splits,
    sums,
)
from steadyarm.analysis.log import Log, open_log
from steadyarm.analysis.result import (
    Analysis,
    Asked,
    Missing,
    Rows,
    Summed,
    analysis_of,
    no_reward,
)
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import ips, is_one_hot
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.fit import lack_of_fit
from steadyarm.inference.health import health_report
from steadyarm.inference.sampling_variance import LoggedSegment
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, check_fraction, checked_range, whole_number

SMALL = 5_000_000  # rows up to which order and duplicates are checked by default
MOST_GROUPS = 1_000_000
MOST_ARMS = 2_000


def analyze(
    source: Any = None,
    *,
    arms: ArmSet | Sequence[str] | None = None,
    table: str | None = None,
    query: str | None = None,
    columns: Mapping[str, str] | None = None,
    period: str = "auto",
    direction: Direction | None = None,
    level: float = 0.95,
    reward_range: tuple[float, float] | None = None,
    missing: Missing | None = None,
    reference: bool = True,
    thorough: bool | None = None,
    anytime: bool = False,
    budget: int | None = None,
    units: bool = True,
    memory: str = "2GB",
    covariates: Sequence[str] = (),
    split: Any = None,
    cluster: str | Sequence[str] | None = None,
    control: str | None = None,
    segments: Sequence[str] = (),
    exposures: Any = None,
    events: Any = None,
    metrics: Sequence[str] | Mapping[str, str] | None = None,
    window: float | str | timedelta | None = None,
    where: str | None = None,
    contaminated: Literal["first", "drop"] = "first",
) -> Analysis:
    """The verdict on a test that ran elsewhere, from its log, wherever that lives.

    The log of a live test that has its description beside it, or is in the .zip file of the
    dashboard, gets the verdict of the test itself: direction, control, missing rewards, budget,
    stopping rule and state are those of the test.

    Parameters
    ----------
    source : a CSV or Parquet file, a folder or pattern or list of them, a SQLite or DuckDB file,
        the URL of a database, a DataFrame (pandas, polars, an Arrow table, dataset or reader, and
        others that Narwhals knows or that have an Arrow stream), or an Ibis table
    arms : the variants; by default those of the test whose export this is, if its description
        stands beside it, else every arm in the log, each by itself. Arms with features need
        the whole allocation of every row: a column `probabilities` (JSON or a list), a column
        p_NAME for every arm, or a column `segment` within which probabilities are fixed
    table, query : what to read from a database; a query on files calls them log
    columns : our names of columns to theirs, such as {"arm": "variant"}
    period : "hour", "day", "week", "month", "shares:20" or "auto", for the drift report
    direction : "maximize" (the default) or "minimize" the reward
    level : of the intervals
    reward_range : the least and the largest reward that can occur; others are refused. Of two
        tables it is that of the first metric
    missing : what to do with rows without a reward: "fail", "drop" them, or count them as "zero".
        By default "fail"; of a test whose export this is, what was declared when it was created
    reference : compare rewards with the means of earlier periods, which keeps estimates unbiased
        and takes away the noise that a common level of the rewards would bring
    thorough : search for unsorted and duplicate rows; by default up to five million rows. The order
        of row groups of Parquet files is always checked
    anytime : intervals that hold at every look, for a test that was watched and might have been
        stopped at any time; else they hold for one analysis at an end that was fixed in advance
    budget : rows that were planned for the whole test; needed with `anytime`
    units : compute variances by unit if units have several rows. Units are in the column unit, or
        in one called user_id, visitor_id, customer_id or the like; False takes all rows as
        independent
    memory : that DuckDB may use
    covariates : columns with numbers that were known of units before they were assigned, at most
        five, such as ["visits_last_month", "spend"]; they take noise away. Empty cells are fine
    split : the fixed shares with which arms were drawn, for a log without probabilities: "equal",
        {"A": 0.5, "B": 0.3, "C": 0.2}, or [(None, "equal"), ("2026-03-08", {"A": 0.9, "B": 0.1})]
        for shares that changed; the words of the command line are fine, too
    cluster : the column, or columns, that variants were drawn by or rows are alike in, such as
        "store" with many users in few stores, or ["store", "day"] where every store switches its
        variant daily. Variances are by cluster, with Student's t for few. hour, day, week and month
        need no column: they are those of the time stamp, in UTC
    control : the arm that others are compared with; the result has lifts against it, absolute and
        relative, with intervals, and says what to do
    segments : columns with what was known of units before they were assigned, such as ["country"];
        results by their levels. Of many levels the 20 with the most rows are shown
    exposures, events : instead of one log two tables: who saw which variant when (unit, timestamp,
        arm, and what else a log holds), and who did what when (unit, timestamp, event, value).
        Files, DataFrames or Ibis tables; or names of tables, or queries, of the database that is
        the source.
        Usual names of columns are found; map others for both tables, {"unit": "login"}, or for
        one, {"events.unit": "login"}. A unit counts with its first exposure
    metrics : what events say of a unit: names of events (did it happen?), or texts such as
        "revenue = sum(purchase)", "orders = count(purchase)", "basket = revenue / orders" and
        "refunds = count(refund) within 30 days, minimize"; or a mapping of names to the rest. The
        first is what the verdict is about, all are in `Analysis.metrics`
    window : within which time after a unit's first exposure events count, such as "7 days"; units
        whose window is open when the data end are left out. By default all later events count
    where : a condition on exposures in SQL, such as "country <> 'XX' and not is_bot"
    contaminated : units that were exposed to several variants count for the "first", which keeps
        estimates unbiased, or "drop" leaves them out

    Returns
    -------
    Analysis : estimates, intervals, drift, health and what else would have been concluded

    Examples
    --------
    >>> import random, tempfile, pathlib
    >>> import steadyarm as sa
    >>> visits, lines = random.Random(1), ["timestamp,unit,arm,probability,reward"]
    >>> for i in range(4000):
    ...     arm = visits.choice("AB")
    ...     click = int(visits.random() < {"A": 0.2, "B": 0.3}[arm])
    ...     lines.append(f"2026-03-{1 + i // 400:02} 12:00:00,{i},{arm},0.5,{click}")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = pathlib.Path(folder, "log.csv")
    ...     _ = log.write_text(chr(10).join(lines))
    ...     found = sa.analyze(log)
    >>> found.recommended, found.plausible, found.rows
    ('B', ('B',), 4000)

    A log of a test with equal shares needs no probabilities:

    >>> lines = [",".join(line.split(",")[:3] + line.split(",")[4:]) for line in lines]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = pathlib.Path(folder, "log.csv")
    ...     _ = log.write_text(chr(10).join(lines))
    ...     found = sa.analyze(log, split="equal")
    >>> found.recommended, found.notes[-1]
    ('B', 'Variants were drawn with equal shares, as given.')

    Two tables:

    >>> exposures, events = ["unit,time,variant,probability"], ["unit,time,event,value"]
    >>> for i in range(4000):
    ...     arm, day = visits.choice("AB"), f"2026-03-{1 + i // 400:02}"
    ...     exposures.append(f"{i},{day} 12:00:00,{arm},0.5")
    ...     if visits.random() < {"A": 0.2, "B": 0.3}[arm]:
    ...         events.append(f"{i},{day} 13:00:00,order,{visits.choice([10, 20])}")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [pathlib.Path(folder, name) for name in ("exposures.csv", "events.csv")]
    ...     for path, rows in zip(paths, (exposures, events)):
    ...         _ = path.write_text(chr(10).join(rows))
    ...     metrics = ["order", "revenue = sum(order)"]
    ...     found = sa.analyze(exposures=paths[0], events=paths[1], metrics=metrics)
    >>> found.recommended, [(name, one.recommended) for name, one in found.metrics.items()]
    ('B', [('order', 'B'), ('revenue', 'B')])
    """
    if direction is not None:
        check_choice(direction, "direction", ("maximize", "minimize"))
    if missing is not None:
        check_choice(missing, "missing", ("fail", "drop", "zero"))
    check_fraction(level, "level")
    span = None if reward_range is None else checked_range(reward_range)
    if anytime != (budget is not None):
        raise InvalidInputError(
            "anytime needs the budget, the number of rows that was planned for the whole test"
            if anytime
            else f"budget is {budget!r}, which is for intervals that hold at every look: anytime"
            "=True, on the command line --anytime."
        )
    if budget is not None:
        whole_number(budget, "budget", least=1)
    arm_set = arms if isinstance(arms, ArmSet) or arms is None else ArmSet.one_hot(arms)
    extra = adjusting.covariate_columns(covariates, columns)
    parts = comparing.segment_columns(segments, columns)
    shares = splits.checked_split(split)
    if shares is not None and shares.names and arm_set is None:
        arm_set = ArmSet.one_hot(shares.names)
    by = clusters.cluster_columns(cluster, units)

    def verdict(
        log: Log,
        direction: Direction | None,
        level: float,
        by_level: bool = True,
        bounded: bool = True,
    ) -> Analysis:
        """The analysis of an open log.

        by_level : with that of each level of the segments; bounded : whether the range is of it
        """
        log = splits.with_split(log, shares)
        exported = (
            allocations.described(source)
            if arm_set is None and query is None and not columns
            else None
        )
        counting, excluded = _without_excluded(log)
        absent: Missing = missing or ("fail" if exported is None else exported.missing)
        against, planned, own = control, budget, False
        if exported is not None:
            changed = (missing, reward_range, budget, split, cluster, *covariates)
            own = all(one is None for one in changed) and reference and units
            own = own and direction in (None, exported.direction)
            direction, against = direction or exported.direction, control or exported.control
        frame = sums.readable(log, counting, absent == "zero")
        frame, pending = exports.mature(log, frame, exported if missing is None else None)
        rows, plan, broken = _extent(log, frame, period)
        if exported is not None and budget is None and rows < exported.budget:
            planned = exported.budget  # why the test ended early is not known
        searched = rows <= SMALL if thorough is None else thorough
        found, rows_of = None, None
        if by:
            rows_of, frame = frame, clusters.with_clusters(log, frame, by)
            faults.refuse(log, clusters.without_cluster(log, frame, by))
            found = clusters.count_units(log, frame, rows, False, " and ".join(by.values()))
        elif log.has("unit") and units and not log.single:
            frame = frame.mutate(unit=sums.as_unit(log, frame.unit))
            found = clusters.count_units(log, frame, rows, sample=not searched)
        asked = Asked(
            log=log,
            table=frame,
            plan=plan,
            rows=rows,
            arms=arm_set if exported is None else exported.arms,
            described=exported,
            broken=broken,
            direction=direction or "maximize",
            level=level,
            reward_range=span if bounded else None,
            missing=absent,
            reference=reference,
            thorough=searched,
            budget=planned,
            by_unit=units,
            units=found,
            excluded=excluded,
            covariates=tuple(extra.values()),
            split=shares,
            rows_of=rows_of,
            control=against,
            segments=parts if by_level else {},
            pending=pending,
        )
        result = analysis_of(asked, _summed(asked))
        if exported is not None and own and rows <= SMALL:
            result = exports.with_own_verdict(result, exported, against, level)
        return comparing.with_segments(asked, result, _summed)

    if exposures is not None or events is not None:
        from steadyarm.analysis.event_metrics import event_metrics
        from steadyarm.analysis.table_metrics import analyze_tables
        from steadyarm.analysis.two_tables import open_tables

        if table is not None or query is not None:
            raise InvalidInputError(
                "a table or query is given beside exposures and events; give the tables, or "
                "queries, as exposures and events."
            )
        check_choice(contaminated, "contaminated", ("first", "drop"))
        measured = event_metrics(metrics, window, direction or "maximize")
        if span is not None and measured[0].below is not None:
            raise InvalidInputError(
                f"reward_range is given, but {measured[0].name}, the first metric, is a ratio, of "
                "which nobody knows a range; leave it out.",
                field="reward_range",
            )
        both = open_tables(
            source,
            exposures,
            events,
            columns=columns,
            extra=extra | parts | by,
            where=where,
            memory=memory,
        )
        with closing(both) as two:
            return analyze_tables(two, measured, verdict, level, contaminated)
    for name, given in (("metrics", metrics), ("window", window), ("where", where)):
        if given is not None:
            raise InvalidInputError(
                f"{name} is for two tables; give exposures and events, too, or leave it out.",
                field=name,
            )
    named = dict(columns or {}) | extra | parts | by
    with (
        exports.unpacked(source) as source,
        closing(open_log(source, table=table, query=query, columns=named, memory=memory)) as log,
    ):
        return verdict(log, direction, level)


def _summed(asked: Asked) -> Summed:
    """By the whole allocation where it is needed or known to be useful, else by own probability."""
    log = asked.log
    linear = asked.arms is not None and not is_one_hot(asked.arms.coordinates)
    vector = log.has("probabilities") or (bool(log.vector) and not log.has("probability"))
    if asked.units is not None and log.has("probability") and not (linear or log.has("block")):
        vector = False  # a row's own probability is enough, and has far fewer combinations
    if asked.arms is None and log.has("probabilities") and exports.ours(log):
        return _by_propensity(asked)  # vectors are in an order that only the description has
    if vector or linear:
        return _by_allocation(asked, vector)
    if log.has("segment") and log.has("block"):
        try:
            return _by_allocation(asked, vector)
        except allocations.IncompleteAllocationError:
            if not exports.ours(log):
                raise
    return _by_propensity(asked)


def _without_excluded(log: Log) -> tuple[Any, int]:
    """The rows that count, and how many others there are."""
    if not log.has("excluded"):
        return log.table, 0
    column = log.table["excluded"]  # something that says neither 0 nor no
    said = column.cast("string").strip().lower()
    out = column.notnull() & said.notin(["", "0", "0.0", "false", "no"])
    [found] = log.fetch(log.table.aggregate(out=out.sum()))
    return (log.table.filter(~out), int(found["out"])) if found["out"] else (log.table, 0)


def _extent(log: Log, table: Any, period: str) -> tuple[int, sums.Plan, faults.Faults]:
    """How many rows there are, from when to when; rows without a time are a fault."""
    time = table.time
    [found] = log.fetch(
        table.aggregate(rows=table.count(), timed=time.count(), first=time.min(), last=time.max())
    )
    if not found["rows"]:
        raise InvalidInputError(f"{log.name} has no rows; expected one for each assignment.")
    untimed = found["rows"] - found["timed"]
    broken: faults.Faults = [(faults.no_time(log), untimed)] if untimed else []
    if not found["timed"]:
        faults.refuse(log, broken)
    return found["rows"], sums.plan_periods(period, found["first"], found["last"]), broken


def _by_propensity(asked: Asked) -> Summed:
    """Separate arms: sums by period and arm, each row weighed by one over its own probability."""
    log, table = asked.log, asked.table
    rows = _propensity_sums(asked)
    faults.refuse(log, asked.faults_of(rows))
    arms = asked.arms or _arms_of(rows, log)
    tally = allocations.tally_rows(rows, arms.names)
    period, labels = asked.plan.periods(tally.buckets, tally.n.sum(axis=1))
    _check_size(len(labels), arms)
    counts, totals = tally.m.sum(axis=0), tally.sums["s"].sum(axis=0)
    raw = timeline = None
    if asked.units is None:
        evidence = allocations.tally_evidence(arms, tally, period, asked.direction, asked.reference)
        if asked.covariates:
            raw, other = evidence, adjusting.adjusted_tally(tally, rows, arms.names)
            evidence = allocations.tally_evidence(
                arms, other, period, asked.direction, asked.reference
            )
    else:
        grouped = _grouped(asked, table, ["p"])
        own = dict(zip(arms.names, enumerate(np.eye(arms.size)), strict=True))
        evidence, labels, raw, timeline = _unit_evidence(
            asked, grouped, arms, ["arm"], lambda _: own, True
        )
    if asked.units is not None and asked.kept:
        first = clusters.first_rows(grouped, ["arm", "p"])
        by_unit = allocations.tally_rows(
            log.fetch(sums.propensity_sums(first, asked.bucket(first), False)), arms.names
        )
        place, _ = asked.plan.periods(by_unit.buckets, by_unit.n.sum(axis=1))
        segments = allocations.logged_segments(by_unit, place, asked.missing != "zero")
        findings = [
            allocations.assignments_of(arms.names, by_unit, f"{asked.units.noun}s"),
            clusters.missing_rewards(
                arms.names, segments, asked.rows - int(tally.m.sum()), asked.rows
            ),
            clusters.visits_finding(log, first, asked.units),
        ]
    else:
        report = health_report(
            arms.names, allocations.logged_segments(tally, period, asked.missing != "zero")
        )
        rest = [finding for finding in report.findings if finding.name == "missing rewards"]
        if asked.units is not None and asked.units.cluster:
            first = clusters.cluster_assignments(log, grouped, arms.names)
        else:
            first = allocations.assignments_of(arms.names, tally)
        findings = [first, *rest]
    return Summed(arms, evidence, labels, findings, counts, totals, rows, raw, timeline)


def _propensity_sums(asked: Asked) -> Rows:
    log, table = asked.log, asked.table
    if asked.rows >= row_groups.WORTH:
        rows = row_groups.sums_by_piece(log, table, asked.plan, asked.reward_range)
        if rows is not None:
            return rows
    few = asked.rows <= sums.FEW
    if not few:
        some = table.limit(sums.SAMPLE)
        [sample] = log.fetch(some.aggregate(kinds=some.p.nunique()))
        few = sample["kinds"] <= sums.FEW
    return log.fetch(sums.propensity_sums(table, asked.bucket(table), few, asked.reward_range))


def _grouped(asked: Asked, table: Any, columns: list[str]) -> Any:
    """The table for sums by unit; the columns are those that probabilities are in."""
    assert asked.units is not None
    if asked.units.nameless:
        table = clusters.each_with_unit(table)
    if asked.kept and (asked.units.changed or "p" not in table.columns):
        table = clusters.with_first_probabilities(table, columns)
    return table


def _unit_evidence(
    asked: Asked, table: Any, arms: ArmSet, keys: list[str], cells: clusters.Cells, weigh: bool
) -> tuple[Evidence, list[str], Evidence | None, Evidence | None]:
    """Evidence by unit, its labels, with covariates that of rewards that are not adjusted, and
    for drift that of light units, with its labels, if heavy ones leave a single period.
    """
    assert asked.units is not None
    alone = asked.kept and asked.reference and asked.units.units < clusters.MANY

    def of(table: Any, level: float = 0.0) -> tuple[Evidence, list[str]]:
        parts = clusters.unit_sums(asked.log, table, keys, asked.plan, weigh, alone)
        found = [_limited(asked.log, part) for part in parts]
        if not found[0]:
            raise no_reward(asked)
        return clusters.unit_evidence(
            arms, found, keys, cells, asked.plan, asked.direction, asked.reference, level
        )

    evidence, labels = of(table)
    _check_size(len(labels), arms)
    raw = timeline = None
    if asked.covariates:
        raw = evidence
        evidence, labels = of(*adjusting.adjusted_by_unit(asked.log, table, arms.names))
    if len(labels) == 1 and asked.units.units >= clusters.MANY and not asked.units.cluster:
        light, periods = of(clusters.light_units(table, asked.rows))
        if len(periods) > 1:
            timeline, labels = light, periods
    return evidence, labels, raw, timeline


def _limited(log: Log, expression: Any) -> Rows:
    rows = log.fetch(expression.limit(MOST_GROUPS + 1))
    if len(rows) > MOST_GROUPS:
        raise InvalidInputError(
            f"{log.name} has more than {MOST_GROUPS:,} combinations of allocation and arm; "
            "analyse the arms each by itself, which needs only their own probability."
        )
    return rows


def _by_allocation(asked: Asked, vector: bool) -> Summed:
    """Rows whose whole allocation is known: by segment, or by period and vector."""
    log, table = asked.log, asked.table
    segments = log.has("segment")
    if not vector and not segments:
        raise InvalidInputError(
            f"the arms have features in common, but {log.name} has only the probability of each "
            "row's own arm; give the whole vector in a column probabilities, a column p_NAME for "
            "every arm, or a column segment within which probabilities are fixed."
        )
    keys: dict[str, Any] = {"arm": table.arm}
    keys |= {"segment": table.segment} if segments else {"bucket": asked.bucket(table)}
    if log.has("block") and not (
        asked.excluded or asked.pending
    ):  # of a block with gaps any part may be there
        keys["block"] = sums.as_number(log, table.block)
    if log.has("probabilities"):
        keys["probabilities"] = table.probabilities
    elif vector:
        keys |= {name: sums.as_number(log, table[name]) for name in log.vector}
    rows = _limited(log, sums.allocation_sums(table, keys, asked.reward_range))
    if asked.split is not None:
        splits.check_arms(log, asked.split, rows)
    faults.refuse(log, asked.faults_of(rows))
    arms = asked.arms or allocations.vector_arms(log) or _arms_of(rows, log)
    if vector and not log.has("probabilities"):
        allocations.check_vector(log, arms)
    shares = None if asked.described is None else asked.described.shares
    if asked.split is not None:
        shares = asked.split.allocations(arms)
    order = allocations.UNKNOWN_ORDER if asked.arms is None else allocations.KNOWN_ORDER
    pieces, wrong = allocations.allocation_pieces(rows, arms, segments, shares, order)
    faults.refuse(log, wrong[: faults.SHOWN])
    counts = np.sum([piece.m for piece in pieces], axis=0)
    totals = np.sum([piece.s for piece in pieces], axis=0)
    health = [piece.logged for piece in pieces]
    labels: list[str] | int
    raw = timeline = None
    if asked.units is None:
        evidence, used = allocations.allocation_evidence(
            arms, pieces, asked.direction, asked.reference
        )
        if asked.covariates:
            raw, other = evidence, adjusting.adjusted_pieces(pieces, arms, segments)
            evidence, used = allocations.allocation_evidence(
                arms, other, asked.direction, asked.reference, adjusted=True
            )
        _check_size(evidence.rounds.shape[1], arms)
        labels = _labels_of(asked.plan, used)
        if len(labels) != evidence.rounds.shape[1]:  # neighbouring pieces were joined
            labels = 20
        if asked.split is not None and asked.budget is None:
            timeline, evidence = evidence, _plain(asked, arms, used)
            raw = None if raw is None else _plain(asked, arms, pieces)
    else:
        evidence, labels, raw, timeline, health = _units_by_allocation(
            asked, arms, pieces, keys, vector
        )
    found = health_report(arms.names, health)
    findings = [finding for finding in found.findings if finding.name != "lost rows"]
    fit = None
    if asked.units is None:  # rows of one unit are alike, which this test would take for noise
        played = [(p.segment, p.stats) for p in pieces if p.m.sum()]
        fit = lack_of_fit(arms, played) if played else None
        findings += [] if fit is None else [fit.finding]
    if asked.units is not None and asked.units.cluster and not asked.kept:
        first = clusters.UNKNOWN_DRAWS
        if asked.split is not None:
            drawn = table.mutate(p=splits.own_probability(table, asked.split, arms))
            first = clusters.cluster_assignments(log, drawn, arms.names)
        findings = [first, *findings[1:]]
    if asked.kept:
        missing = clusters.missing_rewards(
            arms.names, health, asked.rows - int(counts.sum()), asked.rows
        )
        findings = [findings[0], missing]
    if asked.split is not None:
        findings = splits.against_split(findings)
    return Summed(arms, evidence, labels, findings, counts, totals, rows, raw, timeline, fit)


def _plain(asked: Asked, arms: ArmSet, pieces: list[allocations.Piece]) -> Evidence:
    """The evidence of plain randomisation, which a split is, from pieces adjusted or not."""
    found, _ = allocations.allocation_evidence(
        arms,
        splits.strata(pieces, arms),
        asked.direction,
        asked.reference,
        adjusted=any(piece.level for piece in pieces),
    )
    return found


def _units_by_allocation(
    asked: Asked, arms: ArmSet, pieces: list[allocations.Piece], keys: dict[str, Any], vector: bool
) -> tuple[Evidence, list[str], Evidence | None, Evidence | None, list[LoggedSegment]]:
    """As `_unit_evidence`, and for health checks units for rows if they are drawn once."""
    log = asked.log
    shares = {str(piece.segment_key): piece.weights for piece in pieces}
    if asked.split is not None:
        shares |= asked.split.allocations(arms)
    allocation = [name for name in keys if name not in ("arm", "bucket", "block")]
    if vector:
        allocation = [name for name in allocation if name != "segment"]
    table = asked.table.mutate(**{name: keys[name] for name in allocation})
    own = ["p"] if "p" in table.columns else []
    table = _grouped(asked, table, [*own, *allocation])

    def cells(rows: dict[Any, dict[str, Any]]) -> dict[Any, tuple[int, NDArray[np.float64]]]:
        """A(λ)⁻¹x of every arm and allocation."""
        index = np.array([arms.names.index(row["arm"]) for row in rows.values()])
        weights = np.array(
            [
                allocations.vector_of(row, arms, shares)[0]
                if vector
                else shares[str(row["segment"])]
                for row in rows.values()
            ]
        )
        one = np.zeros(weights.shape, dtype=np.int64)
        one[np.arange(len(index)), index] = 1
        segment = Segment(weights, np.ones(len(index), dtype=np.int64))
        b = ips(arms.coordinates, segment, SegmentStats(one, one.astype(np.float64)))
        return {key: (int(k), row) for key, k, row in zip(rows, index, b, strict=True)}

    found = _unit_evidence(asked, table, arms, ["arm", *allocation], cells, False)
    if not asked.kept:
        return *found, [piece.logged for piece in pieces]
    first = clusters.first_rows(table, ["arm", *own, *allocation])
    names: dict[str, Any] = {name: first[name] for name in ("arm", *allocation)}
    if "segment" not in allocation:
        names["bucket"] = asked.bucket(first)
    rows = _limited(log, sums.allocation_sums(first, names))
    by_unit, _ = allocations.allocation_pieces(rows, arms, "segment" in allocation, shares)
    return *found, [piece.logged for piece in by_unit]


def _arms_of(rows: Rows, log: Log) -> ArmSet:
    names = sorted({row["arm"] for row in rows})
    if not 2 <= len(names) <= MOST_ARMS:
        some = ", ".join(map(repr, names[:5]))
        raise InvalidInputError(
            f"{log.name} has {len(names):,} arms ({some}); expected 2 to {MOST_ARMS:,}. Is "
            f"{log.their('arm')} the right column?"
        )
    return ArmSet.one_hot(names)


def _check_size(pieces: int, arms: ArmSet) -> None:
    if pieces * arms.rank**2 > 50_000_000:
        raise InvalidInputError(
            f"{pieces:,} periods of {arms.size:,} arms are too many to keep; take fewer, such as "
            'period="shares:10".'
        )


def _labels_of(plan: sums.Plan, pieces: list[allocations.Piece]) -> list[str]:
    """The period of each piece, by its first row."""
    if plan.name == "shares":
        rows = np.array([piece.m.sum() for piece in pieces])
        middle = np.cumsum(rows) - rows / 2
        share = (middle * plan.shares / max(int(rows.sum()), 1)).astype(np.int64)
        return [f"share {min(int(s), plan.shares - 1) + 1}" for s in share]
    _, labels = plan.periods([piece.first for piece in pieces], np.ones(len(pieces), np.int64))
    return labels
