"""The algorithms, each named as in its paper; files hold families of them."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
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
    "offered_policies",
    "policy_class",
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
"""All policies of SteadyArm, by their names."""


GROUP = "steadyarm.policies"  # of entry points, by which installed packages offer policies


@cache
def offered_policies() -> dict[str, type[Policy[Any]]]:
    """Policies that installed packages offer by entry points, by their names.

    InvalidInputError says which package offers something else, or one that cannot be imported.

    Returns
    -------
    classes by their names; empty if no package offers any

    Examples
    --------
    >>> sorted(offered_policies())
    []
    """
    found: dict[str, type[Policy[Any]]] = {}
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist is not None else "a package"
        try:
            offered = point.load()
        except Exception as error:  # whatever its import raises
            raise InvalidInputError(
                f"{package} offers the policy {point.value}, which cannot be imported ({error!r}); "
                "mend or uninstall it."
            ) from error
        if not (isinstance(offered, type) and issubclass(offered, Policy)):
            raise InvalidInputError(
                f"{package} offers {point.value} as a policy; expected a class derived from Policy."
            )
        if offered.name in POLICIES or offered.name in found:
            raise InvalidInputError(
                f"{package} offers a policy called {offered.name!r}, and there is one of that name "
                "already; give it another name."
            )
        found[offered.name] = offered
    return found


def policy_class(name: object) -> type[Policy[Any]] | None:
    """The class of a policy by its proper name, ours or an installed package's; None if unknown.

    Parameters
    ----------
    name : the proper name, such as "P1-RAGE"

    Returns
    -------
    a subclass of Policy, or None

    Examples
    --------
    >>> policy_class("P1-RAGE").__name__
    'P1RAGE'
    """
    if name in POLICIES:
        return POLICIES[str(name)]
    return offered_policies().get(str(name))


def policy_from_dict(data: Mapping[str, Any]) -> Policy[Any]:
    """The policy that `Policy.to_dict` described.

    Parameters
    ----------
    data : a name and settings, as `Policy.to_dict` returns them

    Returns
    -------
    Policy : settings that are missing have their defaults

    Examples
    --------
    >>> policy_from_dict({"name": "P1-RAGE", "max_phases": 8}).max_phases
    8
    """
    settings = dict(data)
    name = settings.pop("name", None)
    made = policy_class(name)
    if made is None:
        names = [*POLICIES, *offered_policies()]
        raise InvalidInputError(
            f"there is no policy called {name!r}; the policies are {', '.join(names)}."
        )
    known = [field.name for field in fields(made)]
    for key in settings:
        if key not in known:
            raise InvalidInputError(
                f"{name} has no setting {key!r}; its settings are {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )
    return made(**settings)


def policy_named(name: str) -> str:
    """The policy's proper name, given any spelling of it: p1-rage, P1RAGE, P1-RAGE.

    Parameters
    ----------
    name : in any spelling

    Returns
    -------
    str : the proper name; InvalidInputError lists all names if there is none

    Examples
    --------
    >>> policy_named("p1_rage")
    'P1-RAGE'
    """
    wanted = _plain(name)
    for proper in POLICIES:
        if _plain(proper) == wanted:
            return proper
    for proper in offered_policies():
        if _plain(proper) == wanted:
            return proper
    known = [proper.lower() for proper in (*POLICIES, *offered_policies())]
    raise InvalidInputError(
        f"there is no policy {name!r}; the policies are {', '.join(known)}"
        f"{did_you_mean(name.lower().replace('_', '-'), known)}"
    )


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "").lower()
