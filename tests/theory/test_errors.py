"""What the theory refuses, and what it says then."""

from __future__ import annotations

import numpy as np
import pytest

import steadyarm as sa
from steadyarm import theory
from tests.theory.instances import one_hot


def test_what_is_given_is_checked() -> None:
    arms = one_hot(2)
    for theta, words in (
        ([0.5], r"shape \(1,\); expected \(2,\)"),
        ([[0.5, 0.1]] * 3, "average over its rounds"),
        ([0.5, np.nan], r"theta\[1\] is nan"),
        (["a", "b"], "not a list of numbers"),
        ([0.5, 0.5], "no single arm is best"),
        ([1 / 3, 1 - 2 / 3], "no single arm is best"),
    ):
        with pytest.raises(sa.InvalidInputError, match=words):
            theory.rho_star(arms, theta)
    with pytest.raises(sa.InvalidInputError, match="means has shape"):
        theory.rho_star_of_means(arms, [0.5])
    with pytest.raises(sa.InvalidInputError, match="at least i0 = 5"):
        theory.h_p1_rage(arms, [0.5, 0.4], m=4)
    with pytest.raises(sa.InvalidInputError, match="m is 2"):
        theory.p1_rage_error_bound(arms, [0.5, 0.4], 100, m=2)
    with pytest.raises(sa.InvalidInputError, match="largest_reward is 1"):
        theory.g_bai_error_bound(arms, [1.5, 0.4], 100)
    with pytest.raises(sa.InvalidInputError, match="budget"):
        theory.g_bai_error_bound(arms, [0.5, 0.4], 0)
    with pytest.raises(sa.InvalidInputError, match="largest_reward is -1"):
        theory.h_p1_rage_exact(arms, [0.5, 0.4], largest_reward=-1)
    with pytest.raises(sa.InvalidInputError, match=r"epsilon is -0\.1"):
        theory.h_p1_rage_exact(arms, [0.5, 0.4], epsilon=-0.1)
    with pytest.raises(sa.InvalidInputError, match="effect is 0"):
        theory.phases_for(0.0)
