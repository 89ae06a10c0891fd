"""Whole tests make the same decisions on every processor, whatever the last bits of their floats.

Each child process plays them with other numerical code: another kernel of OpenBLAS, generic code
from numba, and NumPy without code for newer processors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import steadyarm as sa

OTHERS = {
    "another BLAS": {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "2"},
    "generic code": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "no dispatch": {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX"},
}
ARMS = {
    "one-hot": sa.ArmSet.one_hot(["A", "B", "C", "D"]),
    "factorial": sa.ArmSet.factorial({"a": ["1", "2"], "b": ["1", "2", "3"]}),
    "symmetric": sa.ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(4)}, 2),
    "bundles": sa.ArmSet.bundles(list("abcdef"), 2, interactions=1),  # dependent features
    "near": sa.ArmSet.from_features(
        np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1e3, 1e-3, 1], [1, 1, 1]])
    ),
}
POLICIES = (
    *(sa.Steady(), sa.GBAI(), sa.P1RAGE(), sa.P1Peace(), sa.MixedPeace(), sa.Peace()),
    *(sa.ODLinBAI(), sa.SequentialHalving(), sa.TopTwoThompson(), sa.P1RAGE.published()),
    *(sa.GSE(), sa.DeconfoundedThompson()),
)
BUDGET = 240


def decisions() -> list[list[object]]:
    """Per test: assignments, ends of segments and recommendations; last the limits of all."""
    found: list[list[object]] = []
    limits: list[object] = []
    for name, arms in ARMS.items():
        for policy in POLICIES:
            test = sa.Session(policy, arms, budget=BUDGET, seed=len(found))
            assigned, segments, leaders = [], [], []
            for i in range(BUDGET):
                try:
                    arm = test.ask()
                except sa.BudgetSpentError:  # some policies end before their budget
                    break
                assigned.append(arm.arm)
                test.tell(arm, float((arm.arm + i // 50) % 3))  # many ties, and drift
                if i % 40 == 39:
                    session = json.loads(test.to_json())["session"]
                    rounds = [ledger["rounds"] for ledger in session["open"]]
                    segments.append((len(session["closed"]), rounds))
                if i % 80 == 79:
                    leaders.append(test.recommend().arm)
            found.append([name, repr(policy), assigned, segments, leaders])
            if type(policy) in (sa.Steady, sa.GBAI):
                limits.append(test.recommend().intervals.tolist())
    world = sa.Environment.from_means(ARMS["factorial"], np.linspace(0, 1, 6), budget=300)
    results = sa.simulate(sa.Steady(), world, trials=50, seed=4)
    return [*found, ["simulated", results.errors], limits]


@pytest.fixture(scope="module")
def here() -> list[list[object]]:
    return json.loads(json.dumps(decisions()))  # type: ignore[no-any-return]  # as the children tell


@pytest.mark.parametrize("other", OTHERS)
def test_decisions_do_not_depend_on_the_processor(other: str, here: list[list[object]]) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.test_processors"],
        env=os.environ | OTHERS[other],
        capture_output=True,
        text=True,
        check=True,
    )
    *there, limits = json.loads(child.stdout)
    for mine, theirs in zip(here[:-1], there, strict=True):
        assert mine == theirs
    for own, others in zip(here[-1], limits, strict=True):
        np.testing.assert_allclose(np.array(own), np.array(others), rtol=1e-8, atol=1e-9)


if __name__ == "__main__":
    print(json.dumps(decisions()))
