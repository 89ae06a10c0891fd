"""Instances that the tests of the theory share."""

from __future__ import annotations

import steadyarm as sa


def one_hot(K: int) -> sa.ArmSet:
    return sa.ArmSet.one_hot([f"v{k}" for k in range(K)])
