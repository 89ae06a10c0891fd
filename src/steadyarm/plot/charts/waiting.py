"""How many rewards have come for what was handed out, and how long they took."""

from __future__ import annotations

from datetime import datetime, time

import numpy as np

from steadyarm.looks.look import Waiting
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.words import known
from steadyarm.wording import counted, number, percent

__all__ = ["waiting"]

NEWEST = 2  # days that count as new
UNITS = (("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60), ("seconds", 1 / 3600))
SHORT = 0.1 / 3600  # hours below which no number is worth reading


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
    unit, size = _unit(float(np.nanmax(waiting.hours, initial=0.0)))
    times = waiting.hours / size
    until = Series(f"mean {unit} until the reward", x, times, kind="points", color=0)
    return Chart(
        "waiting",
        "Have the rewards come?",
        _summary(waiting),
        (
            Panel(clock, Axis("visits"), tuple(counts), "Handed out, and rewards that came"),
            Panel(
                clock,
                Axis(unit),
                (until,),
                f"Mean {unit} until the reward",
                y_range=(0.0, 1.1 * float(np.nanmax(times, initial=0.0)) or 1.0),
            ),
        ),
        _table(waiting),
        _note(waiting),
    )


def _note(waiting: Waiting) -> str:
    missing = waiting.assigned - waiting.told - waiting.late
    if not (missing[-NEWEST:] > 0).any():
        return ""
    return "The newest days may look worse than they are: rewards of theirs may still come."


def _unit(hours: float) -> tuple[str, float]:
    """A unit for times up to so many hours, and how many hours it has."""
    if not hours:
        return "hours", 1.0
    found = [(unit, size) for unit, size in UNITS if hours >= 2 * size]
    return found[0] if found else UNITS[-1]


def _lasting(hours: float) -> str:
    """A time in words.

    Examples
    --------
    >>> _lasting(4.225), _lasting(0.05), _lasting(100.0), _lasting(2e-6)
    ('4.225 hours', '3 minutes', '4.167 days', 'less than 0.1 seconds')
    """
    if hours < SHORT:
        return "less than 0.1 seconds"
    unit, size = _unit(hours)
    text = number(hours / size)
    return f"{text} {unit.removesuffix('s') if text == '1' else unit}"


def _summary(waiting: Waiting) -> str:
    handed, told, late = (int(v.sum()) for v in (waiting.assigned, waiting.told, waiting.late))
    share = percent(told / handed) if handed else "none"
    seen = np.isfinite(waiting.hours) & (waiting.told > 0)
    slow = ""
    if seen.any():
        mean = np.average(waiting.hours[seen], weights=waiting.told[seen])
        slow = f" A reward took {_lasting(float(mean))} on average."
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
