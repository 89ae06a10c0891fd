"""SteadyArm: find the best of many variants, and stay right when the world moves."""

from steadyarm.arms import ArmSet
from steadyarm.designs import (
    Design,
    frank_wolfe_g,
    frank_wolfe_transductive,
    frank_wolfe_xy,
    g_optimal,
    round_design,
    transductive,
    xy_optimal,
)
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
    # designs
    "Design",
    "frank_wolfe_g",
    "frank_wolfe_transductive",
    "frank_wolfe_xy",
    "g_optimal",
    "round_design",
    "transductive",
    "xy_optimal",
    # errors
    "BudgetSpentError",
    "InvalidInputError",
    "MissingExtraError",
    "RepeatedRewardError",
    "RewardsPendingError",
    "SteadyArmError",
    "UnknownAssignmentError",
]
