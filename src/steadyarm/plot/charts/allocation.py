"""Which share of the visits each variant got as the test went on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.factors import labels_of
from steadyarm.looks.look import Shares
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.charts.picks import MOST, colours, wanted
from steadyarm.plot.charts.words import known, shown
from steadyarm.wording import counted, percent

__all__ = ["allocation"]

COLUMNS = 120
MARKS = 8
CLOSE = 0.04  # of the picture's width: marks nearer than this are one
LEAST, MOMENT = timedelta(seconds=1), timedelta(minutes=1)  # of the clock; for a single visit
SLIVER = 0.01  # of the picture's width: a last piece that took no time
TURN = "policy changed its mind"

Floats = NDArray[np.float64]


def allocation(shares: Shares, picked: Sequence[int] | None = None) -> Chart:
    """Shares over time; `picked` get colours, all others are summed up."""
    groups = _groups(shares.rounds)
    given = np.add.reduceat(_given(shares), groups, axis=0)
    part = given / np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
    x, axis, starts = _clock(shares, groups)
    by_share = np.lexsort((-given.sum(axis=0), -shares.planned[-1].round(4)))
    own = [int(k) for k in by_share if k < shares.single][: _room(shares)]
    tint = colours(wanted(picked, own))
    left = [k for k in range(len(shares.names)) if k not in tint]
    labels = labels_of(shares.names)
    stretched = part[[*range(len(part)), -1]]  # the last piece ends where the picture does
    areas = [
        Series(labels[k], x, stretched[:, k], kind="area", color=tint[k]) for k in sorted(tint)
    ]
    if left:
        rest = stretched[:, left].sum(axis=1)
        count = shares.variants - len(tint)
        areas.append(Series(counted(count, "other"), x, rest, kind="area", color=None))
    marks = _marks(shares, starts)
    panel = Panel(axis, Axis("share of visits", percent=True), tuple(areas), marks=marks)
    return Chart(
        "allocation",
        "Which share of the visits each variant got",
        _summary(shares, own[0], labels[own[0]], marks),
        (panel,),
        _table(shares),
    )


def _room(shares: Shares) -> int:
    """How many get colours; never a single other."""
    return MOST if shares.variants <= MOST else MOST - 1


def _groups(rounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each column of the picture begins: short pieces are drawn together."""
    if len(rounds) <= COLUMNS:
        return np.arange(len(rounds))
    before = np.cumsum(rounds) - rounds
    slot = (before * COLUMNS) // max(int(rounds.sum()), 1)
    return np.flatnonzero(np.diff(slot, prepend=-1))


def _given(shares: Shares) -> Floats:
    """How often each was handed out; as planned where nothing was yet."""
    empty = shares.given.sum(axis=1, keepdims=True) == 0
    return np.where(empty, shares.planned * 1e-12, shares.given)


def _clock(
    shares: Shares, groups: NDArray[np.int64]
) -> tuple[tuple[Any, ...], Axis, tuple[Any, ...]]:
    """Bounds of the columns, their axis, and where each piece begins."""
    if shares.starts is not None and shares.ends is not None:
        begin, end = shares.starts, shares.ends[-1]
        return (
            (*(begin[j] for j in groups), _end(begin[0], begin[groups[-1]], end)),
            Axis("time (UTC)", "time"),
            begin,
        )
    before = np.cumsum(shares.rounds) - shares.rounds
    places = tuple(float(count) for count in before)
    end_at = max(float(shares.rounds.sum()), places[-1] + 1)
    return (*(places[j] for j in groups), end_at), Axis("visits"), places


def _end(first: datetime, last: datetime, end: datetime) -> datetime:
    """Where the data ends, or as much later as it takes to see the last piece."""
    if end <= first:
        return first + MOMENT
    return max(end, last + SLIVER * (end - first), first + LEAST)


def _marks(shares: Shares, starts: tuple[Any, ...]) -> tuple[Mark, ...]:
    """Turns, the latest first chosen, those close together as one; none at the very beginning."""
    turns = [int(j) for j in np.flatnonzero(shares.turns) if j]
    rounds = np.cumsum(shares.rounds)
    first, last = starts[0], starts[-1]
    span = last - first
    kept: list[int] = []
    for j in reversed(turns):
        apart = not kept or (starts[kept[-1]] - starts[j]) > CLOSE * span
        if apart and len(kept) < MARKS and rounds[j - 1]:
            kept.append(j)
    return tuple(Mark(starts[j], TURN) for j in reversed(kept))


def _summary(shares: Shares, top: int, label: str, marks: tuple[Mark, ...]) -> str:
    turns = int(np.count_nonzero(shares.turns[1:]))
    total = int(shares.given.sum())
    return (
        f"{counted(total, 'visit')} so far. {_largest(shares, top, label)} The policy changed "
        f"its mind {counted(turns, 'time')}{_marked(shares, turns, marks)}."
    )


def _largest(shares: Shares, top: int, label: str) -> str:
    """Who has the largest share; no name where several have."""
    planned, K = shares.planned[:, : shares.single].round(4), shares.variants
    first, last = (percent(share) for share in shares.planned[[0, -1], top])
    tied = int(np.count_nonzero(planned[-1] == planned[-1].max()))
    if shares.rest and tied == shares.single:
        return f"Many variants have the largest share at last, {last} each."
    if tied == 1:
        return f"{shown(label, 60)} has the largest share at last, {last}, after {first} at first."
    if tied < K:
        return f"{tied:,} variants have the largest share at last, {last} each."
    when = "at last" if np.ptp(planned) else "all the time"
    return f"All variants have the same share {when}, {last} each."


def _marked(shares: Shares, turns: int, marks: tuple[Mark, ...]) -> str:
    """What to say where fewer marks are drawn than there were turns."""
    drawn = len(marks)
    if drawn in (0, turns):
        return ""
    if shares.starts is not None:
        begin: tuple[Any, ...] = shares.starts
    else:
        begin = tuple(np.cumsum(shares.rounds) - shares.rounds)
    newest = [begin[int(j)] for j in np.flatnonzero(shares.turns)[-drawn:]]
    if newest == [mark.x for mark in marks]:
        return f"; the last {drawn} are marked" if drawn > 1 else "; the last is marked"
    which = "the latest have" if drawn == MARKS else "they have"
    return f"; {which} {counted(drawn, 'mark')}, one for those close together"


def _table(shares: Shares) -> Table:
    header = (
        "start", "end", "visits", "variant", "given", "share", "planned share",
        "policy changed its mind",
    )  # fmt: skip  # a table reads better so
    J = len(shares.rounds)
    starts, ends = shares.starts or (None,) * J, shares.ends or (None,) * J
    totals = shares.given.sum(axis=1)
    rows = tuple(
        (
            starts[j],
            ends[j],
            int(totals[j]),
            name,
            int(shares.given[j, k]),
            float(shares.given[j, k] / totals[j]) if totals[j] else None,
            known(shares.planned[j, k]),
            bool(shares.turns[j]),
        )
        for j in range(J)
        for k, name in enumerate(shares.names)
    )
    return Table(header, rows)
