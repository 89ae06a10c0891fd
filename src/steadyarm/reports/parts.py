"""Sections that reports on live tests and on logs share: health, drift, other ways to conclude."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import DriftReport, HealthReport, Otherwise
from steadyarm.reports.document import Block, Note, Paragraph, Table
from steadyarm.wording import counted, number, percent, reach

__all__ = [
    "MOST_ROWS",
    "best_first",
    "health_table",
    "otherwise_blocks",
    "period_table",
    "rest_note",
]

MOST_ROWS = 40
MOST_PERIODS = 31
MOST_COLUMNS = 6  # variants beside each other, as many as fit on paper
LONG = 16  # letters of a name from which on half as many fit


def best_first(estimates: NDArray[np.float64], direction: str) -> list[int]:
    """Variants from the best estimate to the worst, unknown ones last."""
    sign = 1 if direction == "maximize" else -1
    return [int(k) for k in np.argsort(-sign * estimates, kind="stable")]


def rest_note(shown: int, total: int, what: str = "variant") -> str:
    """Says how many rows were left out; empty if none."""
    if shown >= total:
        return ""
    return f"The first {shown:,} of {counted(total, what)} are shown."


def health_table(health: HealthReport, caption: str) -> Table:
    """What was looked at, and what to do."""
    rows = tuple((f.status, f.name, f"{f.explanation} {f.advice}".strip()) for f in health.findings)
    return Table(caption, ("status", "check", "what was found"), "lll", rows)


def period_table(drift: DriftReport, order: Sequence[int], counted_as: str) -> Table:
    """Estimates in every period of the best variants, the last periods if there are many."""
    wide = any(len(drift.names[k]) > LONG for k in order[:MOST_COLUMNS])
    shown = order[: MOST_COLUMNS // 2 if wide else MOST_COLUMNS]
    first = max(0, len(drift.periods) - MOST_PERIODS)
    rows = tuple(
        (
            drift.periods[j],
            f"{drift.rounds[j]:,}",
            drift.leaders[j],
            *(f"{number(drift.estimates[j, k])} ± {_error(drift.errors[j, k])}" for k in shown),
        )
        for j in range(first, len(drift.periods))
    )
    notes = []
    total = len(drift.names) + drift.others
    if len(shown) < total:
        notes.append(f"Only the best {len(shown)} of {total:,} variants are shown.")
    if first:
        notes.append(f"The last {MOST_PERIODS} of {len(drift.periods):,} periods are shown.")
    header = ("period", counted_as, "ahead", *(drift.names[k] for k in shown))
    caption = "Estimates in every period, with standard errors"
    return Table(caption, header, "lrl" + "r" * len(shown), rows, " ".join(notes))


def otherwise_blocks(other: Otherwise) -> list[Block]:
    """Who else would have been put first, and why not to."""
    rows = []
    if other.raw is not None:
        behind = f"behind by {number(other.raw.behind, 3)}, {reach(*other.raw.interval)}"
        rows.append(("plain means", other.raw.leader, behind if other.simpson else "the same"))
    for early in {early.rounds: early for early in other.early}.values():
        same = "the same" if early.leader == other.best else "another variant"
        share = percent(round(early.rounds / other.rounds, 2))
        rows.append((f"a look after {share} of the rewards", early.leader, same))
    lost = other.best_dropped
    gone = (
        ("the same" if other.winner == other.best else "another variant")
        if lost is None
        else f"gives the best variant up after {lost:,} rewards"
    )
    rows.append(("elimination by halves", other.winner, gone))
    caption = "The same rewards, read in other ways"
    blocks: list[Block] = [
        Table(caption, ("by", "best variant", f"against {other.best}"), "lll", tuple(rows))
    ]
    if other.raw is not None and other.simpson:
        clear = other.raw.interval[0] > 0
        says = (
            "Plain means put another variant first: the mix of periods differs between variants."
            if clear
            else "Plain means put another variant first, but the two are too close to tell."
        )
        blocks.insert(0, Note(says, "warn") if clear else Paragraph(says))
    elif all(row[2] == "the same" for row in rows):
        blocks.insert(0, Paragraph("All of them come to the same conclusion here."))
    return blocks


def _error(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "-"
