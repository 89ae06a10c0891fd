"""Policies as people name them: ours, variants that separate what Steady gains, and own ones."""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.policies import GBAI, P1RAGE, Policy, Steady, policy_class, policy_named

__all__ = ["VARIANTS", "Policies", "configured", "entrant_named", "named_policies", "policy_of"]

Policies = Mapping[str, Policy[Any] | str] | Sequence[Policy[Any] | str]
VARIANTS: dict[str, GBAI | P1RAGE | Steady] = {
    "G-BAI blocks": GBAI(order="blocks"),
    "P1-RAGE blocks": P1RAGE(order="blocks"),
    "Steady fixed": Steady(robustness=1.0),
    "Steady iid": Steady(order="iid"),
}
"""What separates the gain of balanced blocks from that of adaptation, by name."""


def entrant_named(name: str) -> str:
    """The proper name of a policy or variant from what somebody typed; "module:Class" as it is.

    Examples
    --------
    >>> entrant_named("g-bai-blocks"), entrant_named("p1rage")
    ('G-BAI blocks', 'P1-RAGE')
    """
    if ":" in name:
        return name
    wanted = name.replace("-", "").replace("_", "").replace(" ", "").lower()
    for proper in VARIANTS:
        if proper.replace("-", "").replace(" ", "").lower() == wanted:
            return proper
    return policy_named(name)


def configured(name: str, published: bool = False) -> Policy[Any]:
    """The policy of a proper name, a variant, or an own one as "module:Class".

    published : whether policies are to be as in the paper's published runs
    """
    if ":" in name:
        return _imported(name)
    if name in VARIANTS:
        return VARIANTS[name]
    made = policy_class(name) or policy_class(policy_named(name))
    assert made is not None  # policy_named knows it
    return made.published() if published else made()


def policy_of(given: Any) -> Policy[Any]:
    """A policy as it is, of ours by its name, or an own one as "module:Class".

    Examples
    --------
    >>> policy_of("steady-iid").order
    'iid'
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, type) and issubclass(given, Policy):
        raise InvalidInputError(
            f"{given.__name__} is a class; give an instance: {given.__name__}()."
        )
    if not isinstance(given, str):
        raise InvalidInputError.of("policy", given, "a policy, or its name")
    return configured(entrant_named(given))


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
        found = {name: policy_of(given) for name, given in policies.items()}
    else:
        several = [policy_of(given) for given in policies]
        names = [_name(policy) for policy in several]
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


def _name(policy: Policy[Any]) -> str:
    """Its name, or that of the variant it is."""
    same = (name for name, variant in VARIANTS.items() if type(policy) is type(variant))
    return next((name for name in same if policy == VARIANTS[name]), policy.name)


def _with_settings(name: str, policy: Policy[Any]) -> str:
    """The name with all settings that are not the default ones."""
    changed = {f.name: getattr(policy, f.name) for f in fields(policy) if f.default is not MISSING}
    usual = {f.name: f.default for f in fields(policy)}
    texts = [f"{key}={value}" for key, value in changed.items() if repr(value) != repr(usual[key])]
    return f"{name} ({', '.join(texts)})" if texts else name


def _imported(given: str) -> Policy[Any]:
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
