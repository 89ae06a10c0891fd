"""What requests may say; they are checked with these, strictly.

Descriptions follow the word "expected" when a value is refused. Long lists are refused at their
first fault: a list of all of them could be very long.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, WithJsonSchema, model_validator

from steadyarm.live.experiment import LONGEST

__all__ = [
    "Allocation",
    "Answered",
    "ArmEstimate",
    "ArmsAnswer",
    "Asked",
    "AssignmentAnswer",
    "Assignments",
    "AuditEntryAnswer",
    "AuditLog",
    "AuditQuery",
    "BundlesAnswer",
    "CorrectedAnswer",
    "Corrections",
    "CreatedExperiment",
    "Drift",
    "DriftQuery",
    "ExperimentAnswer",
    "ExperimentList",
    "ExportQuery",
    "FactorialAnswer",
    "Finding",
    "Health",
    "Lease",
    "Leases",
    "ListedExperiment",
    "ManyArmsAnswer",
    "NewAssignment",
    "NewAssignments",
    "NewCorrection",
    "NewExperiment",
    "NewLease",
    "NewReward",
    "NewRewards",
    "NoQuery",
    "Problem",
    "Query",
    "Recommendation",
    "RecommendationQuery",
    "RefusedAssignment",
    "RefusedReward",
    "Released",
    "ReplayAnswer",
    "RewardStatus",
    "RewardStatuses",
    "SettingsAnswer",
    "Totals",
    "Up",
    "Used",
    "UsedPosition",
]

# What requests may say; they are checked with these, strictly.


TEXT = f"a text of 1 to {LONGEST} characters, such as a visitor's id"
LEVEL = "a number between 0 and 1: the probability with which intervals hold"
Names = Annotated[list[str], Field(max_length=2000)]  # each has a row and a column of its own
Share = Annotated[float, Field(ge=0, lt=1)]
Unit = Annotated[str, Field(min_length=1, max_length=LONGEST, pattern=r"^[^\u0000]*$")]
Id = Annotated[str, Field(min_length=1, max_length=LONGEST)]


class Asked(BaseModel):
    """Something that a request says."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class NewExperiment(Asked):
    """An experiment to be created; see `create_from_description`."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="up to 100 letters, digits, dots, hyphens and underscores, the first a letter "
        "or digit",
        examples=["checkout"],
    )
    arms: Names | dict[str, Any] = Field(
        description="a list of up to 2,000 names or an object with one of one_hot, factorial, "
        "bundles, features",
        examples=[["A", "B", "C"]],
    )
    policy: str | dict[str, Any] = Field(
        "steady",
        description="a name such as steady, or an object with its name and settings",
        examples=["steady"],
    )
    budget: int = Field(
        ge=1,
        lt=2**53,
        description="a whole number of at least 1: how many assignments are handed out in all",
        examples=[10000],
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="a whole number from 0 to 2**63 - 1, which makes the whole test reproducible; "
        "one is drawn if there is none",
    )
    direction: Literal["maximize", "minimize"] = Field(
        "maximize", description="maximize or minimize: whether large or small rewards are good"
    )
    reward_range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="a list of the least and the largest reward that can occur; others are refused",
    )
    reward_window: float | str | None = Field(
        None,
        description="seconds after an assignment in which its reward counts, or a text such "
        "as 90m, 12h, 7d",
    )
    reward_grace: float | str | None = Field(
        None,
        description="seconds after its window in which a reward that happened in time may still "
        "arrive, or a text such as 90m, 12h, 7d; by default the window again, at most seven days",
    )
    missing: Literal["zero", "drop", "fail"] | None = Field(
        None,
        description="zero, drop or fail: what a reward that never comes counts as; may be left out "
        "only where large rewards are good and reward_range contains 0",
    )
    sticky: Literal["unit", "none"] = Field(
        "unit",
        description="unit if a unit keeps its first variant, none if every request is drawn anew",
    )
    control: dict[str, Share] | None = Field(
        None,
        description="an object with one variant and the share that it always gets, from 0 to "
        "below 1",
    )
    min_share: dict[str, Share] | Share | None = Field(
        None,
        description="a share from 0 to below 1 for all variants, or an object with some of them "
        "and their shares",
    )
    start: bool = Field(True, description="true or false: whether it hands out at once")
    load_if_exists: bool = Field(
        False, description="true or false: whether one with the same settings is fine, too"
    )


class NewAssignment(Asked):
    """Who gets a variant."""

    unit: Unit | None = Field(
        None, description=f"{TEXT}; needed unless the experiment has sticky: none"
    )


class NewAssignments(Asked):
    """Who get variants."""

    units: list[Any] = Field(
        description="a list of units; where one is no text an error is answered in its place",
        examples=[["visitor 1", "visitor 2"]],
    )


SENT = (
    "a time such as 2025-01-31T12:00:00Z: when the request was sent by the sender's clock, which "
    "then need not agree with the service's; without it every at is taken as it is"
)


class NewReward(Asked):
    """The reward of an assignment, by its id or its unit."""

    assignment: Id | None = Field(None, description="the id that the assignment was answered with")
    unit: Unit | None = Field(None, description=TEXT)
    reward: float = Field(description="a number: what the assignment brought")
    at: str | None = Field(
        None,
        description="a time such as 2025-01-31T12:00:00Z: when it happened, if not just now; it "
        "counts by this time if it arrives within the reward_grace",
        json_schema_extra={"format": "date-time"},
    )
    sent: str | None = Field(None, description=SENT, json_schema_extra={"format": "date-time"})

    @model_validator(mode="after")
    def _one_of_them(self) -> NewReward:
        if (self.assignment is None) == (self.unit is None):
            both = self.unit is not None
            raise ValueError(
                "there are both assignment and unit; give one of them"
                if both
                else "whose reward it is, is missing; give assignment or unit"
            )
        return self


class NewRewards(Asked):
    """Rewards of many assignments."""

    rewards: list[Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/NewReward"})]] = (
        Field(description="a list of rewards; where one is wrong an error is answered in its place")
    )
    sent: str | None = Field(None, description=SENT, json_schema_extra={"format": "date-time"})


class NewLease(Asked):
    """Positions to hand out without asking for each."""

    positions: int = Field(1000, ge=1, description="a whole number of at least 1: how many at most")
    seconds: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="a number above 0 and up to 3600: for how long they may be handed out",
    )


class UsedPosition(Asked):
    """One position of a lease that was handed out."""

    position: int = Field(
        ge=0, lt=2**32, description="a whole number, from start to before stop of the lease"
    )
    unit: str = Field(description=TEXT)
    created: str = Field(
        description="a time such as 2025-01-31T12:00:00Z: when it was handed out",
        json_schema_extra={"format": "date-time"},
    )


class Used(Asked):
    """What was handed out from a lease."""

    used: Annotated[list[UsedPosition], FailFast()] = Field(
        description="a list of positions that were handed out"
    )


TIME = "a time such as 2025-01-31T12:00:00Z"


class NewCorrection(Asked):
    """What is to be corrected, and why."""

    kind: Literal["void", "correct", "exclude", "include", "erase"] = Field(
        description="void a reward, correct it to another value, exclude the visits of a unit or "
        "of a period, include what was excluded, or erase the identity of a unit"
    )
    assignment: Id | None = Field(
        None, description="to void or correct: the id that the assignment was answered with"
    )
    unit: Unit | None = Field(
        None, description=f"{TEXT}: who is excluded or erased, or whose reward it is"
    )
    reward: float | None = Field(None, description="to correct: the right number")
    since: str | None = Field(
        None,
        description=f"to exclude a period: {TIME}, from which on visits are left out",
        json_schema_extra={"format": "date-time"},
    )
    until: str | None = Field(
        None,
        description=f"to exclude a period: {TIME}, before which visits are left out; not later "
        "than now",
        json_schema_extra={"format": "date-time"},
    )
    entry: int | None = Field(
        None,
        ge=1,
        lt=2**53,
        description="to include: the entry of the audit log that excluded what counts again",
    )
    reason: str = Field(
        "",
        max_length=1000,
        pattern=r"^[^\u0000]*$",
        description="a text of up to 1000 characters that says why, for those who read the audit "
        "log; it stays for ever, so it names no unit. Needed but to erase",
        examples=["a monitor of our own"],
    )


class Query(BaseModel):
    """What stands behind the question mark of an address."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class NoQuery(Query):
    """Nothing."""


class RecommendationQuery(Query):
    """How sure, and whether it is looked at more than once."""

    level: float = Field(0.95, gt=0, lt=1, description=LEVEL)
    anytime: bool | None = Field(
        None,
        description="true or false: whether intervals hold at all looks, or at one look at the "
        "end; by default at all looks until the test has ended",
    )


class DriftQuery(Query):
    """In how many shares, and how sure."""

    periods: int = Field(
        4,
        ge=1,
        le=1000,
        description="a whole number from 1 to 1000: in how many equal shares the test is cut",
    )
    level: float = Field(0.95, gt=0, lt=1, description=LEVEL)


class AuditQuery(Query):
    """Which entries of the audit log."""

    after: int = Field(
        0, ge=0, lt=2**53, description="a whole number: the id of the last entry that you have"
    )
    most: int = Field(
        1000, ge=1, le=10000, description="a whole number from 1 to 10000: how many at most"
    )
    experiment: str | None = Field(
        None,
        max_length=100,
        pattern=r"^[^\u0000]*$",
        description="the name of an experiment, for entries about it alone",
    )


class ExportQuery(Query):
    """As which kind of file."""

    format: Literal["csv", "parquet"] = Field("csv", description="csv or parquet: the kind of file")


# What answers look like: experiments, traffic and leases; `concluded` has those about results.


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


# What answers about results look like: verdict, health, drift, replay; see `answered`.


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
