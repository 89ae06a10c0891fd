"""A live test day by day, from the sums that storages keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import DriftReport, drift_report
from steadyarm.judgement import Judgement
from steadyarm.looks.look import Waiting
from steadyarm.storages.records import DaySums

__all__ = ["date_of", "drift_by_day", "expected_end", "waiting_of"]

HOUR = 3_600_000  # milliseconds
PACE = 7  # days by which the present pace is told
FEW = 20  # visits in these by which no pace is told


def date_of(day: int) -> date:
    """The date of a day counted from 1970."""
    return date(1970, 1, 1) + timedelta(days=day)


def drift_by_day(judgement: Judgement, days: Sequence[int], level: float) -> DriftReport | None:
    """The drift report with a period for each day; None if there are fewer than two.

    judgement : of pieces that do not cross midnight
    days : the day of each piece, by its index
    """
    labels = [date_of(days[piece.index]).isoformat() for piece in judgement.judged()]
    if len(set(labels)) < 2:
        return None
    return drift_report(judgement.evidence(), labels, level)


def waiting_of(sums: Iterable[DaySums]) -> Waiting:
    """Rewards by the day of their assignment."""
    found: dict[int, NDArray[np.int64]] = {}
    for part in sums:
        row = found.setdefault(part.day, np.zeros(4, dtype=np.int64))
        tally = part.tally.counted()
        row += (tally.handed_out, tally.told, sum(part.late), sum(part.waited))
    days = sorted(found)
    assigned, told, late, waited = np.array([found[day] for day in days]).T
    hours = np.where(told > 0, waited / np.maximum(told, 1) / HOUR, np.nan)
    return Waiting(tuple(map(date_of, days)), assigned, told, late, hours)


def expected_end(waiting: Waiting, started: datetime, now: datetime, left: int) -> datetime | None:
    """When what is left will be handed out at the pace of the last days; None if it stands still.

    Examples
    --------
    >>> days = tuple(date(2026, 11, day) for day in (13, 14))
    >>> none = np.zeros(2, dtype=np.int64)
    >>> waiting = Waiting(days, np.array([600, 1200]), none, none, np.zeros(2))
    >>> began, now = datetime(2026, 11, 13, 12, tzinfo=UTC), datetime(2026, 11, 15, tzinfo=UTC)
    >>> expected_end(waiting, began, now, left=2400).isoformat()
    '2026-11-17T00:00:00+00:00'
    """
    first = now.date() - timedelta(days=PACE)
    pairs = zip(waiting.days, waiting.assigned, strict=True)
    recent = sum(int(assigned) for day, assigned in pairs if day >= first)
    since = max(started, datetime(first.year, first.month, first.day, tzinfo=UTC))
    if recent < FEW or now <= since:
        return None
    try:
        return now + (now - since) * (left / recent)
    except OverflowError:
        return None
