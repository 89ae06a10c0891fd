"""analyze: the verdict on a test that ran elsewhere, from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis import adjusting, allocations, clusters, faults, sums
from steadyarm.analysis.log import Log, open_log
from steadyarm.analysis.result import Analysis, Asked, Missing, Rows, analysis_of, no_reward
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
    source: Any,
    *,
    arms: ArmSet | Sequence[str] | None = None,
    table: str | None = None,
    query: str | None = None,
    columns: Mapping[str, str] | None = None,
    period: str = "auto",
    direction: Direction = "maximize",
    level: float = 0.95,
    reward_range: tuple[float, float] | None = None,
    missing: Missing = "fail",
    reference: bool = True,
    thorough: bool | None = None,
    anytime: bool = False,
    budget: int | None = None,
    units: bool = True,
    memory: str = "2GB",
    covariates: Sequence[str] = (),
) -> Analysis:
    """The verdict on a test that ran elsewhere, from its log, wherever that lives.

    Parameters
    ----------
    source : a CSV or Parquet file, a folder or pattern or list of them, a SQLite or DuckDB file,
        the URL of a database, or an Ibis table
    arms : the variants; by default those of the test whose export this is, if its description
        stands beside it, else every arm in the log, each by itself. Arms with features need
        the whole allocation of every row: a column `probabilities` (JSON or a list), a column
        p_NAME for every arm, or a column `segment` within which probabilities are fixed
    table, query : what to read from a database; a query on files calls them log
    columns : our names of columns to theirs, such as {"arm": "variant"}
    period : "hour", "day", "week", "month", "shares:20" or "auto", for the drift report
    direction : "maximize" or "minimize" the reward
    level : of the intervals
    reward_range : the least and the largest reward that can occur; others are refused
    missing : what to do with rows without a reward: "fail", "drop" them, or count them as "zero"
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
    """
    check_choice(direction, "direction", ("maximize", "minimize"))
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
    given = arms if isinstance(arms, ArmSet) or arms is None else ArmSet.one_hot(arms)
    extra = adjusting.covariate_columns(covariates, columns)
    named = dict(columns or {}) | extra
    with closing(open_log(source, table=table, query=query, columns=named, memory=memory)) as log:
        exported = (
            allocations.described(source)
            if given is None and query is None and not columns
            else None
        )
        counting, excluded = _without_excluded(log)
        frame = sums.readable(log, counting, missing == "zero")
        rows, plan, broken = _extent(log, frame, period)
        thorough = rows <= SMALL if thorough is None else thorough
        found = None
        if log.has("unit") and units:
            if frame.unit.type().is_string():  # empty text is no unit
                frame = frame.mutate(unit=frame.unit.nullif(""))
            found = clusters.count_units(log, frame, rows, sample=not thorough)
        asked = Asked(
            log=log,
            table=frame,
            plan=plan,
            rows=rows,
            arms=given if exported is None else exported.arms,
            described=exported,
            broken=broken,
            direction=direction,
            level=level,
            reward_range=span,
            missing=missing,
            reference=reference,
            thorough=thorough,
            budget=budget,
            by_unit=units,
            units=found,
            excluded=excluded,
            covariates=tuple(extra.values()),
        )
        if asked.covariates and found is not None:
            raise InvalidInputError(
                f"{log.name} has several rows of some units, and covariates work with one row of "
                "each; add up the rows of a unit, or treat rows as independent: units=False, on "
                "the command line --no-units.",
                field="covariates",
            )
        return _answer(asked)


def _answer(asked: Asked) -> Analysis:
    """By the whole allocation where it is needed or known to be useful, else by own probability."""
    log = asked.log
    linear = asked.arms is not None and not is_one_hot(asked.arms.coordinates)
    vector = log.has("probabilities") or (bool(log.vector) and not log.has("probability"))
    if asked.units is not None and log.has("probability") and not (linear or log.has("block")):
        vector = False  # a row's own probability is enough, and has far fewer combinations
    if vector or linear or (log.has("segment") and log.has("block")):
        return _by_allocation(asked, vector)
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
    broken: faults.Faults = [(faults.NO_TIME, untimed)] if untimed else []
    if not found["timed"]:
        faults.refuse(log, broken)
    return found["rows"], sums.plan_periods(period, found["first"], found["last"]), broken


def _by_propensity(asked: Asked) -> Analysis:
    """Separate arms: sums by period and arm, each row weighed by one over its own probability."""
    log, table = asked.log, asked.table
    some = table.limit(sums.SAMPLE)
    [sample] = log.fetch(some.aggregate(kinds=some.p.nunique()))
    few = sample["kinds"] <= sums.FEW
    rows = log.fetch(sums.propensity_sums(table, asked.bucket(table), few, asked.reward_range))
    faults.refuse(log, asked.faults_of(rows))
    arms = asked.arms or _arms_of(rows, log)
    tally = allocations.tally_rows(rows, arms.names)
    period, labels = asked.plan.periods(tally.buckets, tally.n.sum(axis=1))
    _check_size(len(labels), arms)
    counts, totals = tally.m.sum(axis=0), tally.sums["s"].sum(axis=0)
    raw = None
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
        evidence, labels = _unit_evidence(asked, grouped, arms, ["arm"], lambda _: own, True)
    if asked.units is not None and asked.kept:
        first = clusters.first_rows(grouped, ["arm", "p"])
        by_unit = allocations.tally_rows(
            log.fetch(sums.propensity_sums(first, asked.bucket(first), False)), arms.names
        )
        place, _ = asked.plan.periods(by_unit.buckets, by_unit.n.sum(axis=1))
        segments = allocations.logged_segments(by_unit, place, asked.missing != "zero")
        findings = [
            allocations.assignments_of(arms.names, by_unit, "units"),
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
        findings = [allocations.assignments_of(arms.names, tally), *rest]
    return analysis_of(asked, arms, evidence, labels, findings, counts, totals, rows, raw)


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
) -> tuple[Evidence, list[str]]:
    """Evidence by unit."""
    parts = clusters.unit_sums(asked.log, table, keys, asked.plan, weigh)
    found = [_limited(asked.log, part) for part in parts]
    if not found[0]:
        raise no_reward(asked)
    evidence, labels = clusters.unit_evidence(
        arms, found, keys, cells, asked.plan, asked.direction, asked.reference
    )
    _check_size(len(labels), arms)
    return evidence, labels


def _limited(log: Log, expression: Any) -> Rows:
    rows = log.fetch(expression.limit(MOST_GROUPS + 1))
    if len(rows) > MOST_GROUPS:
        raise InvalidInputError(
            f"{log.name} has more than {MOST_GROUPS:,} combinations of allocation and arm; "
            "analyse the arms each by itself, which needs only their own probability."
        )
    return rows


def _by_allocation(asked: Asked, vector: bool) -> Analysis:
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
    if log.has("block") and not asked.excluded:  # of a block with gaps any part may be there
        keys["block"] = sums.as_number(log, table.block)
    if log.has("probabilities"):
        keys["probabilities"] = table.probabilities
    elif vector:
        keys |= {name: sums.as_number(log, table[name]) for name in log.vector}
    rows = _limited(log, sums.allocation_sums(table, keys, asked.reward_range))
    faults.refuse(log, asked.faults_of(rows))
    arms = asked.arms or allocations.vector_arms(log) or _arms_of(rows, log)
    if vector and not log.has("probabilities"):
        allocations.check_vector(log, arms)
    shares = None if asked.described is None else asked.described.shares
    order = allocations.UNKNOWN_ORDER if asked.arms is None else allocations.KNOWN_ORDER
    pieces, wrong = allocations.allocation_pieces(rows, arms, segments, shares, order)
    faults.refuse(log, wrong[: faults.SHOWN])
    counts = np.sum([piece.m for piece in pieces], axis=0)
    totals = np.sum([piece.s for piece in pieces], axis=0)
    health = [piece.logged for piece in pieces]
    labels: list[str] | int
    raw = None
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
    else:
        evidence, labels, health = _units_by_allocation(asked, arms, pieces, keys, vector)
    found = health_report(arms.names, health)
    findings = [finding for finding in found.findings if finding.name != "lost rows"]
    if asked.units is None:  # rows of one unit are alike, which this test would take for noise
        played = [(p.segment, p.stats) for p in pieces if p.m.sum()]
        fit = lack_of_fit(arms, played) if played else None
        findings += [] if fit is None else [fit.finding]
    if asked.kept:
        missing = clusters.missing_rewards(
            arms.names, health, asked.rows - int(counts.sum()), asked.rows
        )
        findings = [findings[0], missing]
    return analysis_of(asked, arms, evidence, labels, findings, counts, totals, rows, raw)


def _units_by_allocation(
    asked: Asked, arms: ArmSet, pieces: list[allocations.Piece], keys: dict[str, Any], vector: bool
) -> tuple[Evidence, list[str], list[LoggedSegment]]:
    """Evidence by unit, its labels, and for health checks units for rows if they are drawn once."""
    log = asked.log
    shares = {str(piece.segment_key): piece.weights for piece in pieces}
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
                allocations.vector_of(row, arms)[0] if vector else shares[str(row["segment"])]
                for row in rows.values()
            ]
        )
        one = np.zeros(weights.shape, dtype=np.int64)
        one[np.arange(len(index)), index] = 1
        segment = Segment(weights, np.ones(len(index), dtype=np.int64))
        b = ips(arms.coordinates, segment, SegmentStats(one, one.astype(np.float64)))
        return {key: (int(k), row) for key, k, row in zip(rows, index, b, strict=True)}

    evidence, labels = _unit_evidence(asked, table, arms, ["arm", *allocation], cells, False)
    if not asked.kept:
        return evidence, labels, [piece.logged for piece in pieces]
    first = clusters.first_rows(table, ["arm", *own, *allocation])
    names: dict[str, Any] = {name: first[name] for name in ("arm", *allocation)}
    if "segment" not in allocation:
        names["bucket"] = asked.bucket(first)
    rows = _limited(log, sums.allocation_sums(first, names))
    by_unit, _ = allocations.allocation_pieces(rows, arms, "segment" in allocation, shares)
    return evidence, labels, [piece.logged for piece in by_unit]


def _arms_of(rows: Rows, log: Log) -> ArmSet:
    names = sorted({row["arm"] for row in rows})
    if not 2 <= len(names) <= MOST_ARMS:
        raise InvalidInputError(
            f"{log.name} has {len(names):,} arms ({', '.join(names[:5])}); expected 2 to "
            f"{MOST_ARMS:,}. Is {log.their('arm')} the right column?"
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
