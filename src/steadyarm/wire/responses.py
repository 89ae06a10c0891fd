"""Responses of the service, which the command line also prints as JSON.

Each response has attributes of an object that `Experiment` returns. The client returns responses
as they are. It ignores unknown fields, so it may be older than the service. JSON has no infinite
numbers: null takes their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import msgspec
import numpy as np
from msgspec import Meta, Struct

from steadyarm.arms.recipes import recipe_from_dict
from steadyarm.errors import (
    BudgetSpentError,
    ExperimentExistsError,
    InvalidInputError,
    RepeatedRewardError,
    RewardsPendingError,
    RewardTooLateError,
    SteadyArmError,
    StorageError,
    UnknownAssignmentError,
    UnknownExperimentError,
    VisitsPendingError,
    WrongStateError,
)
from steadyarm.inference import DriftReport, Finding
from steadyarm.inference.evidence import json_ready
from steadyarm.live.after_test import AfterTest, RollOut
from steadyarm.live.assigner import LiveAssignment, ReportStatus
from steadyarm.live.breakdowns import Breakdown, LevelResult
from steadyarm.live.estimates import Estimates, MetricResult, Safety
from steadyarm.live.experiment import Experiment
from steadyarm.live.settings import After, Missing, Settings, Sticky, values_of, variants_in
from steadyarm.live.stopping import InterimResult
from steadyarm.live.verdict import Decision, Verdict
from steadyarm.segments import Direction
from steadyarm.storages.records import (
    AuditEntry,
    CorrectionResult,
    ExperimentHead,
    ExperimentState,
    SegmentRecord,
    to_datetime,
)

MOST_SHOWN = 500  # variants of a large set
REF = "#/components/schemas/{name}"
SHARED = (CorrectionResult, Decision, Finding, InterimResult)  # results that are sent as they are
PROBLEM = "urn:steadyarm:problem:"
PROBLEMS: dict[str, type[SteadyArmError]] = {
    "invalid-input": InvalidInputError,
    "unknown-experiment": UnknownExperimentError,
    "unknown-assignment": UnknownAssignmentError,
    "experiment-exists": ExperimentExistsError,
    "wrong-state": WrongStateError,
    "budget-spent": BudgetSpentError,
    "visits-pending": VisitsPendingError,  # before the kind that it is one of
    "rewards-pending": RewardsPendingError,
    "reward-conflict": RepeatedRewardError,
    "reward-too-late": RewardTooLateError,
    "storage-unavailable": StorageError,
}

Time = Annotated[datetime, Meta(tz=True)]
Number = float | None


def one_of(*names: str) -> Meta:
    """A schema that msgspec cannot state: one of these structs, without a tag."""
    return Meta(extra_json_schema={"anyOf": [{"$ref": REF.format(name=name)} for name in names]})


class Response(Struct):
    """A response to a request."""

    @classmethod
    def read(cls, value: Any, **fields: Any) -> Self:
        """The response with the attributes of a value that have the names of its fields.

        fields : those that are not such attributes
        """
        names = set(cls.__struct_fields__) - fields.keys()
        attributes = {name: getattr(value, name) for name in names}
        return msgspec.convert(attributes | fields, cls, from_attributes=True)


class Problem(Response, omit_defaults=True):
    """An error as RFC 9457 describes it.

    type : the kind of problem, after urn:steadyarm:problem:
    title : the kind in words
    status : the HTTP status
    detail : what was given, and what was expected
    request_id : that of X-Request-ID, which the service's log has, too
    hint : what to do; left out if there is nothing to say
    field : which field or setting is wrong, such as budget; left out if it is not a single one
    given : the value that was refused, as text if it is long; left out if it is not a single one
    expected : what the value should be; left out where detail says it in other words
    experiments : that measure an event and did not count it, at most 20; left out otherwise
    """

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    hint: str | None = None
    field: str | None = None
    given: Any = None
    expected: str | None = None
    experiments: list[RefusedEvent] | None = None


class Up(Response):
    """The service or its storage is well.

    status : always ok; anything else is answered with an error
    """

    status: Literal["ok"]


# Experiments


class ArmsAnswer(Response):
    """The variants and their features.

    names : the names of the variants, in order
    feature_names : the names of the features, in order
    features : a row for each variant, a number for each feature
    """

    names: list[str]
    feature_names: list[str]
    features: list[list[float]]


class FactorialAnswer(Response):
    """A large set of variants: all combinations of the levels of some factors.

    factorial : each factor with its levels, in order
    interactions : 1 for main effects only, 2 adds pairs, and so on
    constant : whether the first feature is the constant one
    """

    factorial: list[tuple[str, list[str]]]
    interactions: int
    constant: bool


class BundlesAnswer(Response):
    """A large set of variants: all bundles of a number of items.

    bundles : names of the items
    size : how many of them make a bundle
    interactions : 1 for what each item adds, 2 adds what pairs of them do, and so on
    """

    bundles: list[str]
    size: int
    interactions: int


class ManyArmsAnswer(Response):
    """A large set of variants that was given as a table, which is not repeated.

    count : the number of variants
    feature_names : the names of the features, in order
    """

    count: int
    feature_names: list[str]


class SettingsAnswer(Response):
    """The settings of an experiment.

    arms : the variants; their recipe or number if they are a large set
    policy : how variants are chosen: the policy's name and all of its settings
    budget : how many assignments are made in all
    seed : makes the whole test reproducible
    direction : whether large or small rewards are good
    reward_range : the least and the largest reward that are accepted; null for any
    reward_window : seconds after an assignment in which its reward counts; null for ever
    reward_grace : seconds after its window in which a reward may still arrive; null without one
    missing : what a reward that never came counts as; fail for no verdict without it
    sticky : unit if a unit keeps its first variant, none if a variant is drawn for every request
    control : the variant that others are compared with; null if there is none
    control_share : the share that the control always gets; null if the policy decides
    min_share : by variant, the share beyond what the policy gives; empty if there is none
    attributes : by attribute of units, the levels that were declared; empty if there is none
    metrics : what is measured beside the reward, or what the reward is; window and grace are in
        seconds
    covariates : names of the numbers that are known of units; empty if there is none
    stop : when sure if the test stops itself, recommend if it only says so; null if it is played to
        its end
    looks : interim analyses: daily, weekly, or their number; null for other tests
    spending : how the error probability is spent over the looks; null for others
    futility : smallest difference that matters, in units of the reward; null if none was given
    values : by variant, what it stands for; null if that follows from the variants: factors with
        their levels, the items of a bundle, or the name
    bulk : whether a bulk evaluation of flags assigns variants
    traffic : share of all units that take part in the test
    layer : its tests have no unit in common; null for none
    after : show if units that come when the test is over see a variant, refuse if they get an error
    about : description, hypothesis, owner and tags, as far as they were given
    """

    arms: Annotated[Any, one_of("ArmsAnswer", "FactorialAnswer", "BundlesAnswer", "ManyArmsAnswer")]
    policy: dict[str, Any]
    budget: int
    seed: int
    direction: Direction
    reward_range: list[float] | None
    reward_window: float | None
    reward_grace: float | None
    missing: Missing
    sticky: Sticky
    control: str | None
    control_share: float | None
    min_share: dict[str, float]
    attributes: dict[str, list[str]]
    metrics: list[dict[str, Any]]
    covariates: list[str]
    stop: str | None
    looks: int | str | None
    spending: str | None
    futility: float | None
    values: dict[str, Any] | None
    bulk: bool
    traffic: float
    layer: str | None
    after: After
    about: dict[str, Any]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The settings without the coordinates of the variants, which follow from the features."""
        arms = settings.arms
        known: dict[str, Any] = {"count": arms.size, "feature_names": arms.feature_names}
        if not arms.large or arms.recipe is not None:
            known = {key: value for key, value in arms.to_dict().items() if key != "span"}
        found = settings.to_dict(known) | {
            "metrics": [metric.plain() for metric in settings.metrics],  # declared ones alone
        }
        return msgspec.convert(json_ready(found), cls)

    @property
    def names(self) -> Sequence[str]:
        """The names of all variants; empty if only the service has them."""
        recipe = recipe_from_dict(self.arms.get("recipe", self.arms))
        return tuple(self.arms.get("names", ())) if recipe is None else recipe.names

    @property
    def variant_values(self) -> Sequence[Any]:
        """The values of all variants; empty if only the service has their names."""
        return values_of(self.names, self.values)


class Totals(Response):
    """Counts over all variants.

    variants : the number of variants
    played : variants that were assigned at least once
    assigned : assignments
    rewarded : assignments that have a reward
    excluded : assignments that were excluded; they count nowhere else
    """

    variants: int
    played: int
    assigned: int
    rewarded: int
    excluded: int


class RollOutAnswer(Response):
    """A variant that units get outside of the test.

    variant : its name
    share : the share of all units that it reaches
    since : when that began, in UTC
    """

    variant: str
    share: float
    since: Time

    @classmethod
    def of(cls, roll_out: RollOut) -> Self:
        """The response for stored values."""
        return cls.read(roll_out, since=to_datetime(roll_out.since))


class AfterTestAnswer(Response):
    """What units outside of the test see.

    default : the variant that units without one see; null before the first such unit
    reason : why it was chosen, in a sentence
    since : when it was chosen, in UTC; null before
    roll_out : the variant that is rolled out; null for none
    """

    default: str | None
    reason: str
    since: Time | None
    roll_out: RollOutAnswer | None

    @classmethod
    def of(cls, outside: AfterTest) -> Self:
        """The response for stored values."""
        since = None if outside.since is None else to_datetime(outside.since)
        shown = outside.roll_out
        roll_out = None if shown is None else RollOutAnswer.of(shown)
        return cls.read(outside, since=since, roll_out=roll_out)


class ExperimentAnswer(Response):
    """An experiment and its progress.

    Counts are by variant. In a large set (more than 4,096 variants) they are those of the at most
    500 variants that were assigned most often. Then indices gives the position of each of these,
    counted from 0; it is null where counts are of all variants. Totals are always of all.

    name : the name of the experiment
    state : where it is between draft and archived
    created : when it was created, in UTC
    settings : its settings
    assigned : assignments by variant
    rewarded : rewards by variant
    indices : position of each variant counted here; null if these are all
    totals : the totals of all variants
    segments : segments that were opened
    observed : segments that the policy has learned from
    outside : what is shown outside the test; null until it is first needed
    roll_out : the variant that was rolled out last; null if none was
    """

    name: str
    state: ExperimentState
    created: Time
    settings: SettingsAnswer
    assigned: dict[str, int]
    rewarded: dict[str, int]
    indices: dict[str, int] | None
    totals: Totals
    segments: int
    observed: int
    outside: AfterTestAnswer | None
    roll_out: RollOutAnswer | None

    @classmethod
    def of(cls, experiment: Experiment, **more: Any) -> Self:
        """An experiment as it is now."""
        status, names = experiment.status(), experiment.arms.names
        arms = range(experiment.arms.size) if status.arms is None else status.arms
        rows = list(zip(arms, status.assigned, status.rewarded, strict=True))
        if status.arms is not None:
            rows = sorted(rows, key=lambda row: (-row[1], row[0]))[:MOST_SHOWN]
        shown = {names[row[0]]: row for row in rows}  # a large set makes each name when asked
        return cls.read(
            status,
            settings=SettingsAnswer.of(experiment.settings),
            assigned={name: assigned for name, (_, assigned, _) in shown.items()},
            rewarded={name: rewarded for name, (_, _, rewarded) in shown.items()},
            indices=None if status.arms is None else {name: row[0] for name, row in shown.items()},
            totals=Totals(
                variants=experiment.arms.size,
                played=sum(count > 0 for count in status.assigned),
                assigned=status.total_assigned,
                rewarded=status.total_rewarded,
                excluded=status.excluded,
            ),
            outside=None if status.outside is None else AfterTestAnswer.of(status.outside),
            roll_out=None if status.roll_out is None else RollOutAnswer.of(status.roll_out),
            **more,
        )


class CreatedExperiment(ExperimentAnswer):
    """A new experiment, with warnings about its settings.

    warnings : sentences; empty if there is nothing to warn of
    """

    warnings: list[str]


class ListedExperiment(Response):
    """An experiment in short.

    name : the name of the experiment
    state : where it is between draft and archived
    created : when it was created, in UTC
    budget : how many assignments are made in all
    policy : the name of the policy
    arms : how many variants it has
    """

    name: str
    state: ExperimentState
    created: Time
    budget: int
    policy: str
    arms: int

    @classmethod
    def of(cls, record: ExperimentHead) -> Self:
        """A stored experiment, from its record."""
        config = record.config
        return cls.read(
            record,
            created=to_datetime(record.created),
            budget=config["budget"],
            policy=config["policy"]["name"],
            arms=variants_in(config),
        )


class ExperimentList(Response):
    """Experiments, in the order of their creation.

    experiments : the experiments of this page
    next : the cursor of the next page; null if this is the last one
    """

    experiments: list[ListedExperiment]
    next: int | None = None

    @classmethod
    def of(
        cls, records: Sequence[ExperimentHead], cursor: int = 0, limit: int | None = None
    ) -> Self:
        """Stored experiments: up to `limit` after the cursor."""
        rest = [record for record in records if record.key > cursor]
        shown = rest[:limit]
        following = shown[-1].key if len(shown) < len(rest) else None
        return cls([ListedExperiment.of(record) for record in shown], following)


# Traffic


class AssignmentAnswer(Response):
    """The variant that a unit gets.

    id : identifies the assignment when its reward is reported
    unit : who gets the variant
    arm : the variant's name
    probability : with which it was drawn; null outside of the test
    created : when the unit got it first, in UTC
    new : false if the unit had it already
    value : the value of the variant, as the experiment's settings say
    in_test : false for what is shown outside of the test: after its end, under a roll-out, or the
        control while it is paused or a draft. Its id is empty, and rewards for it count nowhere
    """

    id: str
    unit: str
    arm: str
    probability: float | None
    created: Time
    new: bool
    value: Any
    in_test: bool

    @classmethod
    def of(cls, assignment: LiveAssignment) -> Self:
        """An assignment of an experiment."""
        a, drawn = assignment, assignment.probability if assignment.in_test else None
        return cls(a.id, a.unit, a.name, drawn, a.created, a.new, a.value, a.in_test)


class RefusedAssignment(Response):
    """A unit that got no variant.

    unit : as it was sent
    error : why it got none
    """

    unit: Any
    error: Problem


class Assignments(Response):
    """Variants for many units.

    assignments : one for every unit, in their order
    """

    assignments: list[Annotated[Any, one_of("AssignmentAnswer", "RefusedAssignment")]]


class RewardStatus(Response):
    """The status of a reward.

    status : repeated if the same reward was there already, outside if it is of something that was
        shown outside of the test and counts nowhere, else stored
    """

    status: ReportStatus


class RefusedReward(Response):
    """A reward that was not stored.

    error : why it was not stored
    """

    error: Problem


class RewardStatuses(Response):
    """The statuses of many rewards.

    rewards : one for every reward, in their order
    """

    rewards: list[Annotated[Any, one_of("RewardStatus", "RefusedReward")]]


class EventStatus(Response):
    """The status of an event in one experiment.

    name : the name of the experiment
    status : repeated if the same event was there already, else stored
    """

    name: str
    status: Literal["stored", "repeated"]


class RefusedEvent(Response):
    """An experiment that did not store an event.

    name : the name of the experiment
    error : why it was not stored there; if its status is 500 or more, send the event again
    """

    name: str
    error: Problem


class EventAnswer(Response):
    """The statuses of an event.

    experiments : one for every experiment in which the unit has an assignment and that has a metric
        of this name; an event that is stored there is on disk. At least one has stored it, or may
        store it when it is sent again
    """

    experiments: list[Annotated[Any, one_of("EventStatus", "RefusedEvent")]]


class EventAnswers(Response):
    """The statuses of many events.

    events : one for every event, in their order; an error in place of one that was not counted
    """

    events: list[Annotated[Any, one_of("EventAnswer", "RefusedReward")]]


# Results


class Allocation(Response):
    """The segment that is being assigned, and the share of each variant.

    In a large set only the 500 largest shares are given.

    segment : its number, counted from 0
    policy_version : segments that the policy had learned from when this one was opened
    weights : the share of each variant
    played : variants with a share above 0
    rounds : positions that the segment has
    order : iid, shuffled or blocks: how its variants are drawn
    block : positions in a block, if order is blocks
    """

    segment: int
    policy_version: int
    weights: dict[str, float]
    played: int
    rounds: int
    order: str
    block: int

    @classmethod
    def of(cls, record: SegmentRecord, names: Sequence[str]) -> Self:
        """A stored segment; names are of all variants."""
        segment, weights = record.segment, record.segment.weights[0]
        shown = np.arange(segment.columns)
        if segment.arms is not None:
            shown = np.argsort(-weights, kind="stable")[:MOST_SHOWN]
        return cls(
            segment=record.index,
            policy_version=record.policy_version,
            weights={names[segment.arm_at(c)]: float(weights[c]) for c in shown.tolist()},
            played=int((weights > 0).sum()),
            rounds=record.rounds,
            order=segment.order,
            block=segment.block,
        )


class ComparedEstimate(Response):
    """Estimates of a variant, and of its difference from another; null for unknown values.

    name : the name of the variant
    estimate : its mean; of a ratio the ratio of two means
    low : where the interval of the estimate begins
    high : where it ends
    lift : its value minus that of the control, in units of the reward; null without a control
    lift_low : where the interval of the lift begins
    lift_high : where it ends
    relative : the lift as a share of the control's value; null, not defined, where that cannot be
        told from 0
    relative_low : where the interval of the relative lift begins
    relative_high : where it ends
    """

    name: str
    estimate: Number
    low: Number
    high: Number
    lift: Number
    lift_low: Number
    lift_high: Number
    relative: Number
    relative_low: Number
    relative_high: Number

    @classmethod
    def rows(cls, result: Estimates, **more: Sequence[Any]) -> list[Self]:
        """One for each variant, from the columns of a result and from further ones."""
        columns = result.columns() | more
        names = cls.__struct_fields__
        rows = zip(*(columns[name] for name in names), strict=True)
        return [cls(*json_ready(row)) for row in rows]


class ArmEstimate(ComparedEstimate):
    """Estimates of a variant; null for unknown values.

    index : its position among all variants, counted from 0
    standard_error : the standard error of the estimate
    gap : by how much the recommended variant is better
    gap_low : where the interval of the gap begins
    gap_high : where it ends
    raw : the estimate without covariates, from rewards as they were recorded; null if the test has
        no covariates
    """

    index: int
    standard_error: Number
    gap: Number
    gap_low: Number
    gap_high: Number
    raw: Number


class MetricEstimate(ComparedEstimate):
    """Estimates of a variant in one further metric; null for unknown values.

    safety : the safety of a guardrail: safe, broken or unclear, and control for the control itself
    """

    safety: Safety | None


class MetricAnswer(Response):
    """Results of one secondary metric or guardrail.

    metric : how it was declared; window and grace are in seconds
    visits : visits that this rests on: those whose window has ended
    level : probability with which intervals hold, those of all secondary metrics at once
    anytime : whether intervals hold at every time somebody reads them, or once, at the end
    obstacle : why there is no result yet; empty if there is one
    arms : results of each variant; empty if nothing is
    """

    metric: dict[str, Any]
    visits: int
    level: float
    anytime: bool
    obstacle: str
    arms: list[MetricEstimate]

    @classmethod
    def of(cls, result: MetricResult) -> Self:
        """A result."""
        arms = []
        if not result.obstacle:
            safety = result.safety or (None,) * len(result.names)
            arms = MetricEstimate.rows(result, safety=safety)
        return cls.read(result, metric=result.metric.plain(), arms=arms)


class LevelAnswer(Response):
    """Results for the units of one level.

    name : the name of the level
    visits : judged visits of the level
    obstacle : why there is no result; empty if there is one
    arms : results of each variant; empty if nothing is
    """

    name: str
    visits: int
    obstacle: str
    arms: list[ComparedEstimate]

    @classmethod
    def of(cls, result: LevelResult) -> Self:
        """A result."""
        return cls.read(result, arms=[] if result.obstacle else ComparedEstimate.rows(result))


class BreakdownAnswer(Response):
    """Results for each level of an attribute; exploratory.

    attribute : its name
    against : the variant that differences (lift) are from: the control, or the recommended one
    variants : names of all variants
    levels : results of each level
    unknown : judged visits whose level is not known
    interaction : p-value of the hypothesis that differences are the same in all levels, for a
        single analysis; null if there are too few visits
    left_out : levels with too few visits for that test
    level : probability with which intervals hold, for all levels and variants at once
    anytime : whether intervals hold at every time somebody reads them, or once, at the end
    summary : whether levels differ, in words
    """

    attribute: str
    against: str
    variants: list[str]
    levels: list[LevelAnswer]
    unknown: int
    interaction: Number
    left_out: list[str]
    level: float
    anytime: bool
    summary: str

    @classmethod
    def of(cls, breakdown: Breakdown) -> Self:
        """A breakdown."""
        return cls.read(breakdown, levels=[LevelAnswer.of(level) for level in breakdown.levels])


class StoppingAnswer(Response):
    """The progress of a test that may stop early.

    rule : when sure if the test stops itself, recommend if it only says so
    spending : how the error probability is spent: obrien-fleming, hardly any early, or pocock
    planned : number of looks; null if they are taken daily or weekly
    looks : results of the looks so far
    recommended : whether the last of them decides, so that the test should be stopped; false at
        its end, and while a guardrail forbids what was decided
    stopped : whether the test stopped itself
    when : it did; null if it did not
    reason : the result of the last look; empty if it decides nothing
    text : the same in a sentence
    ahead : the visits of the next look; empty if none follows
    """

    rule: str
    spending: str
    planned: int | None
    looks: list[InterimResult]
    recommended: bool
    stopped: bool
    when: Time | None
    reason: str
    text: str
    ahead: str


class Recommendation(Response):
    """The best variant so far, how certain that is, and on which assumption.

    In a large set arms is a short list, others counts further variants that cannot be ruled out,
    and plausible names those on the list. Statements hold over all variants.

    arm : the recommended variant's name
    sure : whether it is the declared winner, which is wrong in at most one minus level of tests,
        and no health check fails
    level : probability with which intervals hold, for all variants at once
    anytime : whether intervals hold at every time somebody reads them, or once, at the end
    method : how intervals were found
    assumption : the assumption behind them, in one line
    rewards : rewards that this rests on
    missing : judged visits whose reward never came; they count as declared
    judged : visits that this rests on: the first ones, up to those whose rewards may still come
    waiting : newer visits that are not included yet
    pending : rewards of these that may still come
    until : when the last judged visit was assigned; null if none
    unhealthy : why nothing must be decided yet: the health checks that fail; empty if none
    caution : a caution about the intervals; empty if nothing
    plausible : names of the variants that cannot be ruled out as the best
    others : further ones that cannot be ruled out
    variants : how many there are
    arms : results of each
    decision : what to do
    control : the variant that others are compared with; null if there is none
    metrics : results of secondary metrics and guardrails
    variance_kept : share of the variance of estimates that is left after adjusting for covariates,
        such as 0.51; null if the test has no covariates
    stopping : the looks at a test that may stop early, of which this is the last; null for others
    """

    arm: str
    sure: bool
    level: float
    anytime: bool
    method: str
    assumption: str
    rewards: int
    missing: int
    judged: int
    waiting: int
    pending: int
    until: Time | None
    unhealthy: str
    caution: str
    plausible: list[str]
    others: int
    variants: int
    arms: list[ArmEstimate]
    decision: Decision
    control: str | None
    metrics: list[MetricAnswer]
    variance_kept: Number
    stopping: StoppingAnswer | None

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        """A verdict."""
        return cls.read(
            verdict,
            arm=verdict.name,
            arms=ArmEstimate.rows(verdict, index=verdict.columns()["arm"]),
            metrics=[MetricAnswer.of(result) for result in verdict.metrics],
        )


class Health(Response):
    """Whether the log can be trusted.

    status : the worst of the findings
    findings : all checks
    """

    status: Literal["ok", "warn", "fail"]
    findings: list[Finding]


class Drift(Response):
    """The estimates of every period, and whether periods differ by more than noise.

    In a large set names is a short list, and others counts the variants that are not on it.
    Averages are over all.

    names : the names of the variants that rows of numbers are of
    periods : labels of the periods, in order
    rounds : rounds in each period
    best : the variant with the best estimate over the whole test
    estimates : by period and variant: the mean reward
    errors : standard errors of these
    intervals : by period and variant: both ends; they hold for all at once
    gaps : by period and variant: by how much best beats it; negative where it loses
    gap_errors : standard errors of these
    leaders : the variant with the best estimate in each period
    gap_p_value : how likely gaps vary so much if they do not move; null if unknown
    level_p_value : the same for the average over all variants
    arm_p_values : the same for each variant's distance from the average
    level : the level of the intervals; 1 minus the error probability of gaps_move and level_moves
    method : where standard errors come from: lists, rounds or pieces
    averages : by period: the average over all variants
    others : variants that are not among names
    looks : shares of the planned visits at which drift was tested; null for one test
    gaps_move : whether differences between variants were seen to change: this is dangerous
    level_moves : whether the average was seen to change: harmless by itself
    verdict : the conclusion, in plain sentences
    """

    names: list[str]
    periods: list[str]
    rounds: list[int]
    best: str
    estimates: list[list[Number]]
    errors: list[list[Number]]
    intervals: list[list[list[Number]]]
    gaps: list[list[Number]]
    gap_errors: list[list[Number]]
    leaders: list[str]
    gap_p_value: Number
    level_p_value: Number
    arm_p_values: list[Number]
    level: float
    method: str
    averages: list[Number]
    others: int
    looks: list[float] | None
    gaps_move: bool
    level_moves: bool
    verdict: str

    @classmethod
    def of(cls, report: DriftReport) -> Self:
        """A report."""
        return msgspec.convert(report.to_dict(), cls)


class ReplayAnswer(Response):
    """Whether the log leads to what is stored.

    agrees : whether everything is the same, numbers to 1e-9
    assignments : computed anew
    rewards : computed anew
    segments : computed anew
    differences : the first twenty differences, in words
    corrections : changes by hand; they are undone to check what the policy decided before them
    """

    agrees: bool
    assignments: int
    rewards: int
    segments: int
    differences: list[str]
    corrections: int


# Corrections and the audit log


ENDS = {"since", "until"}  # of a period that was excluded: times


class AuditEntryAnswer(Response):
    """One entry of the audit log.

    id : entries have rising ids, some of which may be missing
    created : when it was done, in UTC
    author : the name of the token or of the user; empty if not known
    action : what was done, such as experiment.paused or reward.voided
    experiment : its name; null for what concerns the whole storage
    detail : further facts: the reason of a correction, how many assignments it changed, the period;
        never a unit
    """

    id: int
    created: Time
    author: str
    action: str
    experiment: str | None
    detail: dict[str, Any]

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        """A stored entry; the ends of a period are times."""
        ends = {name: iso(to_datetime(entry.detail[name])) for name in ENDS & entry.detail.keys()}
        created, detail = to_datetime(entry.created), {**entry.detail, **ends}
        return cls.read(entry, created=created, detail=detail)


class AuditLog(Response):
    """Entries of the audit log.

    entries : in the order of their ids
    """

    entries: list[AuditEntryAnswer]


class Corrections(Response):
    """All corrections of an experiment.

    corrections : oldest first
    """

    corrections: list[AuditEntryAnswer]


def iso(when: datetime) -> str:
    """A time as programs read it.

    Examples
    --------
    >>> from datetime import UTC
    >>> iso(datetime(2025, 1, 31, 12, tzinfo=UTC))
    '2025-01-31T12:00:00Z'
    """
    return when.isoformat().replace("+00:00", "Z")
