"""Rows that stand in a log twice: the same unit at the same time."""

from __future__ import annotations

from typing import Any

from steadyarm.analysis.source import Log
from steadyarm.inference.health import Finding

__all__ = ["duplicate_finding", "order_finding"]

SHOWN, MOST_ROWS = 3, 12  # units whose rows a message names, and rows of them


def duplicate_finding(log: Log, table: Any) -> Finding:
    """Whether a unit has several rows at one time, and whether these differ."""
    alike = table.group_by("unit", "timestamp").aggregate(
        rows=table.count(), arms=table.arm.nunique(), rewards=table.r.nunique()
    )
    again = alike.filter((alike.rows > 1) & alike.unit.notnull())
    differ = (again.arms > 1) | (again.rewards > 1)
    [found] = log.fetch(
        again.aggregate(
            more=(again.rows - 1).sum(where=~differ).fill_null(0),
            other=again.count(where=differ),
        )
    )
    name = "duplicate rows"
    if found["other"]:
        return Finding(
            name,
            "fail",
            None,
            f"{found['other']:,} times rows of the same unit and time differ in arm or reward: "
            f"{_places(log, again.filter(differ))}.",
            "Find out which of them is true and leave the others out.",
        )
    if found["more"]:
        return Finding(
            name,
            "warn",
            None,
            f"{found['more']:,} rows repeat another of the same unit, time, arm and reward: "
            f"{_places(log, again)}.",
            "They were counted as often as they stand there; remove them if they are copies.",
        )
    return Finding(name, "ok", None, "No unit has two rows of the same time.")


def _places(log: Log, again: Any) -> str:
    """The rows of the first few of these units and times."""
    keys = ["unit", "timestamp"]
    first = again.order_by(["timestamp", "unit"]).limit(SHOWN).select(*keys)
    places: dict[tuple[Any, Any], list[str]] = {}
    for part in log.parts:
        table = part.table.mutate(row=part.number(part.table))
        rows = table.semi_join(first, keys).select(*keys, "row").order_by(["timestamp", "row"])
        for row in log.fetch(rows.limit(MOST_ROWS)):
            place = f"{part.name} row {row['row']}".strip()
            places.setdefault((row["unit"], row["timestamp"]), []).append(place)
    shown = [f"{' and '.join(rows)} (unit {unit})" for (unit, _), rows in places.items()]
    return ", ".join(shown)


def order_finding(places: list[str], groups: bool = False) -> Finding:
    """What it means that rows, or groups of rows, are not in order of time."""
    if not places:
        fine = (
            "Row groups are in order of time; rows within them were not compared."
            if groups
            else "Rows are in order of time."
        )
        return Finding("order of rows", "ok", None, fine)
    return Finding(
        "order of rows",
        "warn",
        None,
        f"Time goes back in {', '.join(places)}{' and maybe more' if len(places) >= 5 else ''}.",
        "Results do not depend on the order of rows; make sure that the time stamps are right.",
    )
