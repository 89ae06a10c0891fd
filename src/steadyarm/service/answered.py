"""What answers look like; these document them, and tests compare."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "Allocation",
    "Answered",
    "ArmEstimate",
    "ArmsAnswer",
    "AssignmentAnswer",
    "Assignments",
    "BundlesAnswer",
    "CreatedExperiment",
    "Drift",
    "ExperimentAnswer",
    "ExperimentList",
    "FactorialAnswer",
    "Finding",
    "Health",
    "Lease",
    "Leases",
    "ListedExperiment",
    "ManyArmsAnswer",
    "Problem",
    "Recommendation",
    "RefusedAssignment",
    "RefusedReward",
    "Released",
    "ReplayAnswer",
    "RewardStatus",
    "RewardStatuses",
    "SettingsAnswer",
    "Totals",
    "Up",
]

State = Literal["draft", "running", "paused", "stopped", "archived"]


class Answered(BaseModel):
    """Something that is answered."""

    model_config = ConfigDict(extra="forbid")


class Problem(Answered):
    """An error, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    request_id: str


class Up(Answered):
    """The service or its storage answers."""

    status: Literal["ok"]


class ArmsAnswer(Answered):
    """The variants and their features."""

    names: list[str]
    feature_names: list[str]
    features: list[list[float]]


class FactorialAnswer(Answered):
    """Very many variants: all combinations of levels; each factor with its levels, in order."""

    factorial: list[tuple[str, list[str]]]
    interactions: int
    constant: bool


class BundlesAnswer(Answered):
    """Very many variants: all bundles of so many of the items."""

    bundles: list[str]
    size: int
    interactions: int


class ManyArmsAnswer(Answered):
    """Very many variants that were given as a table, which is not repeated."""

    count: int
    feature_names: list[str]


class SettingsAnswer(Answered):
    """What an experiment was created with."""

    arms: ArmsAnswer | FactorialAnswer | BundlesAnswer | ManyArmsAnswer
    policy: dict[str, Any]
    budget: int
    seed: int
    direction: Literal["maximize", "minimize"]
    reward_range: list[float] | None
    reward_window: float | None
    missing: Literal["zero", "drop", "fail"]
    sticky: Literal["unit", "none"]
    control: dict[str, float]
    min_share: dict[str, float]


class Totals(Answered):
    """Of all variants: how many there are and were handed out, assignments and rewards."""

    variants: int
    handed_out: int
    assigned: int
    rewarded: int


class ExperimentAnswer(Answered):
    """An experiment and where it stands.

    Counts are by variant; of very many variants (more than 4,096) those that were handed out most
    often, at most 500. Then indices gives the position of each of these, counted from 0; it is
    null where counts are of all variants. Totals are always of all.
    """

    name: str
    state: State
    created: datetime
    settings: SettingsAnswer
    assigned: dict[str, int]
    rewarded: dict[str, int]
    indices: dict[str, int] | None
    totals: Totals
    segments: int
    observed: int
    leased: int


class CreatedExperiment(ExperimentAnswer):
    """An experiment that is new, and what its settings may bring about unmeant."""

    warnings: list[str]


class ListedExperiment(Answered):
    """An experiment in short; arms is their number."""

    name: str
    state: State
    created: datetime
    budget: int
    policy: str
    arms: int


class ExperimentList(Answered):
    """All experiments."""

    experiments: list[ListedExperiment]


class AssignmentAnswer(Answered):
    """A variant for a unit; new: it got it just now."""

    id: str
    unit: str
    arm: str
    probability: float
    created: datetime
    new: bool


class RefusedAssignment(Answered):
    """A unit that got none, as it was sent."""

    unit: Any
    error: Problem


class Assignments(Answered):
    """One for every unit, in their order."""

    assignments: list[AssignmentAnswer | RefusedAssignment]


class RewardStatus(Answered):
    """What became of a reward; repeated: the same one was there."""

    status: Literal["stored", "repeated"]


class RefusedReward(Answered):
    """A reward that was not stored."""

    error: Problem


class RewardStatuses(Answered):
    """One for every reward, in their order."""

    rewards: list[RewardStatus | RefusedReward]


class Lease(Answered):
    """Positions start to stop - 1 of a segment; until is in microseconds since 1970.

    Arms are the names that weights are of; indices gives their positions among all variants,
    counted from 0, and is null if they are all variants.
    """

    id: int
    tag: str
    seed: int
    arms: list[str]
    indices: list[int] | None
    segment: int
    weights: list[float]
    rounds: int
    order: str
    block: int
    start: int
    stop: int
    until: int


class Leases(Answered):
    """Some leases."""

    leases: list[Lease]


class Released(Answered):
    """How many positions went back."""

    released: int


class Allocation(Answered):
    """What is handed out now, with which shares; played: how many variants have one above 0.

    Of very many variants at most 500 have their weights told, the largest.
    """

    segment: int
    policy_version: int
    weights: dict[str, float]
    played: int
    rounds: int
    order: str
    block: int


class ArmEstimate(Answered):
    """What is known of a variant; null for what is not. Its index counts from 0."""

    name: str
    index: int
    estimate: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    gap: float | None
    gap_low: float | None
    gap_high: float | None


class Recommendation(Answered):
    """The best variant so far, how surely, and on which assumption.

    Of very many variants the arms are a short list, and others counts further ones that cannot be
    ruled out; plausible names those on the list. Statements hold over all variants.
    """

    arm: str
    sure: bool
    level: float
    anytime: bool
    method: str
    assumption: str
    rewards: int
    missing: int
    plausible: list[str]
    others: int
    variants: int
    arms: list[ArmEstimate]


class Finding(Answered):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warn", "fail"]
    p_value: float | None
    explanation: str
    advice: str


class Health(Answered):
    """Whether the log can be trusted."""

    status: Literal["ok", "warn", "fail"]
    findings: list[Finding]


class Drift(Answered):
    """What every period said, and whether periods differ by more than noise.

    Of very many variants the names are a short list; others counts those that are not on it.
    Averages are over all.
    """

    names: list[str]
    periods: list[str]
    rounds: list[int]
    best: str
    estimates: list[list[float | None]]
    errors: list[list[float | None]]
    intervals: list[list[list[float | None]]]
    gaps: list[list[float | None]]
    gap_errors: list[list[float | None]]
    leaders: list[str]
    gap_p_value: float | None
    level_p_value: float | None
    arm_p_values: list[float | None]
    level: float
    method: str
    averages: list[float | None]
    others: int
    gaps_move: bool
    level_moves: bool
    verdict: str


class ReplayAnswer(Answered):
    """Whether the log leads to what is stored."""

    agrees: bool
    assignments: int
    rewards: int
    segments: int
    differences: list[str]
