"""How many rewards have come for what was handed out, and how long they took."""

from __future__ import annotations

from datetime import datetime, time

import numpy as np

from steadyarm.looks.look import Waiting
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.words import known
from steadyarm.wording import counted, number, percent

__all__ = ["waiting"]


def waiting(waiting: Waiting) -> Chart:
    """Rewards by the day on which their variants were handed out."""
    x = tuple(datetime.combine(day, time()) for day in waiting.days)
    clock = Axis("day handed out (UTC)", "time")
    counts = [
        Series("handed out", x, waiting.assigned.astype(float), kind="bars", color=None),
        Series("reward came", x, waiting.told.astype(float), kind="bars", color=0),
    ]
    if waiting.late.any():
        late = waiting.late.astype(float)
        counts.append(Series("came too late", x, late, kind="points", color=1))
    hours = Series("mean hours until the reward", x, waiting.hours, kind="points", color=0)
    return Chart(
        "waiting",
        "Have the rewards come?",
        _summary(waiting),
        (
            Panel(clock, Axis("visits"), tuple(counts), "Handed out, and rewards that came"),
            Panel(
                clock,
                Axis("hours"),
                (hours,),
                "Mean hours until the reward",
                y_range=(0.0, 1.1 * float(np.nanmax(waiting.hours, initial=0.0)) or 1.0),
            ),
        ),
        _table(waiting),
        "The newest days look worse than they are: their rewards are still to come.",
    )


def _summary(waiting: Waiting) -> str:
    handed, told, late = (int(v.sum()) for v in (waiting.assigned, waiting.told, waiting.late))
    share = percent(told / handed) if handed else "none"
    seen = np.isfinite(waiting.hours) & (waiting.told > 0)
    slow = ""
    if seen.any():
        mean = np.average(waiting.hours[seen], weights=waiting.told[seen])
        slow = f" A reward took {number(float(mean))} hours on average."
    refused = f" {counted(late, 'reward')} came too late." if late else ""
    return (
        f"Rewards have come for {told:,} of {counted(handed, 'visit')} ({share}) on "
        f"{counted(len(waiting.days), 'day')}.{slow}{refused}"
    )


def _table(waiting: Waiting) -> Table:
    header = ("day", "handed out", "reward came", "came too late", "mean hours until the reward")
    rows = tuple(
        (
            day.isoformat(),
            int(waiting.assigned[d]),
            int(waiting.told[d]),
            int(waiting.late[d]),
            known(waiting.hours[d]),
        )
        for d, day in enumerate(waiting.days)
    )
    return Table(header, rows)
