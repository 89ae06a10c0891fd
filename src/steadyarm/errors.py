"""The errors that SteadyArm raises: one root, few children, each also a builtin.

A message says what was given, what was expected and what to do about it.
"""

from __future__ import annotations

from typing import Any, Self


class SteadyArmError(Exception):
    """Root of every error raised on purpose by SteadyArm."""


class InvalidInputError(SteadyArmError, ValueError):
    """An argument is outside of what the function accepts.

    Attributes
    ----------
    field : the argument or setting that is wrong, such as "budget"; None if it is none of them
    given : its value
    expected : what it should be, so that the message is "{field} is {given}; expected {expected}."
        None if the message is a sentence of its own
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str | None = None,
        given: Any = None,
        expected: str | None = None,
    ) -> None:
        super().__init__(message)
        self.field, self.given, self.expected = field, given, expected

    @classmethod
    def of(cls, field: str, given: Any, expected: str) -> Self:
        """The error of a field whose value is not what is expected.

        Examples
        --------
        >>> str(InvalidInputError.of("budget", 0, "a whole number of at least 1"))
        'budget is 0; expected a whole number of at least 1.'
        """
        end = "" if expected.endswith("?") else "."
        message = f"{field} is {given!r}; expected {expected}{end}"
        return cls(message, field=field, given=given, expected=expected)

    def called(self, name: str) -> Self:
        """The same error where the field has another name, such as that of an option.

        Examples
        --------
        >>> error = InvalidInputError.of("budget", 0, "a whole number of at least 1")
        >>> str(error.called("--budget"))
        '--budget is 0; expected a whole number of at least 1.'
        """
        if self.expected is None:
            return type(self)(f"{name}: {self}", field=name)
        return self.of(name, self.given, self.expected)


class BudgetSpentError(SteadyArmError, RuntimeError):
    """Another assignment was requested although the whole budget has been assigned."""


class RewardsPendingError(SteadyArmError, RuntimeError):
    """The policy cannot decide before rewards that are still missing have been reported."""


class VisitsPendingError(RewardsPendingError):
    """Nothing can be judged before more visits have been assigned."""


class UnknownAssignmentError(SteadyArmError, LookupError):
    """A reward was reported for an assignment that was never made."""


class RepeatedRewardError(SteadyArmError, ValueError):
    """A second, different reward was reported for the same assignment."""


class MissingExtraError(SteadyArmError, ImportError):
    """An optional part of SteadyArm is used whose dependencies are not installed."""


class RewardTooLateError(SteadyArmError, RuntimeError):
    """A reward was reported after the window in which it counts."""


class UnknownExperimentError(SteadyArmError, LookupError):
    """The storage has no experiment of that name."""


class ExperimentExistsError(SteadyArmError, ValueError):
    """The storage already has another experiment of that name."""


class WrongStateError(SteadyArmError, RuntimeError):
    """The experiment is paused, stopped or in another state in which this cannot be done."""


class LeaseExpiredError(SteadyArmError, RuntimeError):
    """A lease of positions for local assignment expired before their use was reported."""


class StorageError(SteadyArmError, ConnectionError):
    """The database cannot be reached or does not answer; nothing was stored.

    Attributes
    ----------
    reason : the cause, without addresses and names, so that anybody may read it
    """

    reason = "the storage does not answer"


class StorageVersionError(SteadyArmError, RuntimeError):
    """The tables of a database are older or newer than this version of SteadyArm."""


class ServiceError(SteadyArmError, ConnectionError):
    """The service cannot be reached or answered with an error of its own."""
