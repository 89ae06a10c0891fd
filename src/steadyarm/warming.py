"""Warming up: tiny tests of every kind, so that numerical code is compiled before it is needed.

numba keeps compiled code on disk. The service warms up when it starts; `python -m
steadyarm.warming` does it where an installation or an image is made.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import steadyarm as sa
from steadyarm.compiled import compiling
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


def _designs() -> None:
    for arms in arm_sets():
        sa.xy_optimal(arms)
        for name in ("Steady", "P1-RAGE"):
            policy = POLICIES[name]()
            policy.next_segment(policy.start(arms, 1000))


def _verdict_and_play() -> None:
    for step in live_test(sa.ArmSet.one_hot(["A", "B"])):
        step()
    _simulate("Uniform", "Linear-Thompson", "Top-Two-Thompson")


def _whole_tests() -> None:
    for arms in arm_sets():
        for step in live_test(arms):
            step()
    for step in live_test(sa.ArmSet.one_hot(["A", "B"]), covariates=True):
        step()
    _simulate(*POLICIES)
    question = {
        "traffic_per_day": 20,
        "arms": {"one_hot": ["A", "B"]},
        "effects": {"smallest_gap": 0.5},
        "rewards": {"rate": 0.3},
    }
    sa.plan(question, trials=100)


def _simulate(*policies: str) -> None:
    for arms in arm_sets():
        for noise in (sa.GaussianNoise(), sa.BernoulliReward()):
            world = sa.Environment.from_means(arms, [0.5] * arms.size, noise, budget=BUDGET)
            for name in policies:
                sa.simulate(POLICIES[name](), world, trials=2)
            sa.simulate(sa.Steady(), world.with_covariate(0.5), trials=2)


# The parts of a stage have little to compile in common; the last one needs what the others made.
STAGES: tuple[tuple[Callable[[], object], ...], ...] = (
    (_designs, _verdict_and_play),
    (_whole_tests,),
)


def compile_all() -> None:
    """Compile what live tests, simulations and plans of small sets need, in several processes."""
    for stage in STAGES:
        with ProcessPoolExecutor(len(stage), get_context("spawn")) as pool:
            list(pool.map(_compile, stage))


def _compile(work: Callable[[], object]) -> None:
    gc.disable()  # compiling makes millions of objects, and the process ends soon
    with compiling():
        work()


if __name__ == "__main__":
    compile_all()
