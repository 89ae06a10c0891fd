"""What a solver for the XY designs of many arms hands back: few arms, their weights, the proof.

Made by `large_xy`, `factorial_xy` and `pool_xy`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.design import Design, Status, on_all_arms, relative_gap

__all__ = ["LargeXYDesign", "nothing_to_compare"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LargeXYDesign:
    """An XY design on few of many arms, with its proof.

    Attributes
    ----------
    size : number of arms, K
    indices : (s,) sorted indices of the arms with positive weight
    weights : (s,) their weights, which sum to one
    value : no pair of the arms compared has a larger variance ‖x - x'‖² in the inverse of A
    exact : whether that is the variance of the worst pair, not only a bound above it
    pair : the worst pair found
    pair_value : its variance
    lower_bound : no design on any of the arms has a value below this one
    status : why the solver stopped
    passes : work on the arms, in passes: as many multiplications as all leverages once
    rounds : sweeps over all arms
    """

    size: int
    indices: Indices
    weights: Floats
    value: float
    exact: bool
    pair: tuple[int, int]
    pair_value: float
    lower_bound: float
    status: Status
    passes: float
    rounds: int

    @property
    def gap(self) -> float:
        """Relative gap ``value / lower_bound - 1``, proven; zero when the value is zero."""
        return relative_gap(self.value, self.lower_bound)

    @property
    def pair_gap(self) -> float:
        """The gap if the worst pair found is the worst there is; not proven unless exact."""
        return relative_gap(self.pair_value, self.lower_bound)

    def design(self) -> Design:
        """The same as a `Design`, with a weight for every arm."""
        weights = on_all_arms(self.size, self.indices, self.weights)
        return Design(weights, self.value, self.lower_bound, self.status, self.rounds)


def nothing_to_compare(K: int, arm: int, work: float) -> LargeXYDesign:
    """The design for a single arm, or arms that are all the same."""
    only = np.array([arm], dtype=np.int64)
    pair = (arm, arm)
    return LargeXYDesign(K, only, np.ones(1), 0.0, True, pair, 0.0, 0.0, Status.OPTIMAL, work, 0)
