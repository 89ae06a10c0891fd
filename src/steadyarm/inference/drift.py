"""The drift report: did the world move during the test, and did it matter?"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, standard_errors
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.periods import Periods, group_pieces, variation, variations
from steadyarm.inference.plain import plain
from steadyarm.inference.shortlist import best_of_all, spread_of
from steadyarm.validation import check_fraction
from steadyarm.wording import strung

__all__ = ["DriftReport", "drift_p_values", "drift_report"]

Floats = NDArray[np.float64]

PRINTED = 3  # arms of a large set beside each other
NAMED = 4  # periods with another leader that the verdict names
MOST_JOINT = 64  # gaps tested jointly; of more, what changes is more easily seen one by one


@dataclass(frozen=True, eq=False)
class DriftReport:
    """What every period said, and whether periods differ by more than noise.

    Of a large set the K arms are a short list: the best, and the leader of every period.

    Attributes
    ----------
    names : of the K arms
    periods : labels of the P periods
    rounds : (P,) of each
    best : the arm with the best estimate over the whole test
    estimates, errors : (P, K) estimated mean reward in each period, and standard errors
    intervals : (P, K, 2) that hold for all arms and periods at once with probability `level`,
        in large samples
    gaps, gap_errors : (P, K) by how much `best` beats each arm in each period (negative: loses)
    leaders : (P,) the arm with the best estimate in each period
    gap_p_value : probability of gaps varying so much over time if they do not move
    level_p_value : the same for the average over all arms: a shift common to all
    arm_p_values : (K,) the same for each arm's distance from the average, not corrected for K
    level : of the intervals, and 1 minus the error probability at which drift is said to be seen
    method : where the standard errors come from, see `Periods`
    averages : (P,) estimated average over all arms
    others : arms of a large set that are not among the K
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
        """What it means, in plain sentences."""
        if len(self.periods) < 2:
            return "There is one period only, so nothing can be said about drift."
        if not self.gaps_move:
            level = (
                f"All variants together moved over time (p = {self.level_p_value:.2g}); that alone "
                "is harmless, since every variant gains or loses alike."
                if self.level_moves
                else f"No shift common to all variants was seen (p = {self.level_p_value:.2g})."
            )
            return (
                "No change of the differences between variants was seen "
                f"(p = {self.gap_p_value:.2g}), which does not prove that there is none. {level}"
            )
        moved = self.names[int(np.argmin(self.arm_p_values))]
        others = [
            f"{leader} in {label}"
            for leader, label in zip(self.leaders, self.periods, strict=True)
            if leader != self.best
        ]
        swaps = f" {self.best} is best on average, but ahead was {strung(others, NAMED)}."
        return (
            f"The differences between variants changed over time (p = {self.gap_p_value:.2g}), "
            f"most clearly for {moved}.{swaps if others else ''} The result is about the average "
            "over this test; raw means or early stopping could mislead. The average over variants "
            f"{'moved too' if self.level_moves else 'did not visibly move'} "
            f"(p = {self.level_p_value:.2g})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None for what is unknown or has no end."""
        data: dict[str, Any] = plain(self)
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
        """Of a short list the best few."""
        weights = self.rounds / max(int(self.rounds.sum()), 1)
        order = np.argsort(weights @ self.gaps, kind="stable")
        return [int(k) for k in order[:PRINTED]]


def drift_report(
    evidence: Evidence, periods: int | Sequence[Hashable] = 4, level: float = 0.95
) -> DriftReport:
    """Estimates by period and tests of whether they move, of a single test.

    Parameters
    ----------
    periods : how many equal shares of the rounds (as far as pieces allow), or the label of each
        piece, such as its date or weekday
    level : of the intervals and of saying that something moves

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
        raise InvalidInputError("no round has been played; a drift report needs rewards.")
    grouped = group_pieces(evidence, periods)
    evidence = _few_arms(evidence, grouped)
    gap, shift, each = _variations(evidence, grouped)
    X, names = evidence.arms.coordinates, evidence.arms.names
    sign = 1.0 if evidence.direction == "maximize" else -1.0
    theta, covariance, units = grouped.theta[0], grouped.covariance[0], grouped.units[0]
    estimates, errors = arm_values(X, theta), standard_errors(X, covariance)
    best = int(evidence.best[0])
    tail = (1 - level) / (2 * len(estimates) * evidence.family)
    known = units > 1
    reach = scipy.stats.t.isf(tail, np.maximum(units - 1, 1))[:, None] * errors
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
        gap_errors=standard_errors(X[best] - X, covariance),
        leaders=tuple(names[k] for k in (sign * estimates).argmax(axis=1)),
        gap_p_value=float(gap[0]),
        level_p_value=float(shift[0]),
        arm_p_values=each[0],
        level=level,
        method=grouped.method,
        averages=_averages(evidence, estimates, theta),
        others=evidence.family - len(names),
    )


def drift_p_values(
    evidence: Evidence, periods: int | Sequence[Hashable] = 4
) -> tuple[Floats, Floats]:
    """(n,) p-values of a batch of tests: for the gaps, and for a shift common to all arms."""
    gap, shift, _ = _variations(evidence, group_pieces(evidence, periods))
    return gap, shift


def _few_arms(evidence: Evidence, grouped: Periods) -> Evidence:
    """The evidence; of a large set a view of the best arms and of the leader of every period."""
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

    All gaps are tested jointly where they are not too many and periods have parts enough to tell
    so many variances, else one by one (Bonferroni). Of a large set not the gaps are tested one by
    one but the parameters that they are made of, which are fewer.
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
    shift = variations(grouped, average[None, :]).p_value[:, 0]
    each = np.ones((len(shift), 0)) if few is None else variations(grouped, few - average).p_value
    parts = grouped.units[grouped.units > 1]
    if len(basis) <= MOST_JOINT and parts.size and parts.min() >= 3 * len(basis) + 3:
        return variation(grouped, basis).p_value, shift, each
    if whole is not None:
        along = basis.T @ basis  # what of each parameter is a difference between arms
        along = along[np.diag(along) > 1e-6]
        one_by_one = variations(grouped, along).p_value
    else:
        one_by_one = each
    return np.minimum(one_by_one.min(axis=1) * one_by_one.shape[1], 1.0), shift, each
