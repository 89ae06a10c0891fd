"""The errors that SteadyArm raises: one root, few children, each also a builtin.

A message says what was given, what was expected and what to do about it.
"""

__all__ = [
    "BudgetSpentError",
    "ExperimentExistsError",
    "InvalidInputError",
    "LeaseExpiredError",
    "MissingExtraError",
    "RepeatedRewardError",
    "RewardTooLateError",
    "RewardsPendingError",
    "ServiceError",
    "SteadyArmError",
    "StorageError",
    "StorageVersionError",
    "UnknownAssignmentError",
    "UnknownExperimentError",
    "WrongStateError",
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


class RewardTooLateError(SteadyArmError, RuntimeError):
    """A reward was told after the window in which it counts."""


class UnknownExperimentError(SteadyArmError, LookupError):
    """There is no experiment of that name in the storage."""


class ExperimentExistsError(SteadyArmError, ValueError):
    """Another experiment of that name is in the storage already."""


class WrongStateError(SteadyArmError, RuntimeError):
    """The experiment is paused, stopped or in another state in which this cannot be done."""


class LeaseExpiredError(SteadyArmError, RuntimeError):
    """Positions leased for local assignment went back before their use was reported."""


class StorageError(SteadyArmError, ConnectionError):
    """The database cannot be reached or does not answer; nothing was stored.

    Attributes
    ----------
    reason : why, without addresses and names, so that anybody may read it
    """

    reason = "the storage does not answer"


class StorageVersionError(SteadyArmError, RuntimeError):
    """The tables of a database are older or newer than this version of SteadyArm."""


class ServiceError(SteadyArmError, ConnectionError):
    """The service cannot be reached or answered with an error of its own."""
