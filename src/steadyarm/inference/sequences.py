"""Confidence sequences: intervals that hold at all times simultaneously, for monitored tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from steadyarm.arms.generated import values_of
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import is_one_hot
from steadyarm.inference.boundaries import (
    FIRST_LOOK,
    Looks,
    bernstein_reach,
    boundaries,
    normal_factor,
)
from steadyarm.inference.evidence import (
    FARTHEST,
    LEAST_FREEDOM,
    LEAST_ROUNDS,
    Evidence,
    bounded_terms,
    inverse_weights,
    plain_thirds,
    running_variance,
    shortlist,
    student_factor,
    third_moments,
)
from steadyarm.inference.intervals import (
    ARMS_AT_ONCE,
    ROUNDING,
    Intervals,
    RareEvents,
    find_refused,
    gap_directions,
    gap_forms,
    gap_limits,
    others_than,
    rare_events,
    recommended_arms,
    settle,
    skewed_limits,
    value_limits,
)
from steadyarm.kernels import quadratic_forms
from steadyarm.validation import check_fraction, whole_number

Floats = NDArray[np.float64]

MOST_ERRORS = 37.0  # standard errors whose tail probability a double can hold
LEAST_SIDE = 1 / 64  # of the other side's scale: reach of a side on which terms hardly lie
# Pieces to estimate skewness from their differences, if variances hide it; at the planned end
# of a test as many are enough as for a single analysis there.
LEAST_LISTS = 8
ASYMPTOTIC = (
    "Many rounds before the first analysis, none dominating; variants drawn as recorded; the "
    "variance settles."
)
AT_LOOKS = (
    "Many rounds before the first look, none dominating; variants drawn as recorded; looks are "
    "taken at times that do not depend on rewards."
)
BOUNDED = {
    "rounds": "All rewards lie in reward_range; variants drawn independently as recorded.",
    "lists": "All rewards lie in reward_range; the world does not react to assignments.",
    "pieces": "All rewards lie in reward_range; the world does not react to assignments.",
}


def confidence_sequence(
    evidence: Evidence,
    budget: int,
    level: float = 0.95,
    reward_range: tuple[float, float] | None = None,
    recommended: ArrayLike | None = None,
    looks: Looks | None = None,
) -> Intervals:
    """Intervals for a test that is watched, and may be stopped at any time.

    With probability `level` not one of all the looks, at the end of any piece, is wrong on any
    arm. With a range of the rewards this holds for tests of any length (time-uniform empirical
    Bernstein); without, in large samples (asymptotic confidence sequence). With planned looks it
    holds at these, and limits are closer: repeated confidence intervals (Jennison and Turnbull
    1989) by group-sequential boundaries.

    Parameters
    ----------
    evidence : scores of the pieces of a test, or of a batch of tests
    budget : planned rounds of the whole test, the same at every look; where it is tightest
    level : probability that the sequence never fails; each statement of `Intervals` by itself
    reward_range : (least, largest) reward that can occur, if there is one. Not used for large sets,
        whose intervals hold in large samples
    recommended : (n,) arm of each test that gaps are measured from; by default the best estimate
    looks : when the test is looked at, for rewards without a range. Nothing is known at the end of
        pieces that end with no look

    Returns
    -------
    Intervals : as of the last piece

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[600.0, 300.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [(half, stats)])
    >>> found = confidence_sequence(evidence, budget=2000, reward_range=(0, 1))
    >>> found.low.round(2).tolist(), found.high.round(2).tolist()
    ([[0.51, 0.24]], [[0.69, 0.37]])
    """
    best = recommended_arms(evidence, recommended)
    if evidence.arms.large:
        evidence, best = shortlist(evidence, best)
    sequence = ConfidenceSequence(evidence, budget, reward_range, looks)
    return sequence.intervals(evidence.rounds.shape[1] - 1, level, best)


def confidence_path(
    evidence: Evidence,
    budget: int,
    level: float = 0.95,
    reward_range: tuple[float, float] | None = None,
    at: Iterable[int] | None = None,
    count_all: bool = False,
    looks: Looks | None = None,
) -> list[Intervals]:
    """The confidence sequence as it stood at the end of every piece, for pictures and checks.

    Parameters
    ----------
    evidence : scores of the pieces of a test, or of a batch of tests
    budget, level, reward_range : as for `confidence_sequence`
    at : indices of the pieces, if not all are wanted
    count_all : whether `others` are counted at every look at a large set, in a pass for each; else
        the path is that of the short list alone
    looks : as for `confidence_sequence`

    Returns
    -------
    Intervals, one for each piece

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[300.0, 400.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [(half, stats)])
    >>> [found.plausible_names() for found in confidence_path(evidence, budget=2000)]
    [('B',)]
    """
    if evidence.arms.large:
        evidence, _ = shortlist(evidence)
    sequence = ConfidenceSequence(evidence, budget, reward_range, looks)
    wanted = range(evidence.rounds.shape[1]) if at is None else at
    return [sequence.intervals(int(j), level, None, count_all) for j in wanted]


class ConfidenceSequence:
    """Limits at the end of any piece, from sums up to there.

    Attributes
    ----------
    rounds, scores, squares : up to the end of each piece
    variance : (n, J, r, r) of the score sum
    freedom : (n, J) its degrees of freedom, if rewards are unbounded
    third : (n, J, K) third moments of the arms' score sums, if rewards are unbounded
    inverse : (2, n, J, K) of `inverse_weights`; None if arms share features or rewards are bounded
    every : (n, J, K) third moments with all steps counted in full, where there is an `inverse`
    pieces : (n, J) from how many pieces these are
    scale : (2, n, J, K) how far a term may lie below and above its prediction, so far, if bounded
    first : (2, n, K) in the first piece
    looks : times of the interim analyses; None for a sequence that holds at all times. Bounded
        rewards have none
    """

    def __init__(
        self,
        evidence: Evidence,
        budget: int,
        reward_range: tuple[float, float] | None,
        looks: Looks | None = None,
    ) -> None:
        if looks is not None and reward_range is not None:
            raise InvalidInputError(
                "give either looks or reward_range: intervals that use the range hold at all "
                "times.",
                field="looks",
            )
        self.looks = looks
        self.evidence, self.budget = evidence, whole_number(budget, "budget", least=1)
        self.rounds = np.cumsum(evidence.rounds, axis=1)
        self.scores = np.cumsum(evidence.scores, axis=1)
        self.squares = np.cumsum(evidence.squares, axis=1)
        self.freedom = np.full(evidence.rounds.shape, np.inf)
        self.inverse: Floats | None = None
        self.scale: Floats | None = None
        self._factors: dict[tuple[int, float, bool], Floats] = {}
        if reward_range is None or evidence.whole is not None:
            self.variance, parts, self.freedom, kind = running_variance(evidence)
            X = evidence.arms.coordinates
            sums = evidence.scores.reshape(-1, X.shape[1]) @ X.T
            sums = sums.reshape(*evidence.rounds.shape, len(X))
            self.third = third_moments(sums, quadratic_forms(X, parts), evidence.rounds)
            self.inverse = inverse_weights(evidence)
            if self.inverse is not None:
                self.every, self.pieces = plain_thirds(evidence, upto=True)
            self.method, self.assumption = f"asymptotic, {kind}", ASYMPTOTIC
            if looks is not None:
                self._which, self._shares = looks.taken(self.rounds, self.budget)
                self._information = self._collected()
                self.method, self.assumption = f"group-sequential, {looks.kind}, {kind}", AT_LOOKS
        else:
            self.variance, scale, kind = bounded_terms(evidence, reward_range)
            self.first = scale[:, :, 0].copy()
            self.scale = np.maximum.accumulate(scale, axis=2)
            self.method, self.assumption = f"empirical Bernstein, {kind}", BOUNDED[kind]

    def intervals(
        self,
        j: int,
        level: float,
        recommended: ArrayLike | None,
        count_all: bool = True,
    ) -> Intervals:
        """The intervals at the end of piece j; of a large set others are counted if count_all."""
        alpha = 1 - check_fraction(level, "level")
        arms, K = self.evidence.arms, self.evidence.family
        until = self.until(j)
        best, rows = recommended_arms(until, recommended), np.arange(len(until.rounds))
        events = self.events(j)
        low, high = self.value_limits(j, alpha / (2 * K), events)
        gaps = gap_directions(until, best)
        pairs = max(K * (K - 1), 2)
        gap_low, gap_high = self._limits(j, gaps, best, alpha / pairs, events)
        lead, _ = self._limits(j, gaps, best, alpha / K, events)
        gap_low[rows, best] = gap_high[rows, best] = lead[rows, best] = 0.0
        plausible, others = lead <= 0, 0
        ahead = self.leads(j, level, best, lead)
        winner = np.asarray(((ahead > 0) | (np.arange(arms.size) == best[:, None])).all(axis=1))
        if self.evidence.whole is not None and (count_all or winner[0]):
            possible = self.possible(j, alpha / K, best)
            if winner[0]:
                sure = possible if self.looks is None else self.possible(j, alpha / 2, best)
                winner &= sure.sum() == 1
            others = others_than(self.evidence, possible) if count_all else 0
        X = arms.coordinates
        found = Intervals(
            arms=arms,
            recommended=best,
            estimates=until.estimates,
            low=low,
            high=high,
            gaps=gaps[1],
            gap_low=gap_low,
            gap_high=gap_high,
            plausible=plausible,
            winner=winner,
            too_few=find_refused(events, low, high),
            standard_errors=self.errors(j, np.broadcast_to(X, (len(best), *X.shape)), low, high),
            rounds=until.played,
            level=float(level),
            method=self.method,
            assumption=self.assumption,
            shown=self.evidence.shown,
            others=others,
        )
        return settle(found, ahead)

    def leads(
        self, j: int, level: float, best: NDArray[np.int64], lead: Floats | None = None
    ) -> Floats:
        """(n, K) lower limits of the gaps of `best`, (n,): if all are above 0, it is the winner.

        At looks the boundary is the two-sided one of a single pair, however many arms there are,
        since a winner has to pass all comparisons; a sequence that holds at all times divides alpha
        among the arms. docs/research/technical_note.md says why.

        lead : (n, K) lower limits of the gaps with alpha divided among the arms, if known
        """
        if self.looks is None and lead is not None:
            return lead
        return self.gap_limits(j, best, self.pair_alpha(level), self.events(j))[0]

    def pair_alpha(self, level: float) -> float:
        """The one-sided error probability of one comparison of a declared winner."""
        return (1 - level) / (self.evidence.family if self.looks is None else 2)

    def winners(self, j: int, level: float, best: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether the arm `best`, (n,), is declared the winner at the end of piece j."""
        others = np.arange(self.evidence.arms.size) != best[:, None]
        return np.asarray((~others | (self.leads(j, level, best) > 0)).all(axis=1))

    def looks_at(self, j: int) -> NDArray[np.int64]:
        """(n,) which look piece j ends with, -1 for none; without looks each piece is one."""
        return np.full(len(self.rounds), j) if self.looks is None else self._which[:, j]

    def _collected(self) -> list[tuple[float, ...]]:
        """The variance of the score sums at each look of each test, rounded to 20 digits in base 2.

        All comparisons of a test share it, so that one set of boundaries serves them.
        """
        total = np.maximum.accumulate(np.trace(self.variance, axis1=2, axis2=3), axis=1)
        first = np.diff(self._which, axis=1, prepend=-1) > 0
        found = []
        for variance, at in zip(total, first, strict=True):
            shares = variance[at] / max(variance[-1], np.finfo(np.float64).tiny)
            found.append(tuple((np.rint(shares * 2.0**20) / 2.0**20).tolist()))
        return found

    def _is_last(self, j: int) -> NDArray[np.bool_]:
        """(n,) whether piece j ends with the planned look at the end of the test."""
        if self.looks is None or not self.looks.over:
            return np.zeros(len(self.rounds), dtype=bool)
        counts = np.array([len(mine) for mine in self._shares])
        return np.asarray(counts == self._which[:, j] + 1)

    def last_boundaries(self, j: int, alpha: float) -> Floats:
        """(n,) the boundary at the end of the test if no look is taken after piece j."""
        if self.looks is None:
            return normal_factor(np.ones(len(self.rounds)), alpha)
        looks = zip(self._shares, self._information, self._which[:, j].tolist(), strict=True)
        found = []
        for shares, information, look in looks:
            mine, collected = shares[: look + 1], information[: look + 1]
            if not mine or mine[-1] < 1:  # as much information per round as so far
                collected = (*collected, collected[-1] / mine[-1] if mine else 1.0)
                mine = (*mine, 1.0)
            found.append(boundaries(mine, alpha, self.looks.kind, collected)[-1])
        return np.array(found)

    def until(self, j: int) -> Evidence:
        """All that estimates need of the pieces up to the end of piece j."""
        here = slice(j, j + 1)
        sums = self.rounds[:, here], self.scores[:, here], self.squares[:, here]
        return Evidence(self.evidence.arms, *sums, direction=self.evidence.direction)

    def value_limits(
        self, j: int, alpha: float, events: RareEvents | None
    ) -> tuple[Floats, Floats]:
        """(n, K) limits of all values at the end of piece j, with the `events` up to there.

        alpha is one-sided, of one value
        """
        until, X = self.until(j), self.evidence.arms.coordinates
        everywhere = np.broadcast_to(X, (len(until.rounds), *X.shape))
        return self._limits(j, (everywhere, until.estimates), None, alpha, events)

    def gap_limits(
        self,
        j: int,
        arm: NDArray[np.int64],
        alpha: float,
        events: RareEvents | None,
        ratio: Floats | float = 1.0,
    ) -> tuple[Floats, Floats]:
        """(n, K) limits of gaps at the end of piece j, with the `events` up to there.

        Gaps are measured from one arm of each test, (n,), or from `ratio` times its value; alpha
        is one-sided, of one gap.
        """
        directions = gap_directions(self.until(j), arm, ratio)
        return self._limits(j, directions, arm, alpha, events, ratio)

    def errors(self, j: int, D: Floats, low: Floats, high: Floats) -> Floats:
        """(n, K) standard errors of d'θ at the end of piece j; infinite if no limit is known."""
        T = np.maximum(self.rounds[:, j][:, None], 1)
        errors = np.sqrt(quadratic_forms(D, self.variance[:, j])) / T
        return np.where(np.isfinite(low) | np.isfinite(high), errors, np.inf)

    def possible(self, j: int, alpha: float, best: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(K,) arms of the whole set that cannot be ruled out as the best at the end of piece j.

        alpha is one-sided, of one gap
        """
        evidence = self.evidence
        assert evidence.whole is not None
        rows, first = evidence.whole.rows, evidence.arms.coordinates[best[0]]
        sign = evidence.sign
        theta = self.scores[0, j] / max(int(self.rounds[0, j]), 1)
        gaps = sign * (first @ theta - values_of(rows, theta))
        variance = gap_forms(rows, self.variance[0, j], first)
        largest = np.linalg.eigvalsh(self.squares[0, j])[-1]
        known = variance > ROUNDING * largest * gap_forms(rows, np.eye(first.size), first)
        low, _ = self._normal_limits(j, variance[None], known[None], np.zeros(1), alpha, gaps)
        out = np.asarray((low[0] <= 0) | (gaps <= 0))
        unsure = np.flatnonzero(~known & (gaps > 0))
        for start in range(0, unsure.size, ARMS_AT_ONCE):
            few = unsure[start : start + ARMS_AT_ONCE]
            D = sign * (first - rows.take(few))
            low, _ = self._limits(j, (D[None], gaps[None, few]), best, alpha)
            out[few] = low[0] <= 0
        return out

    def _limits(
        self,
        j: int,
        directions: tuple[Floats, Floats],
        best: NDArray[np.int64] | None,
        alpha: float,
        events: RareEvents | None = None,
        ratio: Floats | float = 1.0,
    ) -> tuple[Floats, Floats]:
        """(n, K) limits of d'θ around the estimates; infinite if unknown.

        directions : (n, K, r) the d, and (n, K) estimates of d'θ; alpha is one-sided; best is None
            for the values of the arms; gaps are measured from `ratio` times its value
        """
        D, centre = directions
        variance = quadratic_forms(D, self.variance[:, j])
        if self.scale is not None:
            terms = self._scales(self.scale[:, :, j], best, ratio)
            first = self._scales(self.first, best, ratio)
            return self._bounded_limits(j, variance, terms, first, best is not None, alpha, centre)
        known = variance > ROUNDING * quadratic_forms(D, self.squares[:, j])
        skew = np.zeros_like(variance)
        if best is None:
            skew = self.third[:, j] / np.where(known, variance, np.inf)
        limits = self._normal_limits(j, variance, known, skew, alpha, centre)
        if events is None:
            return limits
        played = self.rounds[:, j][:, None]
        z, T = self.factor(j, alpha, events.clicks), np.maximum(played, 1)
        error = np.where(np.isfinite(limits[0]), np.sqrt(variance) / T, np.inf)
        if best is None:
            return value_limits(events, error, z, *limits)
        return gap_limits(events, self.evidence.sign, best, error, z, limits, ratio)

    def events(self, j: int) -> RareEvents | None:
        """Rare events at the end of piece j; None if not asked for."""
        if self.inverse is None:
            return None
        until = self.until(j)
        variance = np.maximum(np.diagonal(self.variance[:, j], axis1=1, axis2=2), 0.0)
        events = rare_events(
            self.evidence,
            until.played,
            until.estimates,
            variance,
            self.every[:, j],
            self.pieces[:, j],
            self.inverse[:, :, j],
        )
        early = until.played < FIRST_LOOK * self.budget
        if self.looks is not None:
            early |= self._which[:, j] < 0
        early = early[:, None]
        share = np.where(early, np.inf, events.share)
        return replace(events, clicks=events.clicks & ~early, share=share)

    def _bounded_limits(
        self,
        j: int,
        variance: Floats,
        terms: tuple[Floats, Floats],
        first: tuple[Floats, Floats],
        gap: bool,
        alpha: float,
        centre: Floats,
    ) -> tuple[Floats, Floats]:
        """Limits by the bounds of the terms, below and above, so far and at first."""
        T = np.maximum(self.rounds[:, j][:, None], 1)
        below, above = terms
        one_hot = is_one_hot(self.evidence.arms.coordinates)
        if self.method.endswith("lists") and (gap or not one_hot):
            variance, below, above = 2 * variance, 2 * below, 2 * above
        # the sum is too large only as far as terms can lie below their predictions make it
        down = bernstein_reach(variance, below, first[0], self.budget, alpha)
        up = bernstein_reach(variance, above, first[1], self.budget, alpha)
        return centre - down / T, centre + up / T

    def _normal_limits(
        self,
        j: int,
        variance: Floats,
        known: NDArray[np.bool_],
        skew: Floats,
        alpha: float,
        centre: Floats,
    ) -> tuple[Floats, Floats]:
        """Limits in large samples; infinite where the variance is not known, or too little is."""
        played = self.rounds[:, j][:, None]
        T = np.maximum(played, 1)
        freedom = self.freedom[:, j][:, None]
        enough = (played >= max(LEAST_ROUNDS, FIRST_LOOK * self.budget)) & (
            freedom >= LEAST_FREEDOM
        )
        if self.method.endswith("lists"):
            enough &= (j + 1 >= LEAST_LISTS) | self._is_last(j)[:, None]
        z = self.factor(j, alpha)
        known = enough & known & (z < FARTHEST)
        error = np.sqrt(variance)
        skew = np.where(known, skew, 0.0)
        error = np.where(known, error, np.inf)
        return skewed_limits(centre, error / T, np.clip(skew, -error, error) / T, z)

    def factor(self, j: int, alpha: float, clicks: NDArray[np.bool_] | None = None) -> Floats:
        """(n, 1) standard errors at the end of piece j; from a normal to a t quantile.

        The variance is estimated, but that of clicks follows from their rate. Few degrees of
        freedom reach very far.
        """
        key = j, alpha, clicks is None
        if key not in self._factors:  # limits of ratios ask for the same ones again and again
            if self.looks is None:
                z = normal_factor(self.rounds[:, j][:, None] / self.budget, alpha)
            else:
                z = self.looks.factors(self._which[:, j], self._shares, self._information, alpha)
                z = z[:, None]
            freedom = np.maximum(self.freedom[:, j][:, None], 1.0)
            if clicks is not None:
                freedom = np.where(clicks, np.inf, freedom)
            reach = np.where(
                z < np.inf, student_factor(np.minimum(z, MOST_ERRORS), freedom), np.inf
            )
            self._factors[key] = np.minimum(reach, FARTHEST)
        return self._factors[key]

    def _scales(
        self, scale: Floats, best: NDArray[np.int64] | None, ratio: Floats | float = 1.0
    ) -> tuple[Floats, Floats]:
        """(n, K) below and above, of values or of gaps measured from `ratio` times `best`."""
        below, above = scale
        if best is not None:
            rows = np.arange(len(best))
            if self.evidence.direction == "minimize":
                below, above = above, below
            first = np.stack([below[rows, best], above[rows, best]])[:, :, None]
            first = np.abs(ratio) * np.where(np.asarray(ratio) < 0, first[::-1], first)
            below, above = first[0] + above, first[1] + below
        most = np.maximum(below, above)
        return np.maximum(below, LEAST_SIDE * most), np.maximum(above, LEAST_SIDE * most)


# At which look tests are decided, and when none can be decided any more: `live` does with one test
# at a time what is computed here for a batch, for planning and benchmarks.

Booleans = NDArray[np.bool_]
Indices = NDArray[np.int64]

NO_ARM = -1  # of a test that decides on none
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
    >>> stopping_of(evidence, budget=4000, looks=Looks.equally(4)).rounds.tolist()
    [2000]
    """

    look: Indices
    rounds: Indices
    variant: Indices
    futile: Booleans


def stopping_of(
    evidence: Evidence,
    budget: int,
    looks: Looks,
    level: float = 0.95,
    control: int | None = None,
    futility: float | None = None,
) -> Stopping:
    """When tests stop that are looked at a few times and stop as soon as they are decided.

    A test is decided when a winner is declared; with a control also when the recommended arm is
    shown to be better than the control, or every other arm is shown not to be.

    Parameters
    ----------
    evidence : whole tests, piece by piece
    budget : planned rounds of each test
    looks : at which tests are examined, beside the end
    level : probability with which no look is wrong
    control : index of the arm that others are compared with
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
    >>> found = stopping_of(evidence, budget=4000, looks=Looks.equally(4))
    >>> found.look.tolist(), found.rounds.tolist(), found.variant.tolist()
    ([1], [2000], [0])
    """
    check_fraction(level, "level")
    planned = replace(looks, over=True)
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
        chosen = _decide(sequence, towards, j, level)
        hopeless = np.zeros(n, dtype=bool)
        if futility is not None:
            hopeless = futile_at(sequence, j, level, futility, control) & (chosen < 0)
        stops = here & ((chosen >= 0) | hopeless)
        look = np.where(stops, sequence.looks_at(j), look)
        variant, futile = np.where(stops, chosen, variant), np.where(stops, hopeless, futile)
        rounds = np.where(stops, sequence.rounds[:, j], rounds)
    return Stopping(look, rounds, variant, futile)


def _decide(
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
        return np.where(winner, best, NO_ARM)
    row, lifted = towards
    alpha = (1 - level) / (2 * max(sequence.evidence.family - 1, 1))
    low, high = lifted.gap_limits(j, np.full(len(best), row), alpha, lifted.events(j))
    if sequence.evidence.direction == "minimize":
        low, high = -high, -low
    return decide_for(best, winner, low, high, row)


def decide_for(
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
    >>> decide_for(np.array([1, 0]), np.zeros(2, dtype=bool), low, high, control=0).tolist()
    [1, 0]
    """
    rows, others = np.arange(len(picked)), np.arange(low.shape[1]) != control
    ship = (picked != control) & (winner | (low[rows, picked] > 0))
    not_better = np.where(others, high <= 0, True).all(axis=1) & others.any()
    keep = not_better | ((picked == control) & winner)
    return np.where(ship, picked, np.where(keep, control, NO_ARM))


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
