"""Arms: the variants of a test, their names and features, few of them or many."""

from steadyarm.arms.arm_set import ArmSet
from steadyarm.arms.recipes import CONSTANT

__all__ = ["CONSTANT", "ArmSet"]
