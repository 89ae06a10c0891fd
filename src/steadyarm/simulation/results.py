"""Results: how often a policy was wrong, with exact intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_fraction

__all__ = ["Results", "clopper_pearson"]


def clopper_pearson(errors: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval for a probability of which `errors` of `trials` were seen.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 1000)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.0037)
    """
    check_fraction(level, "level")
    if not 0 <= errors <= trials or trials < 1:
        raise InvalidInputError(
            f"there are {errors} errors in {trials} trials; expected 0 <= errors <= trials."
        )
    tail = (1 - level) / 2
    low = 0.0 if errors == 0 else float(scipy.stats.beta.ppf(tail, errors, trials - errors + 1))
    high = (
        1.0
        if errors == trials
        else float(scipy.stats.beta.ppf(1 - tail, errors + 1, trials - errors))
    )
    return low, high


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """What `simulate` found.

    Attributes
    ----------
    policy : name of the policy
    recommended : (trials,) arm recommended in each trial
    best_arm : the arm that should have been
    """

    policy: str
    recommended: NDArray[np.int64]
    best_arm: int

    @property
    def trials(self) -> int:
        """Number of independent runs."""
        return len(self.recommended)

    @property
    def errors(self) -> int:
        """In how many of them another arm was recommended."""
        return int((self.recommended != self.best_arm).sum())

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Clopper-Pearson interval for the probability of error; holds for any sample size."""
        return clopper_pearson(self.errors, self.trials, level)

    def __repr__(self) -> str:
        return f"Results({self.policy}: {self.errors} errors in {self.trials} trials)"
