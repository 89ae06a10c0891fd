"""The drift report: did the world move during the test, and did it matter?"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtrit

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import (
    Evidence,
    best_of_all,
    json_ready,
    list_freedom,
    spread_of,
    sum_groups,
)
from steadyarm.kernels import quadratic_forms
from steadyarm.validation import check_fraction, whole_number
from steadyarm.wording import listed, strung

Floats = NDArray[np.float64]

PRINTED = 3  # arms that the text shows if a large set has more
NAMED = 4  # periods with another leader that the verdict names
MOST_JOINT = 256  # gaps tested jointly; of more, what changes is more easily seen one by one
LEAST_FREEDOM = 4  # of a variance in a piece; two clicks in two plays would pass for no noise
OF_GAPS = 0.8  # of the error probability is for the gaps, the rest for the average over arms
SHARES = 4  # of a prefix, which the test at a milestone compares
# Share of the planned rounds at which a live test is tested for drift, and share of the error
# probability that is spent there. The last stops short of the end, because some rewards never come.
MILESTONES = ((0.25, 0.1), (0.5, 0.2), (0.75, 0.2), (0.98, 0.5))


@dataclass(frozen=True, eq=False)
class DriftReport:
    """Estimates by period, and whether periods differ by more than noise.

    In a large set the K arms are a short list: the best, and the leader of every period.

    Attributes
    ----------
    names : the names of the K arms
    periods : labels of the P periods
    rounds : (P,) of each
    best : the arm with the best estimate over the whole test
    estimates, errors : (P, K) estimated mean reward in each period, and standard errors
    intervals : (P, K, 2) that hold for all arms and periods at once with probability `level`,
        in large samples
    gaps, gap_errors : (P, K) by how much `best` beats each arm in each period (negative: loses)
    leaders : (P,) the arm with the best estimate in each period
    gap_p_value : probability of gaps varying so much over time if they do not move
    level_p_value : the same for the average over all arms: a shift common to all. Both allow for
        there being two tests, and at `looks` for all of them: if nothing moves, either is below α
        with probability α at most
    arm_p_values : (K,) the same for each arm's distance from the average, not corrected for K
    level : of the intervals, and 1 minus the error probability at which drift is said to be seen
    method : where the standard errors come from, see `Periods`
    averages : (P,) estimated average over all arms
    others : arms of a large set that are not among the K
    looks : shares of the planned rounds at which drift was tested; None for one test, at the end

    Examples
    --------
    >>> import steadyarm as sa
    >>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=200, seed=3)
    >>> for _ in range(200):
    ...     a = session.ask()
    ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
    >>> session.drift(periods=2).leaders
    ('B', 'B')
    """

    names: tuple[str, ...]
    periods: tuple[str, ...]
    rounds: NDArray[np.int64]
    best: str
    estimates: Floats
    errors: Floats
    intervals: Floats
    gaps: Floats
    gap_errors: Floats
    leaders: tuple[str, ...]
    gap_p_value: float
    level_p_value: float
    arm_p_values: Floats
    level: float
    method: str
    averages: Floats
    others: int = 0
    looks: tuple[float, ...] | None = None

    @property
    def gaps_move(self) -> bool:
        """Whether differences between arms were seen to change over time: this is dangerous."""
        return self.gap_p_value < 1 - self.level

    @property
    def level_moves(self) -> bool:
        """Whether the average over arms was seen to change over time: harmless by itself."""
        return self.level_p_value < 1 - self.level

    @property
    def verdict(self) -> str:
        """The conclusion, in plain sentences."""
        if self.looks == ():
            return (
                "Drift has not been tested yet; the first test is due at "
                f"{MILESTONES[0][0]:.0%} of the planned visits."
            )
        if len(self.periods) < 2 and self.gap_p_value == self.level_p_value == 1:
            return "There is only one period, so drift cannot be tested."
        if not self.gaps_move:
            level = (
                f"All variants together moved over time (p = {self.level_p_value:.2g}). This "
                "alone does not affect the comparison."
                if self.level_moves
                else f"No common shift of all variants was found (p = {self.level_p_value:.2g})."
            )
            return (
                "No change of the differences between variants was found (p = "
                f"{self.gap_p_value:.2g}); this does not prove that there is none. "
                f"{level}{self._when}"
            )
        moved = self.names[int(np.argmin(self.arm_p_values))]
        ahead = [
            (leader, _within(label))
            for leader, label in zip(self.leaders, self.periods, strict=True)
            if leader != self.best
        ]
        others = [f"{leader}{' was ahead' * (not j)} {at}" for j, (leader, at) in enumerate(ahead)]
        swaps = f" {self.best} is best on average, but {strung(others, NAMED)}."
        return (
            f"The differences between variants changed over time (p = {self.gap_p_value:.2g}), "
            f"most clearly for {moved}.{swaps if others else ''} The result is about the average "
            "over this test; raw means or early stopping could mislead. The average over variants "
            f"{'moved too' if self.level_moves else 'did not visibly move'} "
            f"(p = {self.level_p_value:.2g}).{self._when}"
        )

    @property
    def _when(self) -> str:
        """When it was tested, if not once at the end."""
        if self.looks is None:
            return ""
        at = listed([f"{share:.0%}" for share in self.looks])
        further = [share for share, _ in MILESTONES[:-1] if share > max(self.looks)]
        due = "" if max(self.looks) == 1 else f"; the next test is at {[*further, 1.0][0]:.0%}"
        return (
            f" Drift was tested at {at} of the planned visits, with {1 - self.level:.0%} error "
            f"over all of these tests{due}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None for what is unknown or has no end."""
        data: dict[str, Any] = json_ready(self)
        more = {"gaps_move": self.gaps_move, "level_moves": self.level_moves}
        return data | more | {"verdict": self.verdict}

    def __str__(self) -> str:
        shown = range(len(self.names)) if not self.others else self._first()
        width = max(10, *(len(self.names[k]) + 2 for k in shown))
        first = max(12, *(len(label) + 2 for label in self.periods))
        head = "".join(f"{self.names[k]:>{width}}" for k in shown)
        lines = [f"{'period':<{first}}{'rounds':>8}{head}  (± standard error)"]
        for i, label in enumerate(self.periods):
            row = "".join(f"{self.estimates[i, k]:>{width}.4g}" for k in shown)
            lines.append(f"{label:<{first}}{self.rounds[i]:>8}{row}")
            row = "".join(f"{f'±{self.errors[i, k]:.2g}':>{width}}" for k in shown)
            lines.append(f"{'':<{first}}{'':>8}{row}")
        return "\n".join([*lines, self.verdict])

    def _first(self) -> list[int]:
        """The best few of a short list."""
        weights = self.rounds / max(int(self.rounds.sum()), 1)
        order = np.argsort(weights @ self.gaps, kind="stable")
        return [int(k) for k in order[:PRINTED]]


def _within(period: str) -> str:
    """When it was, in a sentence.

    Examples
    --------
    >>> [_within(label) for label in ("2026-01-03", "2026-01", "week of 2026-01-05")]
    ['on 2026-01-03', 'in 2026-01', 'in the week of 2026-01-05']
    >>> [_within(label) for label in ("0% to 50%", "from 2026-01-03", "2026-01-03 14:00")]
    ['in 0% to 50%', 'in the period from 2026-01-03', 'in the hour from 2026-01-03 14:00']
    """
    if re.fullmatch(r"\d{4}-\d\d-\d\d", period):
        return f"on {period}"
    if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:00", period):
        return f"in the hour from {period}"
    article = "the " * period.startswith("week of ") + "the period " * period.startswith("from ")
    return f"in {article}{period}"


def drift_report(
    evidence: Evidence,
    periods: int | Sequence[Hashable] = 4,
    level: float = 0.95,
    budget: int | None = None,
    ended: bool = False,
) -> DriftReport:
    """Estimates by period and tests of whether they move, of a single test.

    Without a budget the periods are compared once: right for a log that is finished, wrong if
    one looks again and again. With the budget of a live test drift is tested when a quarter, a
    half, three quarters and (nearly) all of the planned rounds are in, each time on the pieces
    up to there in four equal shares. Between these milestones p-values stay as they are, and what
    was called moving once stays so. If nothing moves, anything is called moving in at most
    1 - `level` of tests, however often the report is read. The table by period is as of now.

    Parameters
    ----------
    evidence : of the pieces so far, in the order they were played; later looks add pieces
    periods : how many equal shares of the rounds (as far as pieces allow), or the label of each
        piece, such as its date or weekday
    level : the level of the intervals and of saying that something moves
    budget : planned rounds of a live test; the same at every look
    ended : no piece will follow, so the last milestone is reached even if rounds are missing

    Returns
    -------
    DriftReport : ``print`` shows the table and says what moves

    Examples
    --------
    >>> import steadyarm as sa
    >>> from steadyarm.segments import Segment
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> turn = [[0.2, 0.8], [0.8, 0.2]]
    >>> world = sa.Environment.from_means(arms, np.repeat(turn, 500, axis=0), sa.BernoulliReward())
    >>> rng, half = np.random.default_rng(1), Segment(np.array([[0.5, 0.5]]), np.array([500]))
    >>> log = [(half, world.play(half, np.array([s]), rng, squares=True)) for s in (0, 500)]
    >>> report = drift_report(Evidence.from_segments(arms, log), periods=2)
    >>> report.gaps_move, report.leaders
    (True, ('B', 'A'))
    """
    check_fraction(level, "level")
    if len(evidence.rounds) != 1:
        raise InvalidInputError(
            f"the evidence is a batch of {len(evidence.rounds)} tests; a drift report is on one. "
            "For p-values of a batch use drift_p_values."
        )
    if not evidence.played[0]:
        raise InvalidInputError("a drift report needs rewards; no round has been played.")
    grouped = group_pieces(evidence, periods)
    evidence = _few_arms(evidence, grouped)
    gap, shift, each, looks = _test(evidence, grouped, budget, ended)
    X, names = evidence.arms.coordinates, evidence.arms.names
    sign = evidence.sign
    theta, covariance, units = grouped.theta[0], grouped.covariance[0], grouped.units[0]
    estimates, errors = theta @ X.T, np.sqrt(quadratic_forms(X, covariance))
    best = int(evidence.best[0])
    tail = (1 - level) / (2 * len(estimates) * evidence.family)
    known = units > 1
    reach = -stdtrit(np.maximum(units - 1, 1), tail)[:, None] * errors
    reach = np.where(known[:, None], reach, np.inf)
    return DriftReport(
        names=tuple(names),
        periods=grouped.labels,
        rounds=grouped.rounds[0],
        best=names[best],
        estimates=estimates,
        errors=np.where(known[:, None], errors, np.nan),
        intervals=np.stack([estimates - reach, estimates + reach], axis=2),
        gaps=sign * (estimates[:, [best]] - estimates),
        gap_errors=np.sqrt(quadratic_forms(X[best] - X, covariance)),
        leaders=tuple(names[k] for k in (sign * estimates).argmax(axis=1)),
        gap_p_value=float(gap[0]),
        level_p_value=float(shift[0]),
        arm_p_values=each[0],
        level=level,
        method=grouped.method,
        averages=_averages(evidence, estimates, theta),
        others=evidence.family - len(names),
        looks=looks,
    )


def drift_p_values(
    evidence: Evidence,
    periods: int | Sequence[Hashable] = 4,
    budget: int | None = None,
    ended: bool = False,
) -> tuple[Floats, Floats]:
    """(n,) p-values of a batch of tests: for the gaps, and for a shift common to all arms.

    Parameters as in `drift_report`. If nothing moves, the smaller of the two is below α in a share
    of at most α of tests (in large samples), with a budget at any number of looks together.

    Parameters
    ----------
    evidence : scores of the pieces of a test, or of a batch of tests
    periods, budget, ended : as for `drift_report`

    Returns
    -------
    two arrays (n,)

    Examples
    --------
    >>> import steadyarm as sa
    >>> from steadyarm.segments import Segment
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> world = sa.Environment.from_means(arms, [0.5, 0.4], sa.BernoulliReward(), budget=1000)
    >>> rng, fifth = np.random.default_rng(1), Segment(np.full((3, 2), 0.5), np.full(3, 200))
    >>> log = [(fifth, world.play(fifth, np.full(3, 200 * j), rng, squares=True)) for j in range(5)]
    >>> gaps, level = drift_p_values(Evidence.from_segments(arms, log), budget=1000)
    >>> bool((gaps > 0.05).all() and (level > 0.05).all())
    True
    """
    gap, shift, _, _ = _test(evidence, group_pieces(evidence, periods), budget, ended)
    return gap, shift


def _test(
    evidence: Evidence, grouped: Periods, budget: int | None, ended: bool
) -> tuple[Floats, Floats, Floats, tuple[float, ...] | None]:
    """(n,), (n,), (n, K) p-values of gaps, average and single arms, and the milestones reached.

    Over milestones by Bonferroni, then over both tests by Holm, each with weights.
    """
    if budget is None:
        gap, shift, each = _variations(evidence, grouped)
        return *_holm(gap, shift), each, None
    rounds = np.cumsum(evidence.rounds, axis=1)
    due = np.array([share for share, _ in MILESTONES]) * whole_number(budget, "budget", least=1)
    before = np.concatenate([np.zeros_like(rounds[:, :1]), rounds[:, :-1]], axis=1)
    gap, shift = np.ones((2, len(rounds)))
    each = np.ones((len(rounds), 0 if evidence.arms.large else evidence.arms.size))
    reached = []
    for m, (share, weight) in enumerate(MILESTONES):
        there = rounds[:, -1] >= due[m]
        if ended and m == len(MILESTONES) - 1:
            there |= rounds[:, -1] > 0
        if not there.any():
            continue
        reached.append(1.0 if m == len(MILESTONES) - 1 else share)
        prefix = _mask(evidence, there[:, None] & (before < due[m]))
        found, shifted, arms = _variations(prefix, group_pieces(prefix, SHARES))
        each = np.where((found / weight <= gap)[:, None], arms, each)
        gap, shift = np.minimum(gap, found / weight), np.minimum(shift, shifted / weight)
    return *_holm(gap, shift), each, tuple(reached)


def _holm(gap: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Both p-values, such that if nothing moves either is below α in a share α of tests.

    If one of both is seen to move, the other may use the whole error probability.
    """
    either = np.minimum(np.minimum(gap / OF_GAPS, shift / (1 - OF_GAPS)), 1.0)
    return np.maximum(gap, either), np.maximum(shift, either)


def _mask(evidence: Evidence, kept: NDArray[np.bool_]) -> Evidence:
    """The evidence of the pieces that are kept, (n, J); the others have no rounds."""
    within = evidence.within
    return replace(
        evidence,
        rounds=evidence.rounds * kept,
        scores=evidence.scores * kept[:, :, None],
        squares=evidence.squares * kept[:, :, None, None],
        within=None if within is None else within * kept[:, :, None, None],
    )


def _few_arms(evidence: Evidence, grouped: Periods) -> Evidence:
    """The evidence; in a large set a view of the best arms and of the leader of every period."""
    if not evidence.arms.large:
        return evidence
    leaders, top = best_of_all(evidence, np.concatenate([grouped.theta[0], evidence.theta]))
    return evidence.view(np.unique(np.concatenate([leaders, top])))


def _averages(evidence: Evidence, estimates: Floats, theta: Floats) -> Floats:
    if evidence.whole is None:
        return np.asarray(estimates.mean(axis=1))
    return theta @ spread_of(evidence.whole)[0]


def _variations(evidence: Evidence, grouped: Periods) -> tuple[Floats, Floats, Floats]:
    """(n,), (n,) and (n, K) p-values: of all gaps, the average of the arms, each arm's distance.

    Of up to 256 dimensions the gaps are tested jointly, which sees many small changes, and
    parameter by parameter, which sees a single large one, each with half of the error probability.
    Of more dimensions only the latter is done. Where arms are played too little in a piece for
    variances of their own, a parameter's variance comes from the differences between pieces.
    """
    whole = evidence.arms if evidence.arms.large else evidence.whole
    few = None if evidence.arms.large else evidence.arms.coordinates
    if whole is None:
        assert few is not None
        average = few.mean(axis=0)
        _, sizes, directions = np.linalg.svd(few - average, full_matrices=False)
        basis = directions[sizes > 1e-10 * max(sizes[0], 1e-300)]
    else:
        average, basis = spread_of(whole)
    joint = len(basis) <= MOST_JOINT
    design = allocations_of(evidence, grouped) if joint else None
    shift = variation(grouped, average[None, None], design).p_value[:, 0]
    each = np.ones((len(shift), 0))
    if few is not None:
        each = variation(grouped, (few - average)[:, None]).p_value
    if len(basis) == 1:
        return variation(grouped, basis[None], design).p_value[:, 0], shift, each
    along = basis.T @ basis  # what of each parameter is a difference between arms
    along = along[np.diag(along) > 1e-6]
    single = variation(grouped, along[:, None], design)
    p_values = single.p_value
    if grouped.method == "lists":
        pieces = (evidence.rounds > 0).sum(axis=1, keepdims=True)
        thin = single.freedom[..., 1] < LEAST_FREEDOM * pieces
        if thin.any():
            apart = variation(by_pieces(evidence, grouped), along[:, None], design)
            p_values = np.where(thin, apart.p_value, p_values)
    gap = len(along) * p_values.min(axis=1)
    if joint:
        gap = 2 * np.minimum(gap, variation(grouped, basis[None], design).p_value[:, 0])
    return np.minimum(gap, 1.0), shift, each


# Estimates period by period, and a test of whether they are all the same.


Integers = NDArray[np.int64]

LEAST_PIECES = 5  # in a period, to estimate a variance from their differences


@dataclass(frozen=True, eq=False)
class Periods:
    """Scores of a test in P periods, (n, P, ...); a period without rounds has units 0.

    Attributes
    ----------
    labels : names of the periods
    rounds : (n, P)
    theta : (n, P, r) mean score
    covariance : (n, P, r, r) of the mean score
    units : (n, P) independent parts that the covariance was estimated from
    method : "lists" (rewards of the same arm compared, blocks of whole numbers), "rounds" (scores
        of single rounds) or "pieces" (score sums of pieces, blocks with random lists)
    index : (n, J) the period of each piece
    """

    labels: tuple[str, ...]
    rounds: Integers
    theta: Floats
    covariance: Floats
    units: Integers
    method: str
    index: Integers


@dataclass(frozen=True, eq=False)
class Allocations:
    """Bounds of variances that follow from the allocations of the P periods alone.

    Attributes
    ----------
    inverse : (n, P, r, r) A(λ)⁻¹ averaged over the rounds of the period: the covariance of its mean
        score is this over its rounds, if the noise of every arm has variance 1
    scores : (n, P, K, r) A(λ)⁻¹x of every arm
    plays : (n, P, K) expected plays
    freedom : (n, P, K) degrees of freedom of the variance of each arm's rewards
    """

    inverse: Floats
    scores: Floats
    plays: Floats
    freedom: Floats


@dataclass(frozen=True, eq=False)
class Variation:
    """A test of whether something is the same in all periods, of n tests and m questions.

    Attributes
    ----------
    p_value : (n, m) probability of so much variation if nothing moves; 1 if there is one period
    statistic : (n, m) weighted sum of squares over its expectation
    freedom : (n, m, 2) degrees of freedom of both
    """

    p_value: Floats
    statistic: Floats
    freedom: Floats


def group_pieces(evidence: Evidence, periods: int | Sequence[Hashable] = 4) -> Periods:
    """The pieces of a test in periods.

    Parameters
    ----------
    periods : into how many equal shares of the rounds (as far as pieces allow), or the label of
        each piece, such as its date or its weekday; pieces with equal labels are taken together
    """
    index, labels = _index(evidence, periods)
    P = len(labels)
    rounds = sum_groups(evidence.rounds, index, P)
    pieces = sum_groups((evidence.rounds > 0).astype(np.int64), index, P)
    N = np.maximum(rounds, 1)[:, :, None]
    theta = sum_groups(evidence.scores, index, P) / N
    if evidence.within is not None:
        spread, units = sum_groups(evidence.within, index, P), rounds
        if evidence.weights is not None:
            freedom = list_freedom(evidence, index)
            units = np.minimum(1 + freedom.astype(np.int64), rounds)
        return Periods(labels, rounds, theta, spread / N[..., None] ** 2, units, "lists", index)
    if evidence.block > 1 and (pieces[rounds > 0] >= LEAST_PIECES).all():
        unknown = np.zeros((*theta.shape, theta.shape[2]))
        return by_pieces(evidence, Periods(labels, rounds, theta, unknown, pieces, "", index))
    squares = sum_groups(evidence.squares, index, P)
    spread = squares / N[..., None] - theta[..., :, None] * theta[..., None, :]
    spread /= np.maximum(N[..., None] - 1, 1)
    if evidence.block > 1:
        spread *= evidence.block / (evidence.block - 1)  # Hoeffding: blocks vary at most so much
    return Periods(labels, rounds, theta, spread, rounds, "rounds", index)


def by_pieces(evidence: Evidence, periods: Periods) -> Periods:
    """The same periods, with covariances from how much the score sums of their pieces differ.

    A period of fewer than five pieces has units 0: nothing can be said of it.
    """
    pieces = sum_groups((evidence.rounds > 0).astype(np.int64), periods.index, len(periods.labels))
    N = np.maximum(periods.rounds, 1)
    growth = pieces / np.maximum(pieces - 1, 1) / N**2
    spread = _scatter(evidence, periods.theta, periods.index) * growth[:, :, None, None]
    units = np.where(pieces >= LEAST_PIECES, pieces, 0)
    return replace(periods, covariance=spread, units=units, method="pieces")


def allocations_of(evidence: Evidence, periods: Periods) -> Allocations | None:
    """The allocations of the periods; None if the evidence keeps none."""
    if evidence.weights is None:
        return None
    among = evidence.arms if evidence.whole is None else evidence.whole
    X = among.coordinates_of(evidence.columns)
    n, P, r = periods.theta.shape
    inverse, rows = np.zeros((n, P, r, r)), np.arange(n)
    N = evidence.rounds
    for j in range(N.shape[1]):
        played = N[:, j] > 0
        if played.any():
            A = np.where(played[:, None], evidence.weights[:, j], 1.0)[:, None, :] * X.T @ X
            share = N[:, j] / np.maximum(periods.rounds[rows, periods.index[:, j]], 1)
            inverse[rows, periods.index[:, j]] += share[:, None, None] * np.linalg.inv(A)
    plays = N[:, :, None] * evidence.weights
    freedom = np.where(plays > 0, np.maximum(plays - 1, np.minimum(plays, 1.0)), 0.0)
    return Allocations(
        inverse,
        (inverse @ X.T).swapaxes(2, 3),
        sum_groups(plays, periods.index, P),
        sum_groups(freedom, periods.index, P),
    )


def variation(
    periods: Periods, directions: Floats, allocations: Allocations | None = None
) -> Variation:
    """Test whether the parameter's components along `directions` (m, q, r) are constant.

    These are m questions of q components each. The statistic is the sum over periods of squared
    distances from the common value, in a metric that no reward enters: the precision of the
    periods if the noise of all arms were alike, or the rounds where allocations are not given.
    It is compared with its expectation under the estimated covariances, which need not be alike,
    nor inverted: the F approximation of Box (1954) and Brunner, Dette and Munk (1997). If the
    noise is normal and alike this is the F test of the analysis of variance.
    """
    q, used = directions.shape[1], (periods.units > 1)[:, :, None]
    flat = directions.reshape(-1, directions.shape[2])
    shape = (*periods.rounds.shape, *directions.shape[:2])
    means = (periods.theta @ flat.T).reshape(shape)
    S = _along(directions, periods.covariance)
    N = np.maximum(periods.rounds, 1)[:, :, None, None, None]
    unit = np.eye(q) if allocations is None else _along(directions, allocations.inverse)
    W = np.asarray(np.linalg.pinv(unit / N, rcond=1e-10, hermitian=True), dtype=np.float64)
    W *= used[..., None, None]
    whole = np.asarray(np.linalg.pinv(W.sum(axis=1), rcond=1e-10, hermitian=True)[:, None])
    common = whole @ (W @ means[..., None]).sum(axis=1, keepdims=True)
    apart = means[..., None] - common
    Q = (apart.swapaxes(3, 4) @ W @ apart)[..., 0, 0].sum(axis=1)
    # The statistic is z'Mz of the stacked means z, M = diag(W) - W whole W'.
    WS = W @ S
    own = WS - W @ whole @ WS  # M S within a period
    parts, squares = _trace(own), _trace(own @ own)
    between = (whole @ (WS @ W).sum(axis=1, keepdims=True))[:, 0]
    ours = whole @ WS @ W
    everything = _trace(between @ between) - _trace(ours @ ours).sum(axis=1) + squares.sum(axis=1)
    if allocations is None or periods.method == "pieces":
        f = np.maximum(periods.units - 1, 1)[:, :, None]
        noise, bias = squares / f, (squares + parts**2) / f
    else:
        M = W - W @ whole @ W
        noise = parts**2 * _uncertainty(directions, M, allocations)
        bias = 2 * noise
    rank = np.broadcast_to(q * np.maximum(used.sum(axis=1) - 1.0, 0.0), Q.shape)
    T, noise, bias = parts.sum(axis=1), noise.sum(axis=1), bias.sum(axis=1)
    return Variation(*box_test(Q, T, everything, noise, bias, rank))


def box_test(
    Q: Floats, T: Floats, squares: Floats, noise: Floats, bias: Floats, rank: Floats
) -> tuple[Floats, Floats, Floats]:
    """p-value, statistic and degrees of freedom (..., 2) of a quadratic form z'Mz, any shape.

    Box's approximation: z'Mz over tr(MS) is F with tr(MS)²/tr((MS)²) and as many degrees of freedom
    as the estimate of tr(MS) has. Where nothing varies the p-value is 1.

    Parameters
    ----------
    Q : the form
    T : tr(MS), its expectation, S the estimated covariance of z
    squares : tr((MS)²)
    noise : half the variance of T
    bias : by how much `squares` is too large on average because S is estimated
    rank : the rank of M
    """
    known = (T > 0) & (rank > 0)
    T, most = np.where(known, T, 1.0), np.maximum(rank, 1.0)
    first = np.clip(T**2 / np.maximum(squares - bias, T**2 / most), 1.0, most)
    second = np.maximum(T**2 / np.maximum(noise, 1e-12 * T**2), 1.0)
    statistic = np.where(known, Q / T, 0.0)
    p_value = np.where(known, fdtrc(first, second, np.maximum(statistic, 0.0)), 1.0)
    return p_value, statistic, np.stack([first, second], axis=-1)


def _along(directions: Floats, covariance: Floats) -> Floats:
    """(n, P, m, q, q) the covariance of the components along directions (m, q, r)."""
    m, q, r = directions.shape
    half = (directions.reshape(-1, r) @ covariance).reshape(*covariance.shape[:2], m, q, r)
    return np.asarray(half @ directions.swapaxes(1, 2))


def _uncertainty(directions: Floats, M: Floats, allocations: Allocations) -> Floats:
    """(n, P, m) one over the degrees of freedom of a period's part, by Satterthwaite's rule.

    The part is a sum over arms of their variances; its shares are those of noise that is alike.
    """
    out = np.empty(M.shape[:3])
    freedom = np.where(allocations.freedom > 0, allocations.freedom, 1.0)
    for i, along in enumerate(directions):
        u = allocations.scores @ along.T
        weight = allocations.plays * ((u @ M[:, :, i]) * u).sum(axis=3)
        total = weight.sum(axis=2, keepdims=True)
        share = weight / np.where(total > 0, total, 1.0)
        out[:, :, i] = (share**2 / freedom).sum(axis=2)
    return out


def _trace(matrices: Floats) -> Floats:
    return np.asarray(np.trace(matrices, axis1=-2, axis2=-1))


def _index(
    evidence: Evidence, periods: int | Sequence[Hashable]
) -> tuple[Integers, tuple[str, ...]]:
    """(n, J) the period of each piece, and the periods' labels."""
    n, J = evidence.rounds.shape
    if isinstance(periods, (int, np.integer, bool, float)):
        P = whole_number(periods, "periods", least=1)
        ends = np.cumsum(evidence.rounds, axis=1)
        middle = ends - evidence.rounds / 2
        share = np.minimum((middle * P / np.maximum(ends[:, -1:], 1)).astype(np.int64), P - 1)
        # Pieces may be longer than a share: leave out empty ones, and say where the others end.
        filled = np.unique(share)
        labels = tuple(f"{i / P:.0%} to {(i + 1) / P:.0%}" for i in filled)
        if n == 1:
            cuts = np.array([ends[0, share[0] == i].max() for i in filled]) / max(ends[0, -1], 1)
            starts = [0.0, *cuts[:-1]]
            labels = tuple(f"{a:.0%} to {b:.0%}" for a, b in zip(starts, cuts, strict=True))
        return np.searchsorted(filled, share), labels
    if isinstance(periods, str):
        raise InvalidInputError.of(
            "periods", periods, f"a number of equal shares, or one label for each of the {J} pieces"
        )
    if len(periods) != J:
        raise InvalidInputError(
            f"periods has {len(periods)} labels, but the evidence has {J} pieces; give one label "
            "for each piece, or the number of equal shares."
        )
    places = {label: place for place, label in enumerate(dict.fromkeys(periods))}
    index = np.array([places[label] for label in periods], dtype=np.int64)
    return np.tile(index, (n, 1)), tuple(str(label) for label in places)


def _scatter(evidence: Evidence, theta: Floats, index: Integers) -> Floats:
    """(n, P, r, r) sum over a period's pieces of their distance from its mean times itself."""
    n, P, r = theta.shape
    out, rows = np.zeros((n, P, r, r)), np.arange(n)
    for j in range(index.shape[1]):
        apart = evidence.scores[:, j] - evidence.rounds[:, j, None] * theta[rows, index[:, j]]
        out[rows, index[:, j]] += apart[:, :, None] * apart[:, None, :]
    return out
