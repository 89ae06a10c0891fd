"""The variants of a live test from the best to the worst, as a table and a picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyarm.factors import factors_in
from steadyarm.looks.look import Look
from steadyarm.looks.ranking import Standing, order_of, standing_of
from steadyarm.plot import charts
from steadyarm.reports.document import Block, Heading, Paragraph, Picture, Table
from steadyarm.reports.parts import MOST_ROWS, rest_note
from steadyarm.wording import counted, listed, number, percent, reach

__all__ = ["leaderboard_blocks"]

STANDINGS: dict[Standing, str] = {
    "best": "best",
    "leads": "leads",
    "ahead": "best estimate",
    "open": "can still win",
    "maybe": "may be as good",
    "out": "ruled out",
    "dropped": "dropped",
    "unknown": "unknown",
}


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
    total, assigned = max(look.status.handed, 1), look.assigned
    order = order_of(look)
    rows = tuple(
        (
            names[k],
            number(verdict.estimates[k]),
            reach(*verdict.intervals[k]),
            percent(assigned[k] / total),
            STANDINGS[standing_of(look, k)],
        )
        for k in order[:MOST_ROWS]
    )
    note = rest_note(MOST_ROWS, look.size)
    rest = [standing_of(look, k) for k in order[MOST_ROWS:]]
    if rest:
        still: Standing = "maybe" if look.settled else "open"
        note += f" Of the others {rest.count(still) + verdict.others:,} {STANDINGS[still]}."
    level = percent(verdict.level)
    header = ("variant", "estimate", f"{level} interval", "share of visits", "standing")
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
    factors = factors_in(look.settings.arms)
    if factors is None or look.settings.arms.large or look.labels == look.names:
        return []
    return [Paragraph(f"Variants are named by their levels of {listed(list(factors), 20)}.")]


def _assigned(look: Look) -> Table:
    assigned, rewarded = look.assigned, look.rewarded
    rows = tuple(
        (name, f"{assigned[k]:,}", f"{rewarded[k]:,}")
        for k, name in enumerate(look.labels[:MOST_ROWS])
    )
    note = rest_note(MOST_ROWS, look.size)
    return Table("The variants", ("variant", "visits", "rewards"), "lrr", rows, note)
