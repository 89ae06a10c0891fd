"""Stopping: at which look tests are decided, and when none can be decided any more.

What `live` does with one test at a time is computed here for a batch, for planning and benchmarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from steadyarm.errors import InvalidInputError
from steadyarm.inference.boundaries import Looks, Spending
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.sequences import ConfidenceSequence
from steadyarm.validation import check_fraction, whole_number

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Indices = NDArray[np.int64]

UNDECIDED = -1
UNLIKELY = 0.1  # conditional power below which a test is futile


@dataclass(frozen=True, eq=False)
class Stopping:
    """When each of n tests stopped, and what it decided.

    Attributes
    ----------
    look : (n,) the look at which the test stopped, counted from 0; -1 if nothing stopped it
    rounds : (n,) rounds that were judged then; of a test that nothing stopped, all
    variant : (n,) the arm that was decided on, to ship it or to keep the control; -1 for none
    futile : (n,) whether it stopped because nothing could be decided any more

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> clicks = np.array([[150.0, 90.0]])
    >>> part = half, SegmentStats(np.array([[500, 500]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [part] * 4)
    >>> stopping_of(evidence, budget=4000, looks=4).rounds.tolist()
    [2000]
    """

    look: Indices
    rounds: Indices
    variant: Indices
    futile: Booleans


def stopping_of(
    evidence: Evidence,
    budget: int,
    looks: int | Sequence[float] | Looks,
    level: float = 0.95,
    control: int | None = None,
    kind: Spending = "obrien-fleming",
    futility: float | None = None,
) -> Stopping:
    """When tests stop that are looked at a few times and stop as soon as they are decided.

    A test is decided when a winner is declared; with a control also when the recommended arm is
    shown to be better than the control, or every other arm is shown not to be.

    Parameters
    ----------
    evidence : whole tests, piece by piece
    budget : planned rounds of each test
    looks : how many looks at equal distances, the last at the end; or shares of the budget at
        which looks are taken, beside the end
    level : probability with which no look is wrong
    control : index of the arm that others are compared with
    kind : how the error probability is spent
    futility : smallest difference that matters, in units of the reward; a test also stops when
        none can be shown any more. None for never

    Returns
    -------
    Stopping : when each test stopped, and for which arm

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> clicks = np.array([[150.0, 90.0]])
    >>> part = half, SegmentStats(np.array([[500, 500]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [part] * 4)
    >>> found = stopping_of(evidence, budget=4000, looks=4)
    >>> found.look.tolist(), found.rounds.tolist(), found.variant.tolist()
    ([1], [2000], [0])
    """
    check_fraction(level, "level")
    planned = _planned(looks, kind)
    sequence = ConfidenceSequence(evidence, budget, None, planned)
    towards = None
    if control is not None:
        row = whole_number(control, "control", most=evidence.arms.size - 1)
        turned = replace(evidence, direction="minimize")  # so that gaps are lifts, see `lift.py`
        towards = row, ConfidenceSequence(turned, budget, None, planned)
    n = len(evidence.rounds)
    look, variant = np.full(n, -1), np.full(n, -1)
    rounds, futile = evidence.played, np.zeros(n, dtype=bool)
    for j in range(evidence.rounds.shape[1]):
        here = (look < 0) & (sequence.looks_at(j) >= 0)
        if not here.any():
            continue
        chosen = _decided(sequence, towards, j, level)
        hopeless = np.zeros(n, dtype=bool)
        if futility is not None:
            hopeless = futile_at(sequence, j, level, futility, control) & (chosen < 0)
        stops = here & ((chosen >= 0) | hopeless)
        look = np.where(stops, sequence.looks_at(j), look)
        variant, futile = np.where(stops, chosen, variant), np.where(stops, hopeless, futile)
        rounds = np.where(stops, sequence.rounds[:, j], rounds)
    return Stopping(look, rounds, variant, futile)


def _planned(looks: int | Sequence[float] | Looks, kind: Spending) -> Looks:
    """The looks at tests that were played to their end."""
    if isinstance(looks, Looks):
        return replace(looks, over=True)
    if isinstance(looks, (int, np.integer)):
        return Looks.equally(whole_number(looks, "looks", least=1), kind, over=True)
    shares = tuple(float(share) for share in looks)
    if not all(0 < share <= 1 for share in shares):
        raise InvalidInputError.of(
            "looks", looks, "a number of looks, or shares of the budget above 0 and up to 1"
        )
    return Looks(shares, kind, over=True)


def _decided(
    sequence: ConfidenceSequence,
    towards: tuple[int, ConfidenceSequence] | None,
    j: int,
    level: float,
) -> Indices:
    """(n,) the arm that is decided on at the end of piece j; -1 for none.

    towards : the control, and the sequence of differences from it
    """
    best = sequence.until(j).best
    winner = sequence.winners(j, level, best)
    if towards is None:
        return np.where(winner, best, UNDECIDED)
    row, lifted = towards
    alpha = (1 - level) / (2 * max(sequence.evidence.family - 1, 1))
    low, high = lifted.gap_limits(j, np.full(len(best), row), alpha, lifted.events(j))
    if sequence.evidence.direction == "minimize":
        low, high = -high, -low
    return decided_for(best, winner, low, high, row)


def decided_for(
    picked: Indices, winner: Booleans, low: Floats, high: Floats, control: int
) -> Indices:
    """(n,) the arm that tests with a control decide for; -1 for none.

    The recommended arm is shipped if it is shown to be better than the control; the control is
    kept if every other arm is shown not to be better. A declared winner decides by itself.

    picked, winner : (n,) the recommended arm, and whether it is declared the winner
    low, high : (n, K) limits of the differences from the control, large ones being good

    Examples
    --------
    >>> low, high = np.array([[0.0, 0.1], [0.0, -0.3]]), np.array([[0.0, 0.5], [0.0, -0.1]])
    >>> decided_for(np.array([1, 0]), np.zeros(2, dtype=bool), low, high, control=0).tolist()
    [1, 0]
    """
    rows, others = np.arange(len(picked)), np.arange(low.shape[1]) != control
    ship = (picked != control) & (winner | (low[rows, picked] > 0))
    not_better = np.where(others, high <= 0, True).all(axis=1) & others.any()
    keep = not_better | ((picked == control) & winner)
    return np.where(ship, picked, np.where(keep, control, UNDECIDED))


def futile_at(
    sequence: ConfidenceSequence, j: int, level: float, futility: float, control: int | None
) -> Booleans:
    """(n,) whether nothing that matters can be decided any more, at the end of piece j.

    With a control: if all differences from it are shown to be within ±futility, or if for each arm
    the chance is below a tenth that its difference will be shown at the end, supposed that it is as
    large as estimated, or as large as matters if that is more, from now on (conditional power).
    Without a control: if the same holds for the lead of the best arm over those that are not ruled
    out, of which it has to beat all.
    """
    n, X = len(sequence.rounds), sequence.evidence.arms.coordinates
    family = sequence.evidence.family
    until, events = sequence.until(j), sequence.events(j)
    first = until.best if control is None else np.full(n, control)
    alpha = (1 - level) * (0.5 if control is None else 0.5 / max(family - 1, 1))
    low, high = sequence.gap_limits(j, first, alpha, events)
    D = X[first][:, None, :] - X[None]
    errors = sequence.errors(j, D, low, high)
    estimates = until.estimates
    gaps = sequence.evidence.sign * (estimates[np.arange(n), first][:, None] - estimates)
    others = np.arange(len(X)) != first[:, None]
    last = sequence.last_boundaries(j, alpha)[:, None]
    share = np.minimum(sequence.rounds[:, j] / sequence.budget, 1.0)[:, None]
    weak = np.stack([_is_weak(turn * gaps, errors, share, last, futility) for turn in (1.0, -1.0)])
    known = np.isfinite(errors) & (share > 0)
    if control is None:
        lead, _ = sequence.gap_limits(j, first, (1 - level) / family, events)
        rivals = others & (lead <= 0)
        near = np.where(rivals, high <= futility, True).all(axis=1)
        hopeless = (others & known & weak[0]).any(axis=1)
        return np.asarray(rivals.any(axis=1) & (near | hopeless))
    near = np.where(others, (low >= -futility) & (high <= futility), True).all(axis=1)
    hopeless = np.where(others, known & weak.all(axis=0), True).all(axis=1)
    return np.asarray(others.any(axis=1) & (near | hopeless))


def _is_weak(
    gaps: Floats, errors: Floats, share: Floats, last: Floats, futility: float
) -> Booleans:
    """(n, K) whether a gap is hardly shown to be above 0 at the end, given what was seen so far.

    errors : standard errors now; share : of the budget that was played; last : boundary at the end
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = errors * np.sqrt(share)  # the standard error at the end
        expected = share * gaps + (1 - share) * np.maximum(gaps, futility)
        z = (expected - last * whole) / (whole * np.sqrt(1 - share))
    return np.asarray(z < ndtri(UNLIKELY))
