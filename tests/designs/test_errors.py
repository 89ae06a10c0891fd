"""What the design functions refuse, and that the message says what to do."""

from collections.abc import Callable

import numpy as np
import pytest

from steadyarm.arms import ArmSet
from steadyarm.designs import (
    designs_for,
    frank_wolfe_xy,
    g_optimal,
    round_design,
    round_designs,
    xy_optimal,
)
from steadyarm.errors import InvalidInputError

ARMS = ArmSet.from_features([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]])  # rank 2


@pytest.mark.parametrize("solve", [g_optimal, xy_optimal])
@pytest.mark.parametrize(
    ("among", "message"),
    [
        ([0, 3], "arm 3; there are 3 arms, 0 to 2"),
        ([-1], "arm -1"),
        ([], "at least one arm index"),
        ([0, 1, 0], "arm 0 more than once"),
        ([[0, 1]], "shape"),
        ([True, False, True], "flatnonzero"),
        ([0.0, 1.0], "integer"),
    ],
)
def test_among(solve: Callable[..., object], among: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        solve(ARMS, among=among)


@pytest.mark.parametrize("tol", [0.0, -1e-6, np.nan, np.inf])
def test_tolerance(tol: float) -> None:
    with pytest.raises(InvalidInputError, match="tol is"):
        g_optimal(ARMS, tol=tol)
    with pytest.raises(InvalidInputError, match="tol is"):
        xy_optimal(ARMS, tol=tol)


def test_others() -> None:
    with pytest.raises(InvalidInputError, match="steps is 0"):
        frank_wolfe_xy(ARMS, steps=0)
    for weights in ([0.5, -0.1], [0.0, 0.0], [np.nan, 1.0]):
        with pytest.raises(InvalidInputError, match="none of them negative"):
            round_design(weights, 5)
    with pytest.raises(InvalidInputError, match="axes"):
        round_design([[0.5, 0.5]], 5)
    with pytest.raises(InvalidInputError, match="0 or more"):
        round_design([0.5, 0.5], -1)
    with pytest.raises(InvalidInputError, match="for 1 designs"):
        round_designs([[0.5, 0.5]], [3, 4])


def test_masks() -> None:
    with pytest.raises(InvalidInputError, match=r"shape \(n, 3\)"):
        designs_for(ARMS, np.ones((2, 4), dtype=bool))
    with pytest.raises(InvalidInputError, match="booleans"):
        designs_for(ARMS, np.ones((2, 3), dtype=np.int64))
    with pytest.raises(InvalidInputError, match="mask 1 names no arm"):
        designs_for(ARMS, np.array([[True, True, True], [False, False, False]]))
    with pytest.raises(InvalidInputError, match="kind is 'd'"):
        designs_for(ARMS, np.ones((1, 3), dtype=bool), kind="d")  # type: ignore[arg-type]  # on purpose
