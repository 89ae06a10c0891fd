"""What answers look like: experiments, traffic and leases; `concluded` has those about results.

They document what handlers send and check nothing at run time; tests compare the two.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Answered",
    "ArmsAnswer",
    "AssignmentAnswer",
    "Assignments",
    "AuditEntryAnswer",
    "AuditLog",
    "BundlesAnswer",
    "CorrectedAnswer",
    "Corrections",
    "CreatedExperiment",
    "ExperimentAnswer",
    "ExperimentList",
    "FactorialAnswer",
    "Lease",
    "Leases",
    "ListedExperiment",
    "ManyArmsAnswer",
    "Problem",
    "RefusedAssignment",
    "RefusedReward",
    "Released",
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

    type: str = Field(description="the kind of problem, after urn:steadyarm:problem:")
    title: str = Field(description="the kind in words")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what was given, and what was expected")
    hint: str | None = Field(None, description="what to do; left out where there is nothing to say")
    request_id: str = Field(description="that of X-Request-ID, to be found in the service's log")


class Up(Answered):
    """The service or its storage answers."""

    status: Literal["ok"] = Field(
        description="always ok; what is not well is answered with an error"
    )


class ArmsAnswer(Answered):
    """The variants and their features."""

    names: list[str] = Field(description="of the variants, in order")
    feature_names: list[str] = Field(description="of the features, in order")
    features: list[list[float]] = Field(
        description="a row for each variant, a number for each feature"
    )


class FactorialAnswer(Answered):
    """Very many variants: all combinations of levels; each factor with its levels, in order."""

    factorial: list[tuple[str, list[str]]] = Field(
        description="each factor with its levels, in order"
    )
    interactions: int = Field(description="1 for main effects only, 2 adds pairs, and so on")
    constant: bool = Field(description="whether the first feature is the constant one")


class BundlesAnswer(Answered):
    """Very many variants: all bundles of so many of the items."""

    bundles: list[str] = Field(description="names of the items")
    size: int = Field(description="how many of them make a bundle")
    interactions: int = Field(
        description="1 for what each item adds, 2 adds what pairs of them do, and so on"
    )


class ManyArmsAnswer(Answered):
    """Very many variants that were given as a table, which is not repeated."""

    count: int = Field(description="how many variants there are")
    feature_names: list[str] = Field(description="of the features, in order")


class SettingsAnswer(Answered):
    """What an experiment was created with."""

    arms: ArmsAnswer | FactorialAnswer | BundlesAnswer | ManyArmsAnswer = Field(
        description="the variants; of very many the recipe or their number"
    )
    policy: dict[str, Any] = Field(
        description="how they are chosen: its name and all of its settings"
    )
    budget: int = Field(description="how many assignments are handed out in all")
    seed: int = Field(description="makes the whole test reproducible")
    direction: Literal["maximize", "minimize"] = Field(
        description="whether large or small rewards are good"
    )
    reward_range: list[float] | None = Field(
        description="the least and the largest reward that are accepted; null for any"
    )
    reward_window: float | None = Field(
        description="seconds after an assignment in which its reward counts; null for ever"
    )
    reward_grace: float | None = Field(
        description="seconds after its window in which a reward may still arrive; null without one"
    )
    missing: Literal["zero", "drop", "fail"] = Field(
        description="what a reward that never came counts as; fail for no verdict without it"
    )
    sticky: Literal["unit", "none"] = Field(
        description="unit if a unit keeps its first variant, none if every request is drawn anew"
    )
    control: dict[str, float] = Field(
        description="one variant and the share that it always gets; empty if there is none"
    )
    min_share: dict[str, float] = Field(
        description="by variant, the share beyond what the policy gives; empty if there is none"
    )


class Totals(Answered):
    """Of all variants: how many there are and were handed out, assignments and rewards."""

    variants: int = Field(description="how many there are")
    handed_out: int = Field(description="variants that were handed out at least once")
    assigned: int = Field(description="assignments")
    rewarded: int = Field(description="assignments that have a reward")
    excluded: int = Field(description="assignments that were excluded; they count nowhere else")


class ExperimentAnswer(Answered):
    """An experiment and where it stands.

    Counts are by variant; of very many variants (more than 4,096) those that were handed out most
    often, at most 500. Then indices gives the position of each of these, counted from 0; it is
    null where counts are of all variants. Totals are always of all.
    """

    name: str = Field(description="of the experiment")
    state: State = Field(description="where it is between draft and archived")
    created: datetime = Field(description="when it was created, in UTC")
    settings: SettingsAnswer = Field(description="what it was created with")
    assigned: dict[str, int] = Field(description="assignments by variant")
    rewarded: dict[str, int] = Field(description="rewards by variant")
    indices: dict[str, int] | None = Field(
        description="position of each variant counted here; null if these are all"
    )
    totals: Totals = Field(description="of all variants")
    segments: int = Field(description="segments that were opened")
    observed: int = Field(description="segments that the policy has learned from")
    leased: int = Field(description="positions that are leased and not yet used")


class CreatedExperiment(ExperimentAnswer):
    """An experiment that is new, and what its settings may bring about unmeant."""

    warnings: list[str] = Field(description="sentences; none if all is well")


class ListedExperiment(Answered):
    """An experiment in short; arms is their number."""

    name: str = Field(description="of the experiment")
    state: State = Field(description="where it is between draft and archived")
    created: datetime = Field(description="when it was created, in UTC")
    budget: int = Field(description="how many assignments are handed out in all")
    policy: str = Field(description="the name of the policy")
    arms: int = Field(description="how many variants it has")


class ExperimentList(Answered):
    """All experiments."""

    experiments: list[ListedExperiment] = Field(description="in the order of their creation")


class AssignmentAnswer(Answered):
    """A variant for a unit; new: it got it just now."""

    id: str = Field(description="send it with the reward")
    unit: str = Field(description="who got the variant")
    arm: str = Field(description="the variant's name")
    probability: float = Field(description="with which it was drawn")
    created: datetime = Field(description="when the unit got it first, in UTC")
    new: bool = Field(description="false if the unit had it already")


class RefusedAssignment(Answered):
    """A unit that got none, as it was sent."""

    unit: Any = Field(description="as it was sent")
    error: Problem = Field(description="why it got none")


class Assignments(Answered):
    """One for every unit, in their order."""

    assignments: list[AssignmentAnswer | RefusedAssignment] = Field(
        description="one for every unit, in their order"
    )


class RewardStatus(Answered):
    """What became of a reward; repeated: the same one was there."""

    status: Literal["stored", "repeated"] = Field(
        description="repeated if the same reward was there already, else stored"
    )


class RefusedReward(Answered):
    """A reward that was not stored."""

    error: Problem = Field(description="why it was not stored")


class RewardStatuses(Answered):
    """One for every reward, in their order."""

    rewards: list[RewardStatus | RefusedReward] = Field(
        description="one for every reward, in their order"
    )


class Lease(Answered):
    """Positions start to stop - 1 of a segment, and all that is needed to know their variants."""

    id: int = Field(description="to report with what was handed out, and to give the rest back")
    tag: str = Field(description="with which ids of the experiment's assignments begin")
    seed: int = Field(description="of the experiment")
    arms: list[str] = Field(description="names of the variants that weights are of")
    indices: list[int] | None = Field(
        description="their positions among all variants, from 0; null if these are all"
    )
    segment: int = Field(description="the number of the segment, counted from 0")
    weights: list[float] = Field(description="the probability of each of these variants")
    rounds: int = Field(description="positions that the segment has")
    order: str = Field(description="iid, shuffled or blocks: how its variants are drawn")
    block: int = Field(description="positions in a block, if order is blocks")
    start: int = Field(description="the first position of the lease")
    stop: int = Field(description="the first position after it")
    until: int = Field(
        description="microseconds since 1970 up to which they may be handed out; "
        "report them within a minute after that"
    )


class Leases(Answered):
    """Some leases."""

    leases: list[Lease] = Field(
        description="one for each run of positions; together at most as many as asked for"
    )


class Released(Answered):
    """How many positions went back."""

    released: int = Field(description="positions that went back")


class CorrectedAnswer(Answered):
    """What a correction did."""

    entry: int = Field(description="its id in the audit log")
    assignments: int = Field(description="how many assignments it touched")


class AuditEntryAnswer(Answered):
    """One entry of the audit log."""

    id: int = Field(description="entries have rising ids, some of which may be missing")
    created: datetime = Field(description="when it was done, in UTC")
    author: str = Field(description="the name of the token or of the user; empty if not known")
    action: str = Field(description="what was done, such as experiment.paused or reward.voided")
    experiment: str | None = Field(description="its name; null for what concerns the whole storage")
    detail: dict[str, Any] = Field(
        description="further facts: the reason of a correction, how many assignments it touched, "
        "the period; never a unit"
    )


class AuditLog(Answered):
    """Entries of the audit log."""

    entries: list[AuditEntryAnswer] = Field(description="in the order of their ids")


class Corrections(Answered):
    """All corrections of an experiment."""

    corrections: list[AuditEntryAnswer] = Field(description="oldest first")
