"""P1: the K-armed ancestor of P1-RAGE (Abbasi-Yadkori et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.policies.base import rank_arms
from steadyarm.policies.ips import IPSPolicy, IPSState


@dataclass(frozen=True)
class P1(IPSPolicy[IPSState]):
    """Each round, play the arm of rank k with probability proportional to 1/k.

    Arms are ranked by their inverse-propensity estimates. P1 takes every arm by itself and
    ignores the features, whatever the arm set.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> policy = sa.P1(ties="first")
    >>> policy.next_segment(policy.start(arms, budget=100)).weights.round(3)
    array([[0.667, 0.333]])

    References
    ----------
    Abbasi-Yadkori, Bartlett, Gabillon, Malek, Valko: Best of both worlds: stochastic and
    adversarial best-arm identification. COLT 2018, Algorithm 1.
    """

    name: ClassVar[str] = "P1"

    def features(self, arms: ArmSet, among: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Every arm is its own dimension."""
        return np.eye(arms.size) if among is None else np.eye(arms.size)[among]

    def parameters(self, arms: ArmSet) -> int:
        """One for every arm."""
        return arms.size

    def _prior(self, arms: ArmSet) -> NDArray[np.float64]:
        return np.eye(arms.size) / arms.size

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        """1/(k H_K) for the arm of rank k."""
        order = rank_arms(self.estimates(state), state.ties)
        share = 1.0 / np.arange(1, state.arms.size + 1)
        weights = np.empty(order.shape)
        np.put_along_axis(weights, order, (share / share.sum())[None, :], axis=1)
        return weights

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """A new ranking after every round."""
        return state.played + 1
