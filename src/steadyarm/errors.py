"""The errors that SteadyArm raises: one root, few children, each also a builtin.

A message says what was given, what was expected and what to do about it.
"""

from __future__ import annotations

from typing import Any, Self


class SteadyArmError(Exception):
    """Root of every error raised on purpose by SteadyArm.

    Examples
    --------
    >>> import steadyarm as sa
    >>> try:
    ...     sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=0)
    ... except sa.SteadyArmError as error:
    ...     print(error)
    budget is 0; expected a whole number of at least 1.
    """


class InvalidInputError(SteadyArmError, ValueError):
    """An argument is outside of what the function accepts.

    Attributes
    ----------
    field : the argument or setting that is wrong, such as "budget"; None if it is none of them
    given : its value
    expected : what it should be, so that the message is "{field} is {given}; expected {expected}."
        None if the message is a sentence of its own

    Examples
    --------
    >>> import steadyarm as sa
    >>> try:
    ...     sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=0)
    ... except sa.InvalidInputError as error:
    ...     print(error.field, error.given)
    budget 0
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

        Parameters
        ----------
        field : the argument or setting
        given : its value
        expected : what it should be

        Returns
        -------
        InvalidInputError

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
    """Another assignment was requested although the whole budget has been assigned.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> session = sa.Session(sa.Steady(), arms, budget=1)
    >>> session.tell(session.ask(), 1.0)
    >>> session.ask()
    Traceback (most recent call last):
    steadyarm.errors.BudgetSpentError: all 1 assignments of the budget have been made; ...
    """


class RewardsPendingError(SteadyArmError, RuntimeError):
    """The policy cannot decide before rewards that are still missing have been reported.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> sa.Session(sa.Steady(), arms, budget=10).recommend()
    Traceback (most recent call last):
    steadyarm.errors.RewardsPendingError: no reward has been reported yet.
    """


class VisitsPendingError(RewardsPendingError):
    """Nothing can be judged before more visits have been assigned.

    It is a `RewardsPendingError`, since what is missing comes with time.

    Examples
    --------
    >>> issubclass(VisitsPendingError, RewardsPendingError)
    True
    """


class UnknownAssignmentError(SteadyArmError, LookupError):
    """A reward was reported for an assignment that was never made.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> sa.Session(sa.Steady(), arms, budget=10).tell(7, 1.0)
    Traceback (most recent call last):
    steadyarm.errors.UnknownAssignmentError: assignment 7 was never made; ...
    """


class RepeatedRewardError(SteadyArmError, ValueError):
    """A second, different reward was reported for the same assignment.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> session = sa.Session(sa.Steady(), arms, budget=10)
    >>> first = session.ask()
    >>> session.tell(first, 1.0)
    >>> session.tell(first, 0.0)
    Traceback (most recent call last):
    steadyarm.errors.RepeatedRewardError: assignment 0 has its reward already ...
    """


class MissingExtraError(SteadyArmError, ImportError):
    """An optional part of SteadyArm is used whose dependencies are not installed.

    The message says what to install.

    Examples
    --------
    >>> issubclass(MissingExtraError, ImportError)
    True
    """


class RewardTooLateError(SteadyArmError, RuntimeError):
    """A reward was reported after the window in which it counts.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> now = [0.0]
    >>> test = sa.create_experiment(
    ...     "late", arms, sa.Steady(), budget=10, storage="memory", reward_range=(0, 1),
    ...     reward_window="1h", clock=lambda: now[0]
    ... )
    >>> first = test.ask("visitor 1")
    >>> now[0] = 10 * 3600.0
    >>> test.tell(first, 1.0)
    Traceback (most recent call last):
    steadyarm.errors.RewardTooLateError: ...
    """


class UnknownExperimentError(SteadyArmError, LookupError):
    """The storage has no experiment of that name.

    Examples
    --------
    >>> import steadyarm as sa
    >>> sa.load_experiment("footer", "memory")
    Traceback (most recent call last):
    steadyarm.errors.UnknownExperimentError: there is no experiment 'footer' in the storage.
    """


class ExperimentExistsError(SteadyArmError, ValueError):
    """The storage already has another experiment of that name.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> rules = {"storage": sa.storages.open_storage("memory"), "missing": "drop"}
    >>> test = sa.create_experiment("hero", arms, sa.Steady(), budget=10, **rules)
    >>> sa.create_experiment("hero", arms, sa.Steady(), budget=20, **rules)
    Traceback (most recent call last):
    steadyarm.errors.ExperimentExistsError: there is an experiment 'hero' in the storage ...
    """


class WrongStateError(SteadyArmError, RuntimeError):
    """The experiment is paused, stopped or in another state in which this cannot be done.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> rules = {"storage": "memory", "missing": "drop"}
    >>> test = sa.create_experiment("hero", arms, sa.Steady(), budget=10, **rules)
    >>> test.pause()
    >>> test.ask("visitor 1")
    Traceback (most recent call last):
    steadyarm.errors.WrongStateError: the experiment is paused; only a running one assigns variants.
    """


class StorageError(SteadyArmError, ConnectionError):
    """The database cannot be reached or does not answer; nothing was stored.

    Attributes
    ----------
    reason : the cause, without addresses and names, so that anybody may read it

    Examples
    --------
    >>> import steadyarm as sa
    >>> sa.load_experiment("hero", "postgresql+psycopg://me@127.0.0.1:9/tests")
    Traceback (most recent call last):
    steadyarm.errors.StorageError: postgresql+psycopg://...
    """

    reason = "the storage does not answer"


class StorageVersionError(SteadyArmError, RuntimeError):
    """The tables of a database are older or newer than this version of SteadyArm.

    ``steadyarm storage upgrade`` brings an older one up to date.

    Examples
    --------
    >>> issubclass(StorageVersionError, RuntimeError)
    True
    """


class ServiceError(SteadyArmError, ConnectionError):
    """The service cannot be reached or answered with an error of its own.

    Examples
    --------
    >>> import steadyarm as sa
    >>> try:
    ...     sa.Client("http://127.0.0.1:9", retries=0).experiment("shop").status()
    ... except sa.ServiceError as error:
    ...     print(str(error).partition(":")[0])
    the service at http
    """
