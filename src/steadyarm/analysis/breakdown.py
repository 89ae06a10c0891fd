"""Results of a log by the levels of an attribute, such as a country, as live tests have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steadyarm.analysis import units
from steadyarm.analysis.analyze import Sample, score
from steadyarm.analysis.result import Analysis
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.live.breakdowns import Breakdown, LevelResult, estimate_level, interaction, is_enough
from steadyarm.live.units import OTHER
from steadyarm.wording import counted

MOST_LEVELS = 20  # of a column, besides "other"


def with_breakdowns(sample: Sample, analysis: Analysis) -> Analysis:
    """The analysis with a breakdown for each column that was asked for."""
    notes, parts = list(analysis.notes), []
    for ours, theirs in sample.question.segments.items():
        part, note = _breakdown(sample, analysis, ours, theirs)
        parts.append(part)
        notes += [note] if note else []
    return replace(analysis, segments=tuple(parts), notes=tuple(notes))


def _breakdown(sample: Sample, analysis: Analysis, ours: str, theirs: str) -> tuple[Breakdown, str]:
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
            f"the column {theirs} of {log.name} has {values}; results by segment need at least two "
            "levels.",
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
