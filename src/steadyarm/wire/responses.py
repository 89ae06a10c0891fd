"""What the service answers, and what the command line prints as JSON; `results` has the rest.

Each response is made of the object that `Experiment` gives (`of`). The client gives responses to
programs as they are. It ignores fields that it does not know, so it may be older than its service.
JSON has no infinite numbers: null takes their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import msgspec
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
from steadyarm.inference.evidence import json_ready
from steadyarm.live.after_test import Outside, RollOut
from steadyarm.live.assigner import LiveAssignment, ReportStatus
from steadyarm.live.experiment import Experiment
from steadyarm.live.settings import STOPPING, After, Missing, Settings, Sticky, variants_in
from steadyarm.live.values import values_of
from steadyarm.segments import Direction
from steadyarm.storages.records import (
    ExperimentHead,
    ExperimentState,
    to_datetime,
)

MOST_SHOWN = 500  # variants of a large set
REF = "#/components/schemas/{name}"
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


def one_of(*names: str) -> Meta:
    """What msgspec cannot say: a value is one of these structs, which no tag tells apart."""
    return Meta(extra_json_schema={"anyOf": [{"$ref": REF.format(name=name)} for name in names]})


class Response(Struct):
    """What is answered to a request."""


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

    names : of the variants, in order
    feature_names : of the features, in order
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
    feature_names : of the features, in order
    """

    count: int
    feature_names: list[str]


class SettingsAnswer(Response):
    """What an experiment was created with.

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
    looks : when such a test is looked at: daily, weekly, or how often; null for others
    spending : how the error probability is spent over the looks; null for others
    futility : smallest difference that matters, in units of the reward; null if none was given
    values : by variant, what it stands for; null if that follows from the variants: factors with
        their levels, the items of a bundle, or the name
    bulk : whether a bulk evaluation of flags assigns variants
    after : show if units that come when the test is over see a variant, refuse if they get an error
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
    after: After

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The settings without the coordinates of the variants, which follow from the features."""
        arms = settings.arms
        known: dict[str, Any] = {"count": arms.size, "feature_names": arms.feature_names}
        if not arms.large or arms.recipe is not None:
            known = {key: value for key, value in arms.to_dict().items() if key != "span"}
        found = settings.to_dict(known) | {
            "attributes": dict(settings.attributes),
            "covariates": list(settings.covariates),
            "metrics": [metric.plain() for metric in settings.metrics],  # declared ones alone
            **{name: getattr(settings, name) for name in (*STOPPING, "values", "bulk", "after")},
        }
        return msgspec.convert(json_ready(found), cls)

    @property
    def names(self) -> Sequence[str]:
        """The names of all variants; empty if only the service has them."""
        recipe = recipe_from_dict(self.arms)
        return tuple(self.arms.get("names", ())) if recipe is None else recipe.names

    @property
    def variant_values(self) -> Sequence[Any]:
        """The values of all variants; empty if only the service has their names."""
        return values_of(self.names, self.values)


class Totals(Response):
    """Counts over all variants.

    variants : the number of variants
    handed_out : variants that were assigned at least once
    assigned : assignments
    rewarded : assignments that have a reward
    excluded : assignments that were excluded; they count nowhere else
    """

    variants: int
    handed_out: int
    assigned: int
    rewarded: int
    excluded: int


class RollOutAnswer(Response):
    """A variant that units get outside of the test.

    variant : its name
    share : of all units that it reaches
    since : when that began, in UTC
    """

    variant: str
    share: float
    since: Time

    @classmethod
    def of(cls, roll_out: RollOut) -> Self:
        """As an experiment keeps it."""
        since = to_datetime(roll_out.since)
        return cls(roll_out.variant, roll_out.share, since)


class OutsideAnswer(Response):
    """What an experiment shows to units that are not part of its test.

    default : the variant that units without one see; null before the first such unit
    reason : why it was chosen, in a sentence
    since : when it was chosen, in UTC; null before
    roll_outs : variants that were rolled out, the newest first; a unit that it does not reach sees
        what it saw before
    """

    default: str | None
    reason: str
    since: Time | None
    roll_outs: list[RollOutAnswer]

    @classmethod
    def of(cls, outside: Outside) -> Self:
        """As an experiment keeps it."""
        since = None if outside.since is None else to_datetime(outside.since)
        rolled = [RollOutAnswer.of(one) for one in outside.roll_outs]
        return cls(outside.default, outside.reason, since, rolled)


class ExperimentAnswer(Response):
    """An experiment and its progress.

    Counts are by variant. In a large set (more than 4,096 variants) they are those of the at most
    500 variants that were assigned most often. Then indices gives the position of each of these,
    counted from 0; it is null where counts are of all variants. Totals are always of all.

    name : of the experiment
    state : where it is between draft and archived
    created : when it was created, in UTC
    settings : what it was created with
    assigned : assignments by variant
    rewarded : rewards by variant
    indices : position of each variant counted here; null if these are all
    totals : of all variants
    segments : segments that were opened
    observed : segments that the policy has learned from
    outside : what is shown outside of the test; null as long as nobody needed it
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
    outside: OutsideAnswer | None
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
        return cls(
            name=status.name,
            state=status.state,
            created=status.created,
            settings=SettingsAnswer.of(experiment.settings),
            assigned={name: assigned for name, (_, assigned, _) in shown.items()},
            rewarded={name: rewarded for name, (_, _, rewarded) in shown.items()},
            indices=None if status.arms is None else {name: row[0] for name, row in shown.items()},
            totals=Totals(
                variants=experiment.arms.size,
                handed_out=sum(count > 0 for count in status.assigned),
                assigned=status.total_assigned,
                rewarded=status.total_rewarded,
                excluded=status.excluded,
            ),
            segments=status.segments,
            observed=status.observed,
            outside=None if status.outside is None else OutsideAnswer.of(status.outside),
            roll_out=None if status.roll_out is None else RollOutAnswer.of(status.roll_out),
            **more,
        )


class CreatedExperiment(ExperimentAnswer):
    """A new experiment, and what its settings may cause that nobody wants.

    warnings : sentences; empty if all is well
    """

    warnings: list[str]


class ListedExperiment(Response):
    """An experiment in short.

    name : of the experiment
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
        return cls(
            record.name,
            record.state,
            to_datetime(record.created),
            config["budget"],
            config["policy"]["name"],
            variants_in(config),
        )


class ExperimentList(Response):
    """All experiments.

    experiments : in the order of their creation
    """

    experiments: list[ListedExperiment]

    @classmethod
    def of(cls, records: Sequence[ExperimentHead]) -> Self:
        """All stored experiments."""
        return cls([ListedExperiment.of(record) for record in records])


# Traffic


class AssignmentAnswer(Response):
    """The variant that a unit gets.

    id : identifies the assignment when its reward is reported
    unit : who gets the variant
    arm : the variant's name
    probability : with which it was drawn; null outside of the test
    created : when the unit got it first, in UTC
    new : false if the unit had it already
    value : what the variant stands for, as the experiment's settings say
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
    def of(cls, found: LiveAssignment) -> Self:
        """An assignment of an experiment."""
        drawn = found.probability if found.in_test else None, found.created, found.new
        return cls(found.id, found.unit, found.name, *drawn, found.value, found.in_test)


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
    """What became of a reward.

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
    """What became of many rewards.

    rewards : one for every reward, in their order
    """

    rewards: list[Annotated[Any, one_of("RewardStatus", "RefusedReward")]]


class EventStatus(Response):
    """What became of an event in one experiment.

    name : of the experiment
    status : repeated if the same event was there already, else stored
    """

    name: str
    status: Literal["stored", "repeated"]


class RefusedEvent(Response):
    """An experiment that did not store an event.

    name : of the experiment
    error : why it was not stored there; if its status is 500 or more, send the event again
    """

    name: str
    error: Problem


class EventAnswer(Response):
    """What became of an event.

    experiments : one for every experiment in which the unit has an assignment and that has a metric
        of this name; an event that is stored there is on disk. At least one has stored it, or may
        store it when it is sent again
    """

    experiments: list[Annotated[Any, one_of("EventStatus", "RefusedEvent")]]


class EventAnswers(Response):
    """What became of many events.

    events : one for every event, in their order; an error in place of one that was not counted
    """

    events: list[Annotated[Any, one_of("EventAnswer", "RefusedReward")]]


def iso(when: datetime) -> str:
    """A time as programs read it.

    Examples
    --------
    >>> from datetime import UTC
    >>> iso(datetime(2025, 1, 31, 12, tzinfo=UTC))
    '2025-01-31T12:00:00Z'
    """
    return when.isoformat().replace("+00:00", "Z")
