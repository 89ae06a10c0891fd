"""What would have been concluded otherwise: from raw means, by stopping early, by eliminating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, standard_errors
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.periods import group_pieces
from steadyarm.inference.plain import plain
from steadyarm.validation import check_fraction

__all__ = ["Dropped", "Early", "Otherwise", "RawMeans", "what_otherwise"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RawMeans:
    """Plain averages per arm over the whole test.

    Attributes
    ----------
    means : of every arm, nan if it was never played
    leader : the arm with the best of them
    behind : by how much the leader is behind the best arm by the unbiased estimates; 0 if the same
    interval : of that difference
    """

    means: tuple[float, ...]
    leader: str
    behind: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Early:
    """Who led after a share of the rounds (the nearest end of a piece)."""

    share: float
    rounds: int
    leader: str


@dataclass(frozen=True)
class Dropped:
    """Whom an elimination policy would have given up after so many rounds."""

    rounds: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Otherwise:
    """Other ways to the answer, on the same data.

    Attributes
    ----------
    names : of the arms
    best : the arm with the best unbiased estimate
    estimates : unbiased, of every arm
    raw : plain averages; None if counts and sums were not given
    early : leaders after shares of the rounds
    dropped : what halving the arms at equal distances would have given up, and when
    winner : who would have been left
    rounds : of the whole test
    """

    names: tuple[str, ...]
    best: str
    estimates: tuple[float, ...]
    raw: RawMeans | None
    early: tuple[Early, ...]
    dropped: tuple[Dropped, ...]
    winner: str
    rounds: int

    @property
    def simpson(self) -> bool:
        """Whether raw means put another arm first (Simpson's paradox)."""
        return self.raw is not None and self.raw.leader != self.best

    @property
    def best_dropped(self) -> int | None:
        """After how many rounds elimination would have given up the best arm; None if never."""
        gone = [drop.rounds for drop in self.dropped if self.best in drop.names]
        return gone[0] if gone else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        data: dict[str, Any] = plain(self)
        return data | {"simpson": self.simpson, "best_dropped": self.best_dropped}

    def __str__(self) -> str:
        lines = [f"Best by unbiased estimates over all {self.rounds} rounds: {self.best}."]
        if self.raw is not None:
            lines.append(self._raw_line(self.raw))
        looks = {early.rounds: early.leader for early in self.early}
        leaders = ", ".join(f"{leader} {self._when(rounds)}" for rounds, leader in looks.items())
        lines.append(f"Ahead on the way: {leaders}.")
        drops = "; ".join(
            f"{', '.join(drop.names)} {self._when(drop.rounds)}" for drop in self.dropped
        )
        lines.append(f"Elimination would have dropped {drops or 'nobody'}; left: {self.winner}.")
        if self.best_dropped is not None:
            lines.append(f"It would have lost the best variant after {self.best_dropped} rounds.")
        return "\n".join(lines)

    def _when(self, rounds: int) -> str:
        return "at the end" if rounds == self.rounds else f"after {rounds / self.rounds:.0%}"

    def _raw_line(self, raw: RawMeans) -> str:
        if not self.simpson:
            return f"Raw means agree: {raw.leader}."
        low, high = raw.interval
        if low <= 0:
            return (
                f"Raw means say {raw.leader}, which without bias is behind by {raw.behind:.3g} "
                f"[{low:.3g}, {high:.3g}]: too close to tell."
            )
        return (
            f"Raw means say {raw.leader}, which is behind by {raw.behind:.3g} "
            f"[{low:.3g}, {high:.3g}] without bias: the mix of periods differs between variants."
        )


def what_otherwise(
    evidence: Evidence,
    counts: ArrayLike | None = None,
    sums: ArrayLike | None = None,
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    level: float = 0.95,
) -> Otherwise:
    """Replay a single test as others would have read it.

    Parameters
    ----------
    counts, sums : (J, K) or (K,) plays and rewards of each arm, for raw means
    shares : of the rounds at which to look who led
    level : of the interval for the arm that raw means put first

    Notes
    -----
    Elimination follows OD-LinBAI and successive halving: ⌈log2 d⌉ stages of equal length for d
    dimensions, after stage s the best ⌈d / 2^s⌉ arms of those left stay, by the estimates of that
    stage alone, as such policies do. They would have played the survivors more often; whom drift
    puts first in a stage does not depend on that.

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> scores = np.array([[[50.0, 30.0], [300.0, 250.0]]])  # sums over pieces of 500 rounds
    >>> squares = np.tile(1000 * np.eye(2), (1, 2, 1, 1))
    >>> evidence = Evidence(arms, np.array([[500, 500]]), scores, squares)
    >>> print(what_otherwise(evidence, counts=[[450, 50], [50, 450]], sums=[[45, 3], [30, 225]]))
    Best by unbiased estimates over all 1000 rounds: A.
    Raw means say B, which without bias is behind by 0.07 [...]: too close to tell.
    Ahead on the way: A after 50%.
    Elimination would have dropped B at the end; left: A.
    """
    if len(evidence.rounds) != 1 or not evidence.played[0]:
        raise InvalidInputError(
            f"the evidence is of {len(evidence.rounds)} tests with {evidence.played.tolist()} "
            "rounds; expected a single test of at least one round."
        )
    check_fraction(level, "level")
    names, sign = evidence.arms.names, 1.0 if evidence.direction == "maximize" else -1.0
    raw = None
    if (counts is None) != (sums is None):
        raise InvalidInputError("give both counts and sums for raw means, or neither.")
    if counts is not None and sums is not None:
        plays, rewards = _per_arm(counts, evidence, "counts"), _per_arm(sums, evidence, "sums")
        raw = _raw(evidence, plays, rewards, level)
    dropped, winner = _eliminate(evidence, sign)
    return Otherwise(
        names=tuple(names),
        best=names[int(evidence.best[0])],
        estimates=tuple(evidence.estimates[0].tolist()),
        raw=raw,
        early=tuple(_early(evidence, check_fraction(share, "a share"), sign) for share in shares),
        dropped=dropped,
        winner=winner,
        rounds=int(evidence.played[0]),
    )


def _per_arm(values: ArrayLike, evidence: Evidence, what: str) -> Floats:
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    K = evidence.arms.size
    if table.ndim != 2 or table.shape[1] != K or not np.isfinite(table).all():
        raise InvalidInputError(
            f"{what} has shape {np.shape(values)}; expected finite numbers of shape (J, {K}) or "
            f"({K},), one column for each arm."
        )
    return np.asarray(table.sum(axis=0))


def _raw(evidence: Evidence, counts: Floats, sums: Floats, level: float) -> RawMeans:
    played = counts > 0
    means = np.where(played, sums / np.where(played, counts, 1.0), np.nan)
    sign = 1.0 if evidence.direction == "maximize" else -1.0
    leader = int(np.where(played, sign * means, -np.inf).argmax())
    best = int(evidence.best[0])
    contrast = sign * (evidence.arms.coordinates[best] - evidence.arms.coordinates[leader])
    whole = group_pieces(evidence, 1)
    behind = float(contrast @ evidence.theta[0])
    error = standard_errors(contrast[None, :], whole.covariance[:, 0])[0, 0]
    freedom = max(int(whole.units[0, 0]) - 1, 1)
    reach = float(scipy.stats.t.isf((1 - level) / 2, freedom) * error)
    name = evidence.arms.names[leader]
    return RawMeans(tuple(means.tolist()), name, behind, (behind - reach, behind + reach))


def _early(evidence: Evidence, share: float, sign: float) -> Early:
    ends = np.cumsum(evidence.rounds[0])
    j = int(np.abs(ends - share * ends[-1]).argmin())
    theta = evidence.scores[:, : j + 1].sum(axis=1) / max(int(ends[j]), 1)
    values = sign * arm_values(evidence.arms.coordinates, theta)[0]
    return Early(share, int(ends[j]), evidence.arms.names[int(values.argmax())])


def _eliminate(evidence: Evidence, sign: float) -> tuple[tuple[Dropped, ...], str]:
    X, names = evidence.arms.coordinates, evidence.arms.names
    d = X.shape[1]
    stages = max(1, ceil(log2(d)))
    ends = np.cumsum(evidence.rounds[0])
    cuts = [int(np.abs(ends - s * ends[-1] / stages).argmin()) + 1 for s in range(1, stages + 1)]
    survivors, dropped, start, values = list(range(len(X))), [], 0, np.zeros(len(X))
    for s, stop in enumerate(cuts, start=1):
        if stop > start:  # else pieces are longer than a stage: what it says counts twice
            rounds = max(int(evidence.rounds[0, start:stop].sum()), 1)
            theta = evidence.scores[:, start:stop].sum(axis=1) / rounds
            values = sign * arm_values(X, theta)[0]
        ranked = [k for k in np.argsort(-values, kind="stable").tolist() if k in survivors]
        most = ceil(d / 2**s)
        gone, survivors = sorted(ranked[most:]), ranked[:most]
        if gone:
            dropped.append(Dropped(int(ends[stop - 1]), tuple(names[k] for k in gone)))
        start = stop
    return tuple(dropped), names[survivors[0]]
