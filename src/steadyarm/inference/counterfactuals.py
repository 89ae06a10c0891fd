"""What raw means, early stopping or elimination would have concluded from the same test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, standard_errors
from steadyarm.inference.evidence import Evidence, json_ready
from steadyarm.inference.limits import best_of_all
from steadyarm.inference.periods import group_pieces
from steadyarm.inference.tails import t_reach
from steadyarm.validation import check_fraction
from steadyarm.wording import counted, strung

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class RawMeans:
    """Averages of the rewards of each arm over the whole test.

    Attributes
    ----------
    means : of every arm in `Counterfactuals.names`, nan if it was never played
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
    """The arms that an elimination policy would have dropped after so many rounds.

    In a large set `names` are those on the short list, and `others` counts the rest.
    """

    rounds: int
    names: tuple[str, ...]
    others: int = 0


@dataclass(frozen=True)
class Counterfactuals:
    """What other ways of reading the same test would have concluded.

    Attributes
    ----------
    names : of the arms; in a large set a short list of the best, and all that are named below
    best : the arm with the best unbiased estimate
    estimates : unbiased, of every arm
    raw : averages per arm; None if counts and sums were not given
    early : leaders after shares of the rounds
    dropped : the arms that halving at equal distances would have dropped, and when
    winner : the arm that elimination would have left
    rounds : of the whole test

    Examples
    --------
    >>> import steadyarm as sa
    >>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=200, seed=3)
    >>> for _ in range(200):
    ...     a = session.ask()
    ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
    >>> print(str(session.counterfactuals()).splitlines()[1])
    Raw means agree: B.
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
        """After how many rounds elimination would have dropped the best arm; None if never."""
        gone = [drop.rounds for drop in self.dropped if self.best in drop.names]
        return gone[0] if gone else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        data: dict[str, Any] = json_ready(self)
        return data | {"simpson": self.simpson, "best_dropped": self.best_dropped}

    def __str__(self) -> str:
        lines = [f"Best by unbiased estimates over all {self.rounds} rounds: {self.best}."]
        if self.raw is not None:
            lines.append(self._raw_line(self.raw))
        leads = {early.rounds: early.leader for early in self.early}
        leaders = [f"{leader} {self._when(rounds)}" for rounds, leader in leads.items()]
        lines.append(f"Ahead on the way: {strung(leaders)}.")
        drops = "; ".join(f"{_named(drop)} {self._when(drop.rounds)}" for drop in self.dropped)
        lines.append(f"Elimination would have dropped {drops or 'nobody'}; left: {self.winner}.")
        if self.best_dropped is not None:
            end = self.best_dropped == self.rounds
            when = "at the end" if end else f"after {self.best_dropped} rounds"
            lines.append(f"It would have lost the best variant {when}.")
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


def counterfactuals_of(
    evidence: Evidence,
    counts: ArrayLike | None = None,
    sums: ArrayLike | None = None,
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    level: float = 0.95,
    among: NDArray[np.int64] | None = None,
) -> Counterfactuals:
    """What other ways of reading a single test would have concluded.

    Parameters
    ----------
    evidence : scores of the pieces of a single test
    counts, sums : (J, K) or (K,) plays and rewards of each arm, for raw means
    among : the arms that the K columns of counts and sums are, if not all were played
    shares : of the rounds, after which to say who led
    level : of the interval for the arm that raw means put first

    Returns
    -------
    Counterfactuals : ``print`` says it in sentences

    Notes
    -----
    Elimination follows OD-LinBAI and successive halving: ⌈log2 d⌉ stages of equal length for d
    dimensions, after stage s the best ⌈d / 2^s⌉ arms of those left stay, by the estimates of that
    stage alone, as such policies do. They would have played the survivors more often, but that
    does not change which arm drift puts first in a stage.

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> scores = np.array([[[50.0, 30.0], [300.0, 250.0]]])  # sums over pieces of 500 rounds
    >>> squares = np.tile(1000 * np.eye(2), (1, 2, 1, 1))
    >>> evidence = Evidence(arms, np.array([[500, 500]]), scores, squares)
    >>> counts, sums = [[450, 50], [50, 450]], [[45, 3], [30, 225]]
    >>> print(counterfactuals_of(evidence, counts, sums))
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
    sign = evidence.sign
    if (counts is None) != (sums is None):
        given, lacking = ("counts", "sums") if sums is None else ("sums", "counts")
        raise InvalidInputError(
            f"{given} were given without {lacking}; give both for raw means, or neither."
        )
    means, leader = None, None
    if counts is not None and sums is not None:
        columns = evidence.arms.size if among is None else len(among)
        plays, rewards = (
            _per_arm(values, columns, what) for values, what in ((counts, "counts"), (sums, "sums"))
        )
        means = np.where(plays > 0, rewards / np.where(plays > 0, plays, 1.0), np.nan)
        place = int(np.where(plays > 0, sign * means, -np.inf).argmax())
        leader = place if among is None else int(among[place])
    leads = [_early(evidence, check_fraction(share, "a share"), sign) for share in shares]
    gone, winner = _eliminate(evidence, sign)
    best = int(evidence.best[0])
    shown = np.arange(evidence.arms.size, dtype=np.int64)
    if evidence.arms.large:
        _, top = best_of_all(evidence, evidence.theta)
        more = [best, winner, *(k for _, _, k in leads), *([] if leader is None else [leader])]
        shown = np.unique(np.concatenate([top, np.array(more, dtype=np.int64)]))
    names = evidence.arms.names
    raw = None
    if means is not None and leader is not None:
        raw = _raw(evidence, _spread(means, among, shown), best, leader, level)
    return Counterfactuals(
        names=tuple(names[k] for k in shown.tolist()),
        best=names[best],
        estimates=tuple(evidence.estimates[0][shown].tolist()),
        raw=raw,
        early=tuple(Early(share, rounds, names[k]) for share, rounds, k in leads),
        dropped=tuple(_dropped(rounds, out, shown, names) for rounds, out in gone),
        winner=names[winner],
        rounds=int(evidence.played[0]),
    )


def _per_arm(values: ArrayLike, K: int, what: str) -> Floats:
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if table.ndim != 2 or table.shape[1] != K or not np.isfinite(table).all():
        raise InvalidInputError(
            f"{what} has shape {np.shape(values)}; expected finite numbers of shape (J, {K}) or "
            f"({K},), one column for each arm."
        )
    return np.asarray(table.sum(axis=0))


def _spread(means: Floats, among: Indices | None, shown: Indices) -> Floats:
    """The means of the arms shown; nan of those never played."""
    if among is None:
        return np.asarray(means[shown])
    place = np.minimum(np.searchsorted(among, shown), len(among) - 1)
    return np.where(among[place] == shown, means[place], np.nan)


def _raw(evidence: Evidence, means: Floats, best: int, leader: int, level: float) -> RawMeans:
    sign = evidence.sign
    pair = evidence.arms.coordinates_of(np.array([best, leader]))
    contrast = sign * (pair[0] - pair[1])
    whole = group_pieces(evidence, 1)
    behind = float(contrast @ evidence.theta[0])
    error = standard_errors(contrast[None, :], whole.covariance[:, 0])[0, 0]
    freedom = max(int(whole.units[0, 0]) - 1, 1)
    reach = float(t_reach((1 - level) / 2, freedom) * error)
    name = evidence.arms.names[leader]
    return RawMeans(tuple(means.tolist()), name, behind, (behind - reach, behind + reach))


def _values(evidence: Evidence, theta: Floats) -> Floats:
    """(K,) values of all arms for a parameter (1, r)."""
    arms = evidence.arms
    return arms.values(theta[0]) if arms.large else arm_values(arms.coordinates, theta)[0]


def _early(evidence: Evidence, share: float, sign: float) -> tuple[float, int, int]:
    ends = np.cumsum(evidence.rounds[0])
    j = int(np.abs(ends - share * ends[-1]).argmin())
    theta = evidence.scores[:, : j + 1].sum(axis=1) / max(int(ends[j]), 1)
    return share, int(ends[j]), int((sign * _values(evidence, theta)).argmax())


def _eliminate(evidence: Evidence, sign: float) -> tuple[list[tuple[int, Indices]], int]:
    """The arms that each stage drops, after how many rounds; and the arm that is left."""
    K, d = evidence.arms.size, evidence.arms.rank
    stages = max(1, ceil(log2(d)))
    ends = np.cumsum(evidence.rounds[0])
    cuts = [int(np.abs(ends - s * ends[-1] / stages).argmin()) + 1 for s in range(1, stages + 1)]
    survives, gone, start = np.ones(K, dtype=bool), [], 0
    order = np.arange(K)
    for s, stop in enumerate(cuts, start=1):
        if stop > start:  # else pieces are longer than a stage: what it says counts twice
            rounds = max(int(evidence.rounds[0, start:stop].sum()), 1)
            theta = evidence.scores[:, start:stop].sum(axis=1) / rounds
            order = np.argsort(-sign * _values(evidence, theta), kind="stable")
        ranked = order[survives[order]]
        out = np.sort(ranked[ceil(d / 2**s) :])
        survives[out] = False
        if out.size:
            gone.append((int(ends[stop - 1]), out))
        start = stop
    return gone, int(order[survives[order]][0])


def _dropped(rounds: int, gone: Indices, shown: Indices, names: Sequence[str]) -> Dropped:
    known = np.intersect1d(gone, shown)
    return Dropped(rounds, tuple(names[k] for k in known.tolist()), len(gone) - len(known))


def _named(drop: Dropped) -> str:
    if not drop.others:
        return strung(drop.names)
    return counted(drop.others + len(drop.names), "variant")
