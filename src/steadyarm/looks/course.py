"""How estimates and shares went over a test, piece by piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.walsh import walsh_of
from steadyarm.inference.sequences import confidence_path
from steadyarm.inference.shortlist import moments
from steadyarm.judgement import Judgement, level_of_looks
from steadyarm.ledger import OpenSegment
from steadyarm.looks.look import Course, Shares
from steadyarm.wording import counted

__all__ = ["LEVEL", "course_of", "shares_of"]

LEVEL = 0.95
LOOKS, FEWER, MANY = 60, 16, 64  # looks of a course; fewer where there are many variants
WORK = 5e8  # arms times squared parameters up to which all arms are gone through at every look
TOO_MANY = 2**12  # variants, to tell the share of each
MOST_SHARES = 40  # of these whose shares are told one by one
TURN = 0.02  # share of the traffic that has to move before it is a change of mind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Spans = Mapping[int, tuple[datetime, datetime]]  # first and last assignment, by segment


def course_of(
    judgement: Judgement,
    budget: int,
    spans: Spans | None = None,
    level: float = LEVEL,
    reward_range: tuple[float, float] | None = None,
) -> Course:
    """Estimates at up to 60 moments, with intervals that hold at all of them at once.

    Parameters
    ----------
    spans : when segments were handed out, by their index
    reward_range : beyond which no reward lies, and so no mean
    """
    evidence, pieces = judgement.evidence(), judgement.judged()
    arms = evidence.arms
    at = moments(len(pieces), LOOKS if arms.size <= MANY else FEWER)
    quick = walsh_of(arms.rows) is not None or arms.size * arms.rank**2 <= WORK
    counts = arms.large and quick
    used = level_of_looks(level)
    path = confidence_path(evidence, budget, used, at=at, count_all=counts)
    times = None
    if spans is not None:
        ends = list(accumulate((spans[piece.index][1] for piece in pieces), max))
        times = tuple(ends[j] for j in at)
    return Course(
        names=path[0].arms.names,
        times=times,
        rounds=np.array([look.rounds[0] for look in path]),
        estimates=np.array([look.estimates[0] for look in path]),
        low=_clipped([look.low[0] for look in path], reward_range),
        high=_clipped([look.high[0] for look in path], reward_range),
        leaders=np.array([look.recommended[0] for look in path]),
        plausible=np.array([look.plausible[0] for look in path]),
        level=level,
        size=arms.size if arms.large else 0,
        others=np.array([look.others for look in path]) if counts else None,
    )


def _clipped(ends: list[Floats], reward_range: tuple[float, float] | None) -> Floats:
    """Ends of intervals that lie where rewards lie; what is unknown stays infinite."""
    values = np.array(ends)
    if reward_range is None:
        return values
    return np.where(np.isfinite(values), np.clip(values, *reward_range), values)


def shares_of(
    names: Sequence[str], pieces: Sequence[OpenSegment], spans: Spans | None = None
) -> Shares:
    """How variants were handed out, from pieces that were handed out from."""
    planned, given, rest = _columns(pieces)
    moved = np.abs(np.diff(planned, axis=0)).sum(axis=1) / 2
    shown: Sequence[str] = names
    if rest is not None:
        planned, given, shown = _most_frequent(names, planned, given, rest)
    between = None if spans is None else [spans[piece.index] for piece in pieces]
    return Shares(
        names=shown,
        starts=None if between is None else tuple(start for start, _ in between),
        ends=None if between is None else tuple(end for _, end in between),
        rounds=np.array([piece.assigned.sum() for piece in pieces]),
        planned=planned,
        given=given,
        turns=np.concatenate([[False], moved > TURN]),
        rest=0 if rest is None else max(len(rest) - MOST_SHARES, 0),
    )


def _columns(pieces: Sequence[OpenSegment]) -> tuple[Floats, Integers, Integers | None]:
    """(J, U) planned shares and counts, and which arms of a large set the columns are."""
    lists = [piece.segment.arms for piece in pieces]
    played = [arms for arms in lists if arms is not None]
    if len(played) < len(lists):
        planned = np.array([piece.segment.weights[0] for piece in pieces])
        every = np.arange(planned.shape[1], dtype=np.int64) if planned.shape[1] > TOO_MANY else None
        return planned, np.array([piece.assigned for piece in pieces]), every
    arms = np.unique(np.concatenate(played))
    planned = np.zeros((len(pieces), arms.size))
    given = np.zeros(planned.shape, dtype=np.int64)
    for j, piece in enumerate(pieces):
        at = np.searchsorted(arms, played[j])
        planned[j, at], given[j, at] = piece.segment.weights[0], piece.assigned
    return planned, given, arms


def _most_frequent(
    names: Sequence[str], planned: Floats, given: Integers, arms: Integers
) -> tuple[Floats, Integers, tuple[str, ...]]:
    """The columns of those handed out most often, and one for all others."""
    order = np.lexsort((-given.sum(axis=0), -planned[-1].round(4)))
    top, rest = np.sort(order[:MOST_SHARES]), order[MOST_SHARES:]
    shown = tuple(names[k] for k in arms[top].tolist())
    if not rest.size:
        return planned[:, top], given[:, top], shown
    return (
        np.column_stack([planned[:, top], planned[:, rest].sum(axis=1)]),
        np.column_stack([given[:, top], given[:, rest].sum(axis=1)]),
        (*shown, counted(rest.size, "other variant")),
    )
