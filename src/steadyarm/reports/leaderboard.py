"""The variants of a live test from the best to the worst, as a table and a picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyarm.factors import factors_of
from steadyarm.looks.look import Look
from steadyarm.plot import charts
from steadyarm.reports.document import Block, Heading, Paragraph, Picture, Table
from steadyarm.reports.parts import MOST_ROWS, best_first, rest_note
from steadyarm.wording import counted, listed, number, percent, reach

__all__ = ["leaderboard_blocks", "order_of"]


def order_of(look: Look) -> list[int]:
    """Variants from the best to the worst; as they were given if nothing is known."""
    if look.verdict is None:
        return list(range(len(look.names)))
    order = best_first(look.verdict.estimates, look.settings.direction)
    return [look.verdict.arm, *(k for k in order if k != look.verdict.arm)]


def leaderboard_blocks(look: Look) -> list[Block]:
    """Heading, table and picture."""
    head = Heading("Leaderboard")
    verdict, names = look.verdict, look.labels
    if verdict is None:
        return [
            head,
            *_order(look),
            Paragraph(f"{look.obstacle[:1].upper()}{look.obstacle[1:]}"),
            _assigned(look),
        ]
    total = max(sum(look.status.assigned), 1)
    plausible = set(verdict.plausible)
    order = order_of(look)
    rows = tuple(
        (
            names[k],
            number(verdict.estimates[k]),
            reach(*verdict.intervals[k]),
            percent(look.status.assigned[k] / total),
            "leads" if k == verdict.arm else "yes" if names[k] in plausible else "no",
        )
        for k in order[:MOST_ROWS]
    )
    left = [names[k] in plausible for k in order[MOST_ROWS:]]
    note = rest_note(MOST_ROWS, len(names))
    if left:
        note += f" Of the others {sum(left):,} can still win."
    level = percent(verdict.level)
    header = ("variant", "estimate", f"{level} interval", "share of visits", "can still win")
    table = Table("Variants from the best to the worst", header, "lrrrl", rows, note)
    chart = charts.leaderboard(verdict, names, look.settings.direction)
    # the table here is cut, too
    picture = Picture(replace(chart, note=chart.note.replace("are in the table", "are not drawn")))
    told = Paragraph(
        f"From {counted(verdict.rewards, 'reward')}. Intervals hold for all variants at once."
    )
    blocks: list[Block] = [head, *_order(look), table, told]
    return [*blocks, picture] if np.isfinite(verdict.estimates).any() else blocks


def _order(look: Look) -> list[Block]:
    """What short names stand for."""
    factors = factors_of(look.names)
    if factors is None or look.labels == look.names:
        return []
    return [Paragraph(f"Variants are named by their levels of {listed(list(factors), 20)}.")]


def _assigned(look: Look) -> Table:
    status = look.status
    rows = tuple(
        (name, f"{status.assigned[k]:,}", f"{status.rewarded[k]:,}")
        for k, name in enumerate(look.labels[:MOST_ROWS])
    )
    note = rest_note(MOST_ROWS, len(look.names))
    return Table("The variants", ("variant", "visits", "rewards"), "lrr", rows, note)
