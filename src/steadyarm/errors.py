"""The errors that SteadyArm raises: one root, few children, each also a builtin.

A message says what was given, what was expected and what to do about it.
"""

__all__ = [
    "BudgetSpentError",
    "InvalidInputError",
    "MissingExtraError",
    "RepeatedRewardError",
    "RewardsPendingError",
    "SteadyArmError",
    "UnknownAssignmentError",
]


class SteadyArmError(Exception):
    """Root of every error raised on purpose by SteadyArm."""


class InvalidInputError(SteadyArmError, ValueError):
    """An argument is outside of what the function accepts."""


class BudgetSpentError(SteadyArmError, RuntimeError):
    """Another assignment was asked for although the whole budget has been handed out."""


class RewardsPendingError(SteadyArmError, RuntimeError):
    """The policy cannot decide before rewards that are still missing have been told."""


class UnknownAssignmentError(SteadyArmError, LookupError):
    """A reward was told for an assignment that was never handed out."""


class RepeatedRewardError(SteadyArmError, ValueError):
    """A second reward was told for the same assignment."""


class MissingExtraError(SteadyArmError, ImportError):
    """An optional part of SteadyArm is used whose dependencies are not installed."""
