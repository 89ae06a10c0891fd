"""The algorithms, each named as in its paper; files hold families of them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.policies.base import Policy, Recommendations, State
from steadyarm.policies.fixed import GBAI, AdjacentBAI, Uniform
from steadyarm.policies.p1 import P1, P1RAGE, MixedPeace, P1Peace
from steadyarm.policies.phased import ODLinBAI, Peace, SequentialHalving
from steadyarm.policies.steady import Steady
from steadyarm.policies.thompson import LinearThompson, TopTwoThompson
from steadyarm.wording import did_you_mean

__all__ = [
    "GBAI",
    "P1",
    "P1RAGE",
    "POLICIES",
    "AdjacentBAI",
    "LinearThompson",
    "MixedPeace",
    "ODLinBAI",
    "P1Peace",
    "Peace",
    "Policy",
    "Recommendations",
    "SequentialHalving",
    "State",
    "Steady",
    "TopTwoThompson",
    "Uniform",
    "policy_from_dict",
    "policy_named",
]

POLICIES: dict[str, type[Policy[Any]]] = {
    policy.name: policy
    for policy in (
        Steady,
        Uniform,
        GBAI,
        P1RAGE,
        P1Peace,
        MixedPeace,
        Peace,
        ODLinBAI,
        P1,
        AdjacentBAI,
        SequentialHalving,
        LinearThompson,
        TopTwoThompson,
    )
}


def policy_from_dict(data: Mapping[str, Any]) -> Policy[Any]:
    """The policy that `Policy.to_dict` described."""
    settings = dict(data)
    name = settings.pop("name", None)
    if name not in POLICIES:
        raise InvalidInputError(
            f"there is no policy called {name!r}; the policies are {', '.join(POLICIES)}."
        )
    known = [field.name for field in fields(POLICIES[name])]
    for key in settings:
        if key not in known:
            raise InvalidInputError(
                f"{name} has no setting {key!r}; its settings are {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )
    return POLICIES[name](**settings)


def policy_named(name: str) -> str:
    """The policy's proper name, given any spelling of it: p1-rage, P1RAGE, P1-RAGE."""
    wanted = name.replace("-", "").replace("_", "").lower()
    for proper in POLICIES:
        if proper.replace("-", "").lower() == wanted:
            return proper
    known = [proper.lower() for proper in POLICIES]
    raise InvalidInputError(
        f"there is no policy {name!r}; the policies are {', '.join(known)}"
        f"{did_you_mean(name.lower().replace('_', '-'), known)}"
    )
