"""Tiny tests of every kind, which import and compile what is needed later.

The service plays them when it starts; `python -m steadyarm.warming` where an image is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import steadyarm as sa
from steadyarm.inference import boundaries
from steadyarm.live.scoring import scorecard_of
from steadyarm.policies import POLICIES

BUDGET, BATCH = 24, 8  # the smallest test that passes through all of the code


def arm_sets() -> Iterator[sa.ArmSet]:
    """Sets whose designs take different ways."""
    yield sa.ArmSet.one_hot(["A", "B", "C"])
    yield sa.ArmSet.factorial({"a": ["1", "2"], "b": ["1", "2"]})
    yield sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.5]])  # skewed


def live_test(arms: sa.ArmSet, covariates: bool = False) -> Iterator[Callable[[], object]]:
    """A whole test in memory, from its creation to what pages and results show, in parts."""
    rules: dict[str, Any] = {"reward_range": (0, 1), "missing": "drop"}
    if covariates:
        rules["covariates"] = ["z"]
    test = sa.create_experiment("warm", arms, sa.Steady(), BUDGET, "memory", seed=1, **rules)

    def play(first: int) -> None:
        known = [{"z": float(i % 3)} for i in range(BATCH)] if covariates else None
        answers = test.ask_many([f"{first + i}" for i in range(BATCH)], covariates=known)
        given = [answer for answer in answers if not isinstance(answer, sa.SteadyArmError)]
        test.tell_many((answer.id, float(i % 2)) for i, answer in enumerate(given))

    for first in range(0, BUDGET, BATCH):
        yield lambda first=first: play(first)  # type: ignore[misc]  # bound now
    yield lambda: test.recommend(anytime=True)
    yield lambda: boundaries((0.5, 1.0), 0.025)
    yield lambda: scorecard_of(test)


def compile_all() -> None:
    """Play live tests and simulations of every policy; numba keeps compiled kernels on disk."""
    for arms in arm_sets():
        for step in live_test(arms):
            step()
        for noise in (sa.GaussianNoise(), sa.BernoulliReward()):
            world = sa.Environment.from_means(arms, [0.5] * arms.size, noise, budget=BUDGET)
            for policy in POLICIES.values():
                sa.simulate(policy(), world, trials=2)
    published = POLICIES["P1-RAGE"].published()
    published.next_segment(published.start(arms, BUDGET))


if __name__ == "__main__":
    compile_all()
