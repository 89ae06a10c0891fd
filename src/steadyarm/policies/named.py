"""Policies by name: ours, variants of them, those of installed packages, and your own classes."""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.policies.base import Policy
from steadyarm.policies.deconfounded import DeconfoundedThompson
from steadyarm.policies.fixed import GBAI, AdjacentBAI, Uniform
from steadyarm.policies.gse import GSE
from steadyarm.policies.p1 import P1, P1RAGE, MixedPeace, P1Peace
from steadyarm.policies.phased import ODLinBAI, Peace, SequentialHalving
from steadyarm.policies.steady import Steady
from steadyarm.policies.thompson import LinearThompson, TopTwoThompson
from steadyarm.wording import did_you_mean

Policies = Mapping[str, Policy[Any] | str] | Sequence[Policy[Any] | str]
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
        GSE,
        LinearThompson,
        TopTwoThompson,
        DeconfoundedThompson,
    )
}
"""All policies of SteadyArm, by their names."""

VARIANTS: dict[str, GBAI | P1RAGE | Steady] = {
    "G-BAI blocks": GBAI(order="blocks"),
    "P1-RAGE blocks": P1RAGE(order="blocks"),
    "Steady fixed": Steady(robustness=1.0),
    "Steady iid": Steady(order="iid"),
}
"""What separates the gain of balanced blocks from that of adaptation, by name."""

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


def is_policy_name(name: object) -> bool:
    """Whether a policy has this proper name, one of ours or of an installed package.

    Examples
    --------
    >>> is_policy_name("P1-RAGE"), is_policy_name("Mine")
    (True, False)
    """
    return name in POLICIES or name in offered_policies()


def policy_from(given: Any, published: bool = False) -> Policy[Any]:
    """A policy as it is, or made from its name, or from a mapping of its name and settings.

    Parameters
    ----------
    given : a policy, a name in any spelling, "module:Class", or the result of `Policy.to_dict`
    published : whether policies that are named are to be as in the paper's published runs

    Returns
    -------
    Policy : settings that are missing have their defaults

    Examples
    --------
    >>> policy_from("steady-iid").order, policy_from({"name": "P1", "ties": "last"}).ties
    ('iid', 'last')
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, type) and issubclass(given, Policy):
        raise InvalidInputError(
            f"{given.__name__} is a class; give an instance: {given.__name__}()."
        )
    settings = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise InvalidInputError.of("policy", given, "a policy, or its name")
    found = _import(name) if ":" in name else _find(name)
    kind = found if isinstance(found, type) else type(found)
    known = [field.name for field in fields(kind)]
    for key in settings:
        if key not in known:
            raise InvalidInputError(
                f"{kind.name} has no setting {key!r}; its settings are {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )
    if isinstance(found, type) and not published:
        return found(**settings)
    policy = found.published() if isinstance(found, type) else found
    return replace(policy, **settings) if settings else policy


def _find(name: str) -> type[Policy[Any]] | Policy[Any]:
    """The class or variant of that name in any spelling; packages are asked for unknown names."""
    plain = _plain(name)
    for policies in (lambda: POLICIES | VARIANTS, offered_policies):
        for proper, policy in policies().items():
            if _plain(proper) == plain:
                return policy
    known = [proper.lower() for proper in (*POLICIES, *offered_policies())]
    raise InvalidInputError(
        f"there is no policy {name!r}; the policies are {', '.join(known)}"
        f"{did_you_mean(name.lower().replace('_', '-'), known)}"
    )


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "").lower()


def named_policies(policies: Policies) -> dict[str, Policy[Any]]:
    """Policies by the names that results have.

    Variants have names of their own; several of the same name have their settings beside it.

    Examples
    --------
    >>> list(named_policies(["steady", "p1-rage", GBAI(), GBAI(order="blocks")]))
    ['Steady', 'P1-RAGE', 'G-BAI', 'G-BAI blocks']
    >>> list(named_policies([P1RAGE(), P1RAGE(max_phases=8)]))
    ['P1-RAGE', 'P1-RAGE (max_phases=8)']
    """
    if isinstance(policies, Policy | str):
        policies = [policies]
    if isinstance(policies, Mapping):
        found = {name: policy_from(given) for name, given in policies.items()}
    else:
        several = [policy_from(given) for given in policies]
        names = [policy_name(policy) for policy in several]
        often = Counter(names)
        labels = [
            _with_settings(name, policy) if often[name] > 1 else name
            for name, policy in zip(names, several, strict=True)
        ]
        twice = next((name for name, n in Counter(labels).items() if n > 1), None)
        if twice is not None:
            raise InvalidInputError(
                f"several policies are called {twice!r}; give names: "
                f"{{{twice!r}: …, '{twice} with …': …}}."
            )
        found = dict(zip(labels, several, strict=True))
    for name in found:
        if not isinstance(name, str):
            raise InvalidInputError.of("the name of a policy", name, "a text")
    if not found:
        raise InvalidInputError("there is no policy to compare; give at least one.")
    return found


def policy_name(policy: Policy[Any]) -> str:
    """Its name, or that of the variant it is.

    Examples
    --------
    >>> policy_name(GBAI()), policy_name(GBAI(order="blocks"))
    ('G-BAI', 'G-BAI blocks')
    """
    return next((name for name, variant in VARIANTS.items() if policy == variant), policy.name)


def _with_settings(name: str, policy: Policy[Any]) -> str:
    """The name with all settings that are not the default ones."""
    changed = {f.name: getattr(policy, f.name) for f in fields(policy) if f.default is not MISSING}
    usual = {f.name: f.default for f in fields(policy)}
    texts = [f"{key}={value}" for key, value in changed.items() if repr(value) != repr(usual[key])]
    return f"{name} ({', '.join(texts)})" if texts else name


def _import(given: str) -> Policy[Any]:
    """A policy of a user, from a module in the current folder or an installed one."""
    if not {"", os.getcwd()} & set(sys.path):  # a command that was installed has it not
        sys.path.insert(0, os.getcwd())
    module, _, name = given.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            f"the policy {given!r} cannot be imported ({error}); expected module:Class, with the "
            "module in this folder or installed."
        ) from None
    made: Any = found() if isinstance(found, type) else found
    if not isinstance(made, Policy):
        raise InvalidInputError.of("policy", given, "the module and name of a policy's class")
    return made
