"""What answers about results look like: verdict, health, drift, replay; see `answered`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from steadyarm.service.answered import Answered

__all__ = [
    "Allocation",
    "ArmEstimate",
    "Drift",
    "Finding",
    "Health",
    "Recommendation",
    "ReplayAnswer",
]


class Allocation(Answered):
    """What is handed out now, with which shares; played: how many variants have one above 0.

    Of very many variants at most 500 have their weights told, the largest.
    """

    segment: int = Field(description="its number, counted from 0")
    policy_version: int = Field(
        description="segments that the policy had learned from when this one was opened"
    )
    weights: dict[str, float] = Field(description="the share of each variant")
    played: int = Field(description="variants with a share above 0")
    rounds: int = Field(description="positions that the segment has")
    order: str = Field(description="iid, shuffled or blocks: how its variants are drawn")
    block: int = Field(description="positions in a block, if order is blocks")


class ArmEstimate(Answered):
    """What is known of a variant; null for what is not. Its index counts from 0."""

    name: str = Field(description="of the variant")
    index: int = Field(description="its position among all variants")
    estimate: float | None = Field(description="of its mean reward over the whole test")
    standard_error: float | None = Field(description="of the estimate")
    low: float | None = Field(description="where the interval of the estimate begins")
    high: float | None = Field(description="where it ends")
    gap: float | None = Field(description="by how much the recommended variant is better")
    gap_low: float | None = Field(description="where the interval of the gap begins")
    gap_high: float | None = Field(description="where it ends")


class Recommendation(Answered):
    """The best variant so far, how surely, and on which assumption.

    Of very many variants the arms are a short list, and others counts further ones that cannot be
    ruled out; plausible names those on the list. Statements hold over all variants.
    """

    arm: str = Field(description="the recommended variant's name")
    sure: bool = Field(
        description="whether it is the declared winner, which is wrong in at most one minus level "
        "of tests, and no health check fails"
    )
    level: float = Field(
        description="probability with which intervals hold, for all variants at once"
    )
    anytime: bool = Field(
        description="whether intervals hold at all looks, or at one look at the end"
    )
    method: str = Field(description="how intervals were found")
    assumption: str = Field(description="what must be true for them, in one line")
    rewards: int = Field(description="rewards that this rests on")
    missing: int = Field(
        description="judged visits whose reward never came; they count as declared"
    )
    judged: int = Field(
        description="visits that this rests on: the first ones, up to those whose rewards may "
        "still come"
    )
    waiting: int = Field(description="newer visits that are not judged yet")
    pending: int = Field(description="rewards of these that may still come")
    until: str | None = Field(description="when the last judged visit was assigned; null if none")
    unhealthy: str = Field(
        description="why nothing must be decided yet: the health checks that fail; empty if none"
    )
    caution: str = Field(description="what to keep in mind about the intervals; empty if nothing")
    plausible: list[str] = Field(
        description="names of the variants that cannot be ruled out as the best"
    )
    others: int = Field(description="further ones that cannot be ruled out")
    variants: int = Field(description="how many there are")
    arms: list[ArmEstimate] = Field(description="what is known of each")


class Finding(Answered):
    """One thing that was looked at."""

    name: str = Field(description="what was looked at")
    status: Literal["ok", "warn", "fail"] = Field(
        description="warn: look at it; fail: do not trust results before it is explained"
    )
    p_value: float | None = Field(description="of the test behind it; null if there is none")
    explanation: str = Field(description="what was found, in one sentence")
    advice: str = Field(description="what to do; empty if nothing")


class Health(Answered):
    """Whether the log can be trusted."""

    status: Literal["ok", "warn", "fail"] = Field(description="the worst of the findings")
    findings: list[Finding] = Field(description="all things that were looked at")


class Drift(Answered):
    """What every period said, and whether periods differ by more than noise.

    Of very many variants the names are a short list; others counts those that are not on it.
    Averages are over all.
    """

    names: list[str] = Field(description="of the variants that rows of numbers are of")
    periods: list[str] = Field(description="labels of the periods, in order")
    rounds: list[int] = Field(description="rounds in each period")
    best: str = Field(description="the variant with the best estimate over the whole test")
    estimates: list[list[float | None]] = Field(
        description="by period and variant: the mean reward"
    )
    errors: list[list[float | None]] = Field(description="standard errors of these")
    intervals: list[list[list[float | None]]] = Field(
        description="by period and variant: both ends; they hold for all at once"
    )
    gaps: list[list[float | None]] = Field(
        description="by period and variant: by how much best beats it; negative where it loses"
    )
    gap_errors: list[list[float | None]] = Field(description="standard errors of these")
    leaders: list[str] = Field(description="the variant with the best estimate in each period")
    gap_p_value: float | None = Field(
        description="how likely gaps vary so much if they do not move; null if unknown"
    )
    level_p_value: float | None = Field(description="the same for the average over all variants")
    arm_p_values: list[float | None] = Field(
        description="the same for each variant's distance from the average"
    )
    level: float = Field(
        description="of the intervals; 1 minus the error probability of gaps_move and level_moves"
    )
    method: str = Field(description="where standard errors come from: lists, rounds or pieces")
    averages: list[float | None] = Field(description="by period: the average over all variants")
    others: int = Field(description="variants that are not among names")
    looks: list[float] | None = Field(
        description="shares of the planned visits at which drift was tested; null for one test"
    )
    gaps_move: bool = Field(
        description="whether differences between variants were seen to change: this is dangerous"
    )
    level_moves: bool = Field(
        description="whether the average was seen to change: harmless by itself"
    )
    verdict: str = Field(description="what it means, in plain sentences")


class ReplayAnswer(Answered):
    """Whether the log leads to what is stored."""

    agrees: bool = Field(description="whether all is the same to the bit")
    assignments: int = Field(description="computed anew")
    rewards: int = Field(description="computed anew")
    segments: int = Field(description="computed anew")
    differences: list[str] = Field(description="what disagrees, in words, the first twenty")
    corrections: int = Field(
        description="changes by hand; for what the policy decided before, they are undone"
    )
