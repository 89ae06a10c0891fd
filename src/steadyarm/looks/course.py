"""How estimates and shares went over a test, piece by piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference.sequences import confidence_path
from steadyarm.judgement import Judgement
from steadyarm.ledger import OpenSegment
from steadyarm.looks.look import Course, Shares

__all__ = ["LEVEL", "course_of", "shares_of"]

LEVEL = 0.95
LOOKS, FEWER, MANY = 60, 16, 64  # looks of a course; fewer where there are many variants
TURN = 0.02  # share of the traffic that has to move before it is a change of mind

Floats = NDArray[np.float64]
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
    most = LOOKS if judgement.arms.size <= MANY else FEWER
    # from the last one backwards, so that the present is among them
    at = np.unique(np.linspace(len(pieces) - 1, 0, min(len(pieces), most)).round().astype(int))
    path = confidence_path(evidence, budget, level, at=at)
    times = None
    if spans is not None:
        ends = list(accumulate((spans[piece.index][1] for piece in pieces), max))
        times = tuple(ends[j] for j in at)
    return Course(
        names=judgement.arms.names,
        times=times,
        rounds=np.array([look.rounds[0] for look in path]),
        estimates=np.array([look.estimates[0] for look in path]),
        low=_clipped([look.low[0] for look in path], reward_range),
        high=_clipped([look.high[0] for look in path], reward_range),
        leaders=np.array([look.recommended[0] for look in path]),
        plausible=np.array([look.plausible[0] for look in path]),
        level=level,
    )


def _clipped(ends: list[Floats], reward_range: tuple[float, float] | None) -> Floats:
    """Ends of intervals that lie where rewards lie; what is unknown stays infinite."""
    values = np.array(ends)
    if reward_range is None:
        return values
    return np.where(np.isfinite(values), np.clip(values, *reward_range), values)


def shares_of(
    names: tuple[str, ...], pieces: Sequence[OpenSegment], spans: Spans | None = None
) -> Shares:
    """How variants were handed out, from pieces that were handed out from."""
    planned = np.array([piece.segment.weights[0] for piece in pieces])
    moved = np.abs(np.diff(planned, axis=0)).sum(axis=1) / 2
    between = None if spans is None else [spans[piece.index] for piece in pieces]
    return Shares(
        names=names,
        starts=None if between is None else tuple(start for start, _ in between),
        ends=None if between is None else tuple(end for _, end in between),
        rounds=np.array([piece.assigned.sum() for piece in pieces]),
        planned=planned,
        given=np.array([piece.assigned for piece in pieces]),
        turns=np.concatenate([[False], moved > TURN]),
    )
