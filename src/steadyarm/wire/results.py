"""What the service answers about results: verdicts, health, drift, replays, and corrections."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Self

import msgspec
import numpy as np

from steadyarm.inference import DriftReport, HealthReport
from steadyarm.inference.evidence import json_ready
from steadyarm.live.breakdowns import Breakdown, LevelResult
from steadyarm.live.conclusion import Word
from steadyarm.live.looks import StopReport
from steadyarm.live.metrics import MetricResult, Safety
from steadyarm.live.replay import Replay
from steadyarm.live.verdict import Verdict
from steadyarm.storages.changes import AuditEntry
from steadyarm.storages.records import SegmentRecord, to_datetime
from steadyarm.wire.responses import MOST_SHOWN, Response, Time, iso

Number = float | None
LIFTS = ("lifts", "lift_intervals", "relative", "relative_intervals")


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
        segment = record.segment
        weights = segment.weights[0]
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


class ArmEstimate(Response):
    """What is known of a variant; null for what is not known.

    name : of the variant
    index : its position among all variants, counted from 0
    estimate : of its mean reward over the whole test
    standard_error : of the estimate
    low : where the interval of the estimate begins
    high : where it ends
    gap : by how much the recommended variant is better
    gap_low : where the interval of the gap begins
    gap_high : where it ends
    lift : its value minus that of the control, in units of the reward; null without a control
    lift_low : where the interval of the lift begins
    lift_high : where it ends
    relative : the lift as a share of the control's value; null, not defined, where that cannot be
        told from 0
    relative_low : where the interval of the relative lift begins
    relative_high : where it ends
    raw : the estimate without covariates, from rewards as they were recorded; null if the test has
        no covariates
    """

    name: str
    index: int
    estimate: Number
    standard_error: Number
    low: Number
    high: Number
    gap: Number
    gap_low: Number
    gap_high: Number
    lift: Number
    lift_low: Number
    lift_high: Number
    relative: Number
    relative_low: Number
    relative_high: Number
    raw: Number


class DecisionAnswer(Response):
    """What to do.

    word : ship a variant, keep the control, unclear if the test ended without a clear winner,
        unhealthy if nothing must be decided, running if it is not decided yet
    text : the same as a person says it
    variant : the variant to ship or to keep; null if there is none
    more : about how many more visits would tell; null if there is nothing to tell or nobody knows
    """

    word: Word
    text: str
    variant: str | None
    more: int | None


class ComparedEstimate(Response):
    """What is known of a variant, and of its difference from another; null for what is not known.

    name : of the variant
    estimate : its mean; of a ratio the ratio of two means
    low : where the interval of the estimate begins
    high : where it ends
    lift : difference from the control
    lift_low : where the interval of the difference begins
    lift_high : where it ends
    relative : the difference divided by the control's value
    relative_low : where the interval of that begins
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


class MetricEstimate(ComparedEstimate):
    """What is known of a variant in one further metric; null for what is not known.

    safety : of a guardrail: safe, broken or unclear, and control for the control itself
    selected : whether the variant was selected as different from the control; null if this was not
        asked for
    """

    safety: Safety | None
    selected: bool | None


class MetricAnswer(Response):
    """What is known of one metric beside the primary one.

    metric : how it was declared; window and grace are in seconds
    visits : visits that this rests on: those whose window has ended
    level : probability with which intervals hold, those of all secondary metrics at once
    anytime : whether intervals hold at every time somebody reads them, or once, at the end
    obstacle : why there is no result yet; empty if there is one
    arms : what is known of each variant; empty if nothing is
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
        if result.estimates is not None and result.intervals is not None:
            safety = result.safety or (None,) * len(result.names)
            selected = result.selected or (None,) * len(result.names)
            arms = [
                MetricEstimate(*row, *each)
                for row, *each in zip(_compared(result), safety, selected, strict=True)
            ]
        same = (result.visits, result.level, result.anytime, result.obstacle)
        return cls(result.metric.plain(), *same, arms)


def _compared(result: MetricResult | LevelResult) -> list[tuple[Any, ...]]:
    """The name and the nine numbers of every variant, as `ComparedEstimate` has them."""
    none = np.full((len(result.names), 6), np.nan)
    lifts = [none] if result.lifts is None else [getattr(result, part) for part in LIFTS]
    values: list[Any] = [result.estimates, result.intervals]
    columns = np.column_stack([*values, *lifts])
    return [(name, *row) for name, row in zip(result.names, json_ready(columns), strict=True)]


class LevelAnswer(Response):
    """What is known of the units of one level.

    name : of the level
    visits : judged visits of the level
    obstacle : why there is no result; empty if there is one
    arms : what is known of each variant; empty if nothing is
    """

    name: str
    visits: int
    obstacle: str
    arms: list[ComparedEstimate]

    @classmethod
    def of(cls, result: LevelResult) -> Self:
        """A result."""
        there = result.estimates is not None
        arms = [ComparedEstimate(*row) for row in _compared(result)] if there else []
        return cls(result.name, result.visits, result.obstacle, arms)


class BreakdownAnswer(Response):
    """What is known of each level of an attribute; exploratory.

    attribute : its name
    against : the variant that differences (lift) are from: the control, or the recommended one
    variants : names of all variants
    levels : what is known of each level
    unknown : judged visits whose level is not known
    interaction : p-value of the hypothesis that differences are the same in all levels, for a
        single analysis; null if there are too few visits
    left_out : levels with too few visits for that test
    level : probability with which intervals hold, for all levels and variants at once
    anytime : whether intervals hold at every time somebody reads them, or once, at the end
    exploratory : true: what is found here is a question for the next test
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
    exploratory: bool
    summary: str

    @classmethod
    def of(cls, found: Breakdown) -> Self:
        """A breakdown."""
        return cls(
            found.attribute,
            found.against,
            list(found.levels[0].names),
            [LevelAnswer.of(result) for result in found.levels],
            found.unknown,
            found.interaction,
            list(found.left_out),
            found.level,
            found.anytime,
            found.exploratory,
            found.summary,
        )


class LookAnswer(Response):
    """One look at a test that may stop early.

    number : of the look, counted from 1
    visits : that it rests on
    share : these as a share of the budget
    when : the last of these visits was assigned; null if that is not known
    boundary : standard errors that decide; null if the look was too early to decide anything
    reached : standard errors that were seen, of what was nearest to its boundary: the lead of the
        best variant over the nearest other one or, with a control, over that
    """

    number: int
    visits: int
    share: float
    when: str | None
    boundary: Number
    reached: float


class StoppingAnswer(Response):
    """How far a test is that may stop early.

    rule : when sure if the test stops itself, recommend if it only says so
    spending : how the error probability is spent: obrien-fleming, hardly any early, or pocock
    planned : number of looks; null if they are taken daily or weekly
    looks : what was found at the looks so far
    recommended : whether the last of them decides, so that the test should be stopped; false at
        its end, and while a guardrail forbids what was decided
    stopped : whether the test stopped itself
    when : it did; null if it did not
    reason : what the last look found; empty if it decides nothing
    text : the same in a sentence
    ahead : what the next look rests on; empty if none follows
    """

    rule: str
    spending: str
    planned: int | None
    looks: list[LookAnswer]
    recommended: bool
    stopped: bool
    when: str | None
    reason: str
    text: str
    ahead: str

    @classmethod
    def of(cls, report: StopReport) -> Self:
        """A report."""
        looks = [
            LookAnswer(
                **json_ready(vars(look)) | {"when": None if look.when is None else iso(look.when)}
            )
            for look in report.looks
        ]
        when = None if report.when is None else iso(report.when)
        return cls(**vars(report) | {"looks": looks, "when": when, "text": report.text})


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


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
    assumption : what must be true for them, in one line
    rewards : rewards that this rests on
    missing : judged visits whose reward never came; they count as declared
    judged : visits that this rests on: the first ones, up to those whose rewards may still come
    waiting : newer visits that are not included yet
    pending : rewards of these that may still come
    until : when the last judged visit was assigned; null if none
    unhealthy : why nothing must be decided yet: the health checks that fail; empty if none
    caution : what to keep in mind about the intervals; empty if nothing
    plausible : names of the variants that cannot be ruled out as the best
    others : further ones that cannot be ruled out
    variants : how many there are
    arms : what is known of each
    decision : what to do
    control : the variant that others are compared with; null if there is none
    metrics : what is known of the metrics beside the primary one
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
    until: str | None
    unhealthy: str
    caution: str
    plausible: list[str]
    others: int
    variants: int
    arms: list[ArmEstimate]
    decision: DecisionAnswer
    control: str | None
    metrics: list[MetricAnswer]
    variance_kept: Number
    stopping: StoppingAnswer | None

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        """A verdict."""
        none = np.full(len(verdict.estimates), np.nan)
        lifts = [getattr(verdict, part) for part in LIFTS]
        columns = np.column_stack(
            [
                *(verdict.estimates, verdict.standard_errors, verdict.intervals),
                *(verdict.gaps, verdict.gap_intervals),
                *([none] * 6 if verdict.control is None else lifts),
                none if verdict.raw is None else verdict.raw,
            ]
        ).tolist()
        shown = range(len(columns)) if verdict.shown is None else verdict.shown.tolist()
        same = {name: getattr(verdict, name) for name in cls.__struct_fields__ if name in SAME}
        return cls(
            arm=verdict.name,
            decision=DecisionAnswer(**vars(verdict.decision)),
            until=None if verdict.until is None else iso(verdict.until),
            plausible=list(verdict.plausible),
            arms=[
                ArmEstimate(name, arm, *json_ready(row))
                for name, arm, row in zip(verdict.names, shown, columns, strict=True)
            ],
            metrics=[MetricAnswer.of(result) for result in verdict.metrics],
            stopping=None if verdict.stopping is None else StoppingAnswer.of(verdict.stopping),
            **same,
        )


# What a recommendation and a verdict call by the same name.
SAME = frozenset(Recommendation.__struct_fields__) - {
    *("arm", "decision", "until", "plausible", "arms", "metrics", "stopping"),
}


class Finding(Response):
    """One health check.

    name : what was checked
    status : warn: inspect it; fail: do not trust results before it is explained
    p_value : of the test behind it; null if there is none
    explanation : what was found, in one sentence
    advice : what to do; empty if nothing
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    p_value: float | None
    explanation: str
    advice: str


class Health(Response):
    """Whether the log can be trusted.

    status : the worst of the findings
    findings : all checks
    """

    status: Literal["ok", "warn", "fail"]
    findings: list[Finding]

    @classmethod
    def of(cls, report: HealthReport) -> Self:
        """A report."""
        return msgspec.convert(report.to_dict(), cls)


class Drift(Response):
    """The estimates of every period, and whether periods differ by more than noise.

    In a large set names is a short list, and others counts the variants that are not on it.
    Averages are over all.

    names : of the variants that rows of numbers are of
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
    level : of the intervals; 1 minus the error probability of gaps_move and level_moves
    method : where standard errors come from: lists, rounds or pieces
    averages : by period: the average over all variants
    others : variants that are not among names
    looks : shares of the planned visits at which drift was tested; null for one test
    gaps_move : whether differences between variants were seen to change: this is dangerous
    level_moves : whether the average was seen to change: harmless by itself
    verdict : what it means, in plain sentences
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

    agrees : whether everything is the same to the bit
    assignments : computed anew
    rewards : computed anew
    segments : computed anew
    differences : what disagrees, in words, the first twenty
    corrections : changes by hand; they are undone to check what the policy decided before them
    """

    agrees: bool
    assignments: int
    rewards: int
    segments: int
    differences: list[str]
    corrections: int

    @classmethod
    def of(cls, found: Replay) -> Self:
        """A replay."""
        return cls(
            found.agrees,
            found.assignments,
            found.rewards,
            found.segments,
            list(found.differences),
            found.corrections,
        )


# Corrections and the audit log


class CorrectedAnswer(Response):
    """What a correction did.

    entry : its id in the audit log
    assignments : how many assignments it changed
    """

    entry: int
    assignments: int


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
        shown = {"created": to_datetime(entry.created), "detail": {**entry.detail, **ends}}
        return cls(**vars(entry) | shown)


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
