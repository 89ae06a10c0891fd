"""SteadyArm: find the best of many variants, and stay right when the world moves."""

from steadyarm.arms import ArmSet
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    MissingExtraError,
    RepeatedRewardError,
    RewardsPendingError,
    SteadyArmError,
    UnknownAssignmentError,
)

__version__ = "0.1.0.dev0"

__all__ = [
    # the test: variants, sessions, verdicts
    "ArmSet",
    # errors
    "BudgetSpentError",
    "InvalidInputError",
    "MissingExtraError",
    "RepeatedRewardError",
    "RewardsPendingError",
    "SteadyArmError",
    "UnknownAssignmentError",
]
