"""Responses to providers of OpenFeature, in the terms of OFREP.

OFREP is the OpenFeature Remote Evaluation Protocol. A flag is an experiment with its variants.
Optional fields of OFREP are optional here, too: a flag without value tells the application to use
the default in its own code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from steadyarm.errors import BudgetSpentError, RewardsPendingError, WrongStateError
from steadyarm.live.assigner import LiveAssignment
from steadyarm.wire.responses import PROBLEM, Problem, Response, one_of

# Nothing can be shown for now, or any more: the application uses the default in its own code.
NOTHING = (WrongStateError, BudgetSpentError, RewardsPendingError)
TARGETING_KEY = "targetingKey"  # what OFREP calls the unit, in the context
CODES = {  # of problems; others are GENERAL
    "malformed": "PARSE_ERROR",
    "invalid-input": "INVALID_CONTEXT",
    "unknown-experiment": "FLAG_NOT_FOUND",
    "not-found": "FLAG_NOT_FOUND",
}
ErrorCode = Literal[
    "PARSE_ERROR", "TARGETING_KEY_MISSING", "INVALID_CONTEXT", "FLAG_NOT_FOUND", "GENERAL"
]
Reason = Literal["SPLIT", "STATIC", "DISABLED"]


def select_declared(
    context: Mapping[str, Any], attributes: Collection[str], covariates: Collection[str]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The declared attributes and covariates of a unit in a context.

    Contexts have numbers and booleans where levels are texts.

    Examples
    --------
    >>> context = {"device": "mobile", "member": True, "spend": 41.0}
    >>> select_declared(context, ["device", "member"], [])
    ({'device': 'mobile', 'member': 'true'}, None)
    """
    levels = {name: _level(context[name]) for name in attributes if name in context}
    numbers = {name: context[name] for name in covariates if name in context}
    return levels if attributes else None, numbers if covariates else None


def _level(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) else value


class FlagMetadata(Response, rename="camel", omit_defaults=True):
    """Metadata of an evaluation; texts, numbers and booleans only.

    experiment : the name of the experiment
    in_test : whether the unit takes part in the test, so that its rewards count
    assignment_id : identifies the assignment when its reward is reported, also of a unit that is
        followed after a roll-out; left out without one
    probability : with which the variant was drawn; left out without an assignment
    problem : why there is no variant, such as wrong-state; left out if there is one
    """

    experiment: str
    in_test: bool
    assignment_id: str | UnsetType = UNSET
    probability: float | UnsetType = UNSET
    problem: str | UnsetType = UNSET


class FlagAnswer(Response, omit_defaults=True):
    """The evaluation of a flag.

    key : the key of the flag, which is the name of the experiment
    reason : SPLIT in the test, STATIC outside of it, DISABLED if nothing can be shown
    variant : the name of the variant; empty if there is none
    metadata : what else is known
    value : of the variant; left out if the application is to use the default in its own code
    """

    key: str
    reason: Reason
    variant: str
    metadata: FlagMetadata
    value: Any | UnsetType = UNSET

    @classmethod
    def of(cls, experiment: str, found: LiveAssignment) -> Self:
        """An assignment as the evaluation of a flag."""
        if not found.in_test:
            metadata = FlagMetadata(experiment, False, found.id or UNSET)
            return cls(experiment, "STATIC", found.name, metadata, found.value)
        metadata = FlagMetadata(experiment, True, found.id, found.probability)
        return cls(experiment, "SPLIT", found.name, metadata, found.value)

    @classmethod
    def disabled(cls, experiment: str, problem: Problem) -> Self:
        """The evaluation where nothing can be shown: the application uses its own default."""
        kind = problem.type.removeprefix(PROBLEM)
        return cls(experiment, "DISABLED", "", FlagMetadata(experiment, False, problem=kind))


class FlagProblem(Response, rename="camel", omit_defaults=True):
    """The reason why a flag, or a request, cannot be evaluated.

    key : the key of the flag; left out if it is the whole request
    error_code : one of the codes of OpenFeature
    error_details : what was given, what was expected, and what to do
    """

    error_code: ErrorCode
    error_details: str
    key: str | UnsetType = UNSET

    @classmethod
    def of(cls, problem: Problem, key: str | None) -> Self:
        """A problem in the words of OFREP."""
        code: Any = CODES.get(problem.type.removeprefix(PROBLEM), "GENERAL")
        if problem.field == TARGETING_KEY and problem.given is None:
            code = "TARGETING_KEY_MISSING"
        details = problem.detail if problem.hint is None else f"{problem.detail} {problem.hint}"
        return cls(code, details, UNSET if key is None else key)


class FlagAnswers(Response):
    """The evaluation of all flags that a unit has.

    flags : one for every experiment that takes part in bulk evaluation, or in which the unit has an
        assignment
    """

    flags: list[Annotated[Any, one_of("FlagAnswer", "FlagProblem")]]
