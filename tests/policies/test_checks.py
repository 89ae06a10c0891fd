"""Every generic check on every policy, as in the paper's text and as published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.policies import POLICIES
from steadyarm.policies.checks import CHECKS

CONFIGURATIONS: dict[str, sa.Policy[Any]] = {
    **{name: policy() for name, policy in POLICIES.items()},
    **{f"{name} published": policy.published() for name, policy in POLICIES.items()},
    "P1-RAGE by rounds": sa.P1RAGE(updates="rounds"),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_policy(name: str, check: Callable[[sa.Policy[Any]], None]) -> None:
    check(CONFIGURATIONS[name])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_survives_a_round_trip(name: str) -> None:
    from steadyarm.policies import policy_from_dict

    assert policy_from_dict(CONFIGURATIONS[name].to_dict()) == CONFIGURATIONS[name]
