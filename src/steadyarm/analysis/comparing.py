"""What a log says against a control and by segment, in the words of a live test.

Lifts, decisions and breakdowns are those of `steadyarm.live`, from the evidence of a log. What is
needed of it is imported when it is asked for: most analyses have neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis import clusters
from steadyarm.analysis.log import ATTRIBUTE
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.fit import LackOfFit
from steadyarm.inference.health import HealthReport
from steadyarm.inference.intervals import Intervals
from steadyarm.inference.lift import Lifts, lift_sequence, lifts
from steadyarm.wording import counted, did_you_mean, shortened, strung

if TYPE_CHECKING:
    from steadyarm.analysis.result import Analysis, Asked, Summed
    from steadyarm.live.breakdowns import Breakdown, LevelResult
    from steadyarm.live.verdict import Verdict

MOST_SEGMENTS = 8  # columns
MOST_LEVELS = 20  # of a column, besides "other"


# Against a control.


def control_of(control: Any, arms: ArmSet, log: str) -> int | None:
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


def verdict_on(
    asked: Asked,
    evidence: Evidence,
    intervals: Intervals,
    health: HealthReport,
    counts: NDArray[np.int64],
    span: tuple[float, float] | None,
    fit: LackOfFit | None,
) -> Verdict:
    """The verdict as a live test has it: what to do and, with a control, lifts.

    counts : (K,) rewards of each arm
    span : rewards that can occur, if intervals that hold at all times may rely on it
    fit : whether the model fits, if that was tested
    """
    arms = evidence.arms
    from steadyarm.live.conclusion import decision_of, doubt_of
    from steadyarm.live.verdict import Verdict

    verdict = Verdict.from_intervals(
        intervals,
        arms.names,
        anytime=asked.budget is not None,
        compared=_lifts(asked, evidence, intervals, span),
        rewards=int(counts.sum()),
        missing=asked.rows - int(counts.sum()),
        judged=asked.rows,
        unhealthy=health.unhealthy,
    )
    verdict = replace(verdict, caution=doubt_of(verdict, asked.direction, lambda: fit))
    over = asked.budget is None or asked.rows >= asked.budget
    planned = asked.budget or asked.rows
    return replace(
        verdict, decision=decision_of(verdict, asked.direction, planned, over, spent=over)
    )


def _lifts(
    asked: Asked, evidence: Evidence, intervals: Intervals, span: tuple[float, float] | None
) -> Lifts | None:
    """Differences from the control; None without one."""
    control = control_of(asked.control, evidence.arms, asked.log.name)
    if control is None:
        return None
    if intervals.shown is not None:
        evidence = evidence.view(intervals.shown)
        control = int(np.searchsorted(intervals.shown, control))
    if asked.budget is None:
        found = lifts(evidence, control, asked.level, intervals=intervals)
    else:
        found = lift_sequence(
            evidence, asked.budget, control, asked.level, span, intervals=intervals
        )
    unknown = ~np.isfinite(intervals.standard_errors[0])
    return _without(found, unknown | unknown[control]) if unknown.any() else found


def _without(found: Lifts, unknown: NDArray[np.bool_]) -> Lifts:
    """The lifts if nothing is known of some arms."""
    others = unknown & (np.arange(len(unknown)) != found.control)

    def beyond(limits: NDArray[np.float64], end: float) -> NDArray[np.float64]:
        return np.where(others, end, limits)

    return replace(
        found,
        low=beyond(found.low, -np.inf),
        high=beyond(found.high, np.inf),
        relative=beyond(found.relative, np.nan),
        relative_low=beyond(found.relative_low, np.nan),
        relative_high=beyond(found.relative_high, np.nan),
        standard_errors=beyond(found.standard_errors, np.inf),
    )


# By segment.


def segment_columns(given: Any, columns: Mapping[str, str] | None) -> dict[str, str]:
    """Our names to theirs of the columns whose levels results are split by."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInputError.of("segments", given, 'names of columns, such as ["country"]')
    if len(names) > MOST_SEGMENTS or len(set(names)) < len(names):
        raise InvalidInputError(
            f"the segments are {shortened(names)}; expected at most {MOST_SEGMENTS} different "
            "columns, since every further one widens the doubt about what is found.",
            field="segments",
        )
    mapped = {"reward": "reward", "arm": "arm"} | dict(columns or {})
    for ours in ("reward", "arm"):
        if mapped[ours] in names:
            raise InvalidInputError(
                f"the segment {mapped[ours]!r} is the {ours} itself; segments are what was known "
                "of a unit before it was assigned, such as a country.",
                field="segments",
            )
    return {f"{ATTRIBUTE}{i}": name for i, name in enumerate(names, 1)}


def with_segments(asked: Asked, found: Analysis, again: Callable[[Asked], Summed]) -> Analysis:
    """The analysis with a breakdown for each segment.

    again : the sums of a part of the log
    """
    if not asked.segments:
        return found
    notes, parts = list(found.notes), []
    for ours, theirs in asked.segments.items():
        part, note = _breakdown(asked, found, ours, theirs, again)
        parts.append(part)
        notes += [note] if note else []
    return replace(found, segments=tuple(parts), notes=tuple(notes))


def _breakdown(
    asked: Asked, found: Analysis, ours: str, theirs: str, again: Callable[[Asked], Summed]
) -> tuple[Breakdown, str]:
    from steadyarm.live.breakdowns import (
        Breakdown,
        LevelResult,
        compared_level,
        enough,
        interaction,
    )
    from steadyarm.live.units import OTHER

    names, table = found.arms.names, asked.table
    level = table[ours].cast("string").nullif("")
    counts = table.group_by(level=level).aggregate(rows=table.count())
    counts = counts.filter(counts.level.notnull())
    ranked = counts.order_by([counts.rows.desc(), counts.level])
    known = asked.log.fetch(ranked.limit(MOST_LEVELS))
    [whole] = asked.log.fetch(counts.aggregate(levels=counts.count(), rows=counts.rows.sum()))
    if len(known) < 2:
        values = f"only {known[0]['level']!r}" if known else "no value"
        raise InvalidInputError(
            f"the column {theirs} of {asked.log.name} has {values}; results by segment need at "
            "least two levels.",
            field="segments",
        )
    shown, note = {str(row["level"]): int(row["rows"]) for row in known}, ""
    selections = [(name, rows, level == name) for name, rows in shown.items()]
    if whole["levels"] > len(shown):
        rest = int(whole["rows"]) - sum(shown.values())
        selections.append((OTHER, rest, level.notnull() & level.notin(list(shown))))
        note = (
            f"{theirs} has {whole['levels']:,} levels: the {len(shown)} with the most rows are "
            f"shown, all others together are {OTHER!r}. Group them in a query to see others."
        )
    against = asked.control or found.verdict.name
    row, share = found.arms.index(against), (1 - asked.level) / len(selections)
    results: list[LevelResult] = []
    tested: dict[str, Evidence] = {}
    for name, rows, selection in selections:
        part = _part(asked, found, table.filter(selection), rows)
        result = LevelResult(name, names, rows, against)
        alone, obstacle = None, "no reward"
        try:
            alone = again(part)
            obstacle = "" if alone.evidence.played[0] else obstacle
        except InvalidInputError as error:
            obstacle = obstacle if "not one reward" in str(error) else str(error)
        if alone is not None and part.units is not None and part.units.too_few:
            obstacle = f"only {counted(part.units.units, 'unit')}"
        if alone is None or obstacle:
            results.append(replace(result, obstacle=obstacle))
            continue
        if enough(alone.counts, alone.counts, alone.sums, alone.evidence):
            tested[name] = alone.evidence
        chosen = asked.control is None
        budget = None if asked.budget is None else max(asked.budget // len(selections), 1)
        results.append(compared_level(result, alone.evidence, row, share, chosen, budget, None))
    return Breakdown(
        theirs,
        against,
        tuple(results),
        unknown=asked.rows - sum(one.visits for one in results),
        interaction=interaction(tested.values(), row),
        left_out=tuple(one.name for one in results if one.visits and one.name not in tested),
        level=asked.level,
        anytime=asked.budget is not None,
    ), note


def _part(asked: Asked, found: Analysis, table: Any, rows: int) -> Asked:
    """The question about some rows of a log."""
    log = asked.log
    if log.has("block"):  # some rows of a balanced block are not balanced
        table = table.drop("block")
        log = replace(log, table=log.table.drop("block"))
    units = asked.units
    if units is not None:
        units = clusters.count_units(log, table, rows, False, units.cluster)
    return replace(
        asked,
        log=log,
        table=table,
        rows=rows,
        arms=found.arms,
        thorough=False,
        control=None,
        segments={},
        units=units,
    )


def segment_lines(parts: Sequence[Breakdown]) -> list[str]:
    """Breakdowns as text."""
    lines: list[str] = []
    for part in parts:
        lines += ["", f"By {part.attribute}:", str(part)]
        if part.unknown:
            rows = counted(part.unknown, "row has", "rows have")
            lines.append(f"{rows} no {part.attribute}.")
    return lines


def control_lines(verdict: Verdict, order: Sequence[int], width: int, most: int) -> list[str]:
    """Differences from the control as text."""
    from steadyarm.live.tables import lift_text
    from steadyarm.wording import number, percent, reach

    assert verdict.lifts is not None
    assert verdict.lift_intervals is not None
    level = f"{percent(verdict.level)}, all at once"
    head = f"{'':<{width}}{'difference':>12}{level:>24}   against {verdict.control}"
    lines = ["", head.rstrip()]
    others = [k for k in order if verdict.names[k] != verdict.control]
    for k in others[:most]:
        ends = reach(*verdict.lift_intervals[k].tolist())
        value = number(float(verdict.lifts[k]))
        lines.append(f"{verdict.names[k]:<{width}}{value:>12}{ends:>24}   {lift_text(verdict, k)}")
    return lines
