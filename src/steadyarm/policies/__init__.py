"""The policies, each named as in its paper, in files by family."""

from steadyarm.policies.base import Policy, Recommendations, State
from steadyarm.policies.deconfounded import DeconfoundedThompson
from steadyarm.policies.fixed import GBAI, AdjacentBAI, Uniform
from steadyarm.policies.gse import GSE
from steadyarm.policies.named import (
    POLICIES,
    VARIANTS,
    Policies,
    is_policy_name,
    named_policies,
    policy_from,
    policy_name,
)
from steadyarm.policies.p1 import P1, P1RAGE, MixedPeace, P1Peace
from steadyarm.policies.phased import ODLinBAI, Peace, SequentialHalving
from steadyarm.policies.steady import Steady
from steadyarm.policies.thompson import LinearThompson, TopTwoThompson

__all__ = [
    "GBAI",
    "GSE",
    "P1",
    "P1RAGE",
    "POLICIES",
    "VARIANTS",
    "AdjacentBAI",
    "DeconfoundedThompson",
    "LinearThompson",
    "MixedPeace",
    "ODLinBAI",
    "P1Peace",
    "Peace",
    "Policies",
    "Policy",
    "Recommendations",
    "SequentialHalving",
    "State",
    "Steady",
    "TopTwoThompson",
    "Uniform",
    "is_policy_name",
    "named_policies",
    "policy_from",
    "policy_name",
]
