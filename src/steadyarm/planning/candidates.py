"""Candidates: the policies that a plan compares, by name or with settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.policies import (
    GBAI,
    POLICIES,
    Peace,
    Steady,
    Uniform,
    policy_from,
    policy_name,
)
from steadyarm.policies.base import Policy, Recommendations, TallyState, best_arm
from steadyarm.policies.fixed import ShuffledPlan
from steadyarm.policies.ips import IPSPolicy
from steadyarm.policies.thompson import ThompsonPolicy
from steadyarm.wording import did_you_mean

# EqualSplit: the A/B/n test as it is usually run, to compare with.


@dataclass(frozen=True)
class EqualSplit(ShuffledPlan):
    """Every arm equally often, in one random order; the highest mean reward is named.

    Features are ignored. Rounds that cannot be shared equally are not played; in a live test with
    rewards outstanding `ask` names these rewards when the plan has been assigned, since plays whose
    reward is given up are made again.

    Examples
    --------
    >>> policy = EqualSplit()
    >>> policy.next_segment(policy.start(ArmSet.one_hot(["A", "B"]), budget=101)).counts
    array([[50, 50]])
    """

    name: ClassVar[str] = "A/B-test"

    def plan(self, state: TallyState) -> NDArray[np.int64]:
        """An equal share of the budget for every arm."""
        return np.full((1, state.arms.size), state.budget // state.arms.size)

    def recommend(self, state: TallyState) -> Recommendations:
        """The arm with the highest mean."""
        means = state.sums / np.maximum(state.counts, 1)
        return Recommendations(best_arm(means, state.ties), means, None)


AB_TEST = EqualSplit.name
FEWEST, USUAL, MOST = 300, 2000, 8000  # simulated tests behind each error
RARE = 0.02  # below this error more tests are simulated
SEEN = 5  # wrong picks that have to be expected, or their share cannot be measured
QUICK = 1.5  # milliseconds a simulated test may take before there are fewer of them
JUDGED = 1000  # simulated tests in which it is looked whether the answer is clear, at most
ROOMY = 10  # parameters above which these are fewer
MANY = 50  # arms beyond which Thompson sampling, at minutes a policy, is compared only if named


@dataclass(frozen=True)
class Candidate:
    """A policy and what it is called in the plan."""

    label: str
    policy: Policy[Any]

    @property
    def robust(self) -> bool:
        """Whether its estimates stay unbiased however the world moves."""
        return self.policy.unbiased or isinstance(self.policy, ShuffledPlan)

    def arms(self, arms: ArmSet) -> ArmSet:
        """The arms as the policy sees them: an A/B test knows no features."""
        if not isinstance(self.policy, EqualSplit) or arms.rank == arms.size:
            return arms
        return _separate(arms.names)

    def trials(self, arms: ArmSet, error: float) -> int:
        """Simulated tests behind each error, by default.

        More for small errors, fewer where a test takes long to simulate; by a rule, not by
        measuring, so that a plan does not depend on the machine.
        """
        wanted = min(USUAL * max(RARE / error, 1.0), MOST)
        affordable = USUAL * QUICK / self.milliseconds(arms)
        least = min(max(FEWEST, ceil(SEEN / error)), MOST)
        return round(max(least, min(wanted, affordable)))

    def milliseconds(self, arms: ArmSet) -> float:
        """What a simulated test takes, about, on a machine of 2025."""
        K, r = arms.size, arms.rank
        if isinstance(self.policy, ThompsonPolicy):
            return 0.2 * K + 0.004 * K**2
        if isinstance(self.policy, (GBAI, Uniform)):
            return 0.01 + 0.0001 * K**2
        steady = isinstance(self.policy, Steady)
        if isinstance(self.policy, (IPSPolicy, Peace)) and r < K:  # designs for subsets of arms
            return (0.5 if steady else 0.15) * (K * r / 64) ** 2
        return 0.25 + 0.0012 * K**2 if steady else 0.05 + 0.0002 * K**2

    def judged(self, arms: ArmSet, trials: int) -> int:
        """Of so many simulated tests, in how many it is looked whether the answer is clear.

        Of policies that trust the world, which are there to compare with, in few.
        """
        if not self.robust:
            return min(trials, FEWEST)
        return min(trials, max(FEWEST, min(JUDGED, round(JUDGED * (ROOMY / arms.rank) ** 2))))

    def judging(self, arms: ArmSet) -> float:
        """Milliseconds that takes for one test, about, on a machine of 2025."""
        if isinstance(self.policy, ShuffledPlan):  # a single piece
            return 0.03 + 0.0005 * arms.rank**2
        return 0.15 + 0.004 * arms.rank**2 if self.policy.unbiased else 0.01

    def to_dict(self) -> dict[str, Any]:
        """Name, settings and label."""
        return self.policy.to_dict() | {"label": self.label}


@lru_cache(maxsize=8)
def _separate(names: tuple[str, ...]) -> ArmSet:
    return ArmSet.one_hot(names)


def default_candidates(arms: ArmSet, sd: float) -> tuple[Candidate, ...]:
    """Ours, the paper's, the usual test, and two adaptive ones that trust the world."""
    eliminating = "Sequential-Halving" if arms.rank == arms.size else "OD-LinBAI"
    names = ["Steady", "P1-RAGE", AB_TEST, eliminating]
    if arms.size <= MANY:
        names.append("Top-Two-Thompson")
    return tuple(candidate_from_settings(name, sd) for name in names)


def candidate_from_settings(settings: Any, sd: float) -> Candidate:
    """A candidate from a policy's name, or a table with name, settings and perhaps a label.

    Thompson sampling gets the noise's standard deviation unless `noise_sd` is set.

    Examples
    --------
    >>> candidate_from_settings({"name": "steady", "robustness": 0.8}, sd=1.0).label
    'Steady (robustness=0.8)'
    >>> candidate_from_settings("top-two-thompson", sd=0.2).policy.noise_sd
    0.2
    """
    if isinstance(settings, str):
        settings = {"name": settings}
    if not isinstance(settings, Mapping) or not isinstance(settings.get("name"), str):
        raise InvalidInputError(
            f'policies has the entry {settings!r}; expected a name such as "steady", or a table '
            'such as { name = "steady", robustness = 0.8 }.'
        )
    rest = dict(settings)
    typed, label = rest.pop("name"), rest.pop("label", None)
    if typed.lower().replace("_", "-") in (AB_TEST.lower(), "ab-test"):
        if rest.keys() - {"ties"}:
            raise InvalidInputError(f"policies: the {AB_TEST} has no settings; given {rest}.")
        return Candidate(label or AB_TEST, EqualSplit(**rest))
    try:
        policy = policy_from(typed)
    except InvalidInputError:
        if ":" in typed:
            raise
        known = [name.lower() for name in (AB_TEST, *POLICIES)]
        near = did_you_mean(typed.lower().replace("_", "-"), known).removesuffix(".")
        expected = f"some of {', '.join(known)}{near}"
        raise InvalidInputError(
            f"there is no policy {typed!r}; expected {expected}.", field="policies"
        ) from None
    given = ", ".join(f"{key}={value}" for key, value in rest.items())
    name = policy_name(policy)
    if "noise_sd" in {f.name for f in fields(policy)}:
        rest = {"noise_sd": sd} | rest
    return Candidate(
        label or (f"{name} ({given})" if given else name), policy_from({"name": typed} | rest)
    )
