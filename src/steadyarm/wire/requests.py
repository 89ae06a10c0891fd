"""Bodies and queries of requests, and errors of malformed ones.

A request checks shapes and types. `live.settings` alone has the rules of an experiment, such as
the budgets that it accepts. The description of a field in a docstring also completes errors: "unit
is true; expected …".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from inspect import cleandoc
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from steadyarm.errors import InvalidInputError
from steadyarm.live.settings import After, Missing, Spending, Sticky, Stop
from steadyarm.segments import Direction
from steadyarm.storages.records import LONGEST_UNIT
from steadyarm.wording import did_you_mean, shortened

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_UNIT)]
AnyId = Annotated[str, Meta(max_length=LONGEST_UNIT)]
Unit = Annotated[str, Meta(min_length=1, max_length=LONGEST_UNIT, pattern=r"^[^\u0000]*$")]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Level = Annotated[float, Meta(gt=0, lt=1)]
Name = Annotated[str, Meta(examples=["checkout"])]
Levels = Annotated[dict[str, str | None], Meta(examples=[{"device": "mobile"}])]
Numbers = Annotated[dict[str, float | None], Meta(examples=[{"spend": 41.0}])]
# Each name has a row and a column of its own, so a list must not be long.
Names = Annotated[list[str], Meta(max_length=2000)]


class Request(Struct, forbid_unknown_fields=True):
    """The body of a request."""


class NewExperiment(Request, kw_only=True, omit_defaults=True):
    """An experiment to be created.

    name : up to 100 letters, digits, dots, hyphens and underscores, the first a letter or digit
    variants : a list of up to 2,000 names or an object with one of one_hot, factorial, bundles,
        features; needed
    arms : the same, as the Python API calls them; one of the two is given
    policy : a name such as steady, or an object with its name and settings
    budget : a whole number of at least 1: how many assignments are made in all
    seed : a whole number from 0 to 2**63 - 1, which makes the whole test reproducible; drawn at
        random by default
    direction : maximize or minimize: whether large or small rewards are good
    reward_range : a list of the least and the largest reward that can occur; others are refused
    reward_window : seconds after an assignment in which its reward counts, or a text such as 90m,
        12h, 7d
    reward_grace : seconds after its window in which a reward that happened in time may still
        arrive, or a text such as 90m, 12h, 7d; by default as long as the window, at most seven days
    missing : zero, drop or fail: what a reward that never comes counts as; may be left out only if
        large rewards are good and reward_range contains 0
    sticky : unit if a unit keeps its first variant, none if a variant is drawn for every request
    control : the variant that others are compared with: its name, or an object with its name and
        the share that it always gets, from 0 to below 1
    min_share : a share from 0 to below 1 for all variants, or an object with some of them and their
        shares
    metrics : a list of objects that describe metrics, each with a name and, if they are not usual,
        role, kind, unit, direction, window, grace, missing, range, cap, several, margin, event and
        ratio
    attributes : an object with the names of up to 8 attributes of units and a list of the 2 to 20
        levels of each, such as mobile and desktop of device
    covariates : a list with the names of up to 5 numbers that are known of units before they are
        assigned, such as spend; they take noise away
    stop : when sure if the test is to stop itself at the first look that decides it, recommend if
        it is only to say so; by default it is played to its end
    looks : daily, weekly, or a number of interim analyses from 1 to 60; 8 by default
    spending : obrien-fleming or pocock: how the error probability is spent over the looks
    futility : a number above 0, the smallest difference that matters, in units of the reward; the
        test also stops when none can be shown any more
    values : an object with the names of all variants and what each stands for, any JSON value of up
        to 16 KiB, or a list in the order of the variants; assignments return it. By default factors
        with their levels, the items of a bundle, or the name
    bulk : true or false: whether a bulk evaluation of flags assigns variants, also for pages that
        do not show this one; by default only units that have a variant get it there
    traffic : a share above 0 and at most 1 of all units that take part; others see the control
    layer : the name of a layer: its tests have no unit in common, each has its own share of it
    after : show or refuse: whether units that come when the test is over see the recommended
        variant, or else the control, or get an error
    about : an object with what people read of the test: description, hypothesis, owner and tags
    start : true or false: whether it starts at once
    load_if_exists : true or false: whether to accept an existing experiment with the same settings
    """

    name: Name
    variants: Annotated[Names | dict[str, Any], Meta(examples=[["A", "B", "C"]])] | None = None
    arms: Names | dict[str, Any] | None = None
    policy: Annotated[str | dict[str, Any], Meta(examples=["steady"])] = "steady"
    budget: Annotated[int, Meta(examples=[10000])]
    seed: int | None = None
    direction: Direction = "maximize"
    reward_range: list[float] | None = None
    reward_window: float | str | None = None
    reward_grace: float | str | None = None
    missing: Missing | None = None
    sticky: Sticky = "unit"
    control: str | dict[str, float] | None = None
    min_share: dict[str, float] | float | None = None
    metrics: (
        Annotated[list[dict[str, Any]], Meta(max_length=100, examples=[[{"name": "revenue"}]])]
        | None
    ) = None
    attributes: (
        Annotated[dict[str, list[str]], Meta(examples=[{"device": ["mobile", "desktop"]}])] | None
    ) = None
    covariates: Annotated[list[str], Meta(examples=[["spend"]])] | None = None
    stop: Stop | None = None
    looks: int | str | None = None
    spending: Spending | None = None
    futility: float | None = None
    values: (
        Annotated[
            dict[str, Any] | list[Any],
            Meta(examples=[{"A": {"price": 9}, "B": {"price": 12}, "C": {"price": 15}}]),
        ]
        | None
    ) = None
    bulk: bool = False
    traffic: Annotated[float, Meta(gt=0, le=1)] = 1.0
    layer: str | None = None
    after: After = "show"
    about: Annotated[dict[str, Any], Meta(examples=[{"owner": "Ada"}])] | None = None
    start: bool = True
    load_if_exists: bool = False


class NewAssignment(Request):
    """A unit to assign.

    unit : a text of 1 to 512 characters, such as a visitor's id; needed unless the experiment has
        sticky: none
    attributes : an object with the names of attributes and the unit's levels, such as mobile for
        device; kept with a new assignment
    covariates : an object with the names of covariates and the unit's numbers, such as 41.0 for
        spend; kept with a new assignment
    expected : a number, the covariate of that name: the reward that a model of yours predicts
    preview : the name of a variant to look at, outside of the test: nothing is stored
    """

    unit: Unit | None = None
    attributes: Levels | None = None
    covariates: Numbers | None = None
    expected: float | None = None
    preview: str | None = None


class NewAssignments(Request):
    """Units to assign.

    units : a list of units; an error takes the place of one that is no text
    attributes : a list with the attributes of each unit, null for one of which none is known; as
        long as units
    covariates : a list with the covariates of each unit, null for one of which none is known; as
        long as units
    expected : a list with the covariate expected of each unit, null where it is not known; as long
        as units
    """

    units: Annotated[list[Any], Meta(examples=[["visitor 1", "visitor 2"]])]
    attributes: (
        Annotated[list[Any], Meta(examples=[[{"device": "mobile"}, {"device": "desktop"}]])] | None
    ) = None
    covariates: Annotated[list[Any], Meta(examples=[[{"spend": 41.0}, None]])] | None = None
    expected: Annotated[list[float | None], Meta(examples=[[3.2, None]])] | None = None

    def __post_init__(self) -> None:
        for name in ("attributes", "covariates", "expected"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.units):
                raise ValueError(f"{name} and units are not equally many; give null for nothing")


class NewReward(Request, kw_only=True):
    """The reward of an assignment, which its id or its unit identifies.

    assignment : the id of the assignment; an empty one is that of a variant that was shown outside
        of the test, whose reward counts nowhere
    unit : a text of 1 to 512 characters, such as a visitor's id
    reward : a number; it may be left out if there are metrics
    metrics : an object with the names of metrics and their values, all of one event
    event : a text of 1 to 512 characters that identifies the event, such as the number of an order;
        metrics that a unit may have several events of need it
    at : a time such as 2025-01-31T12:00:00Z: when the reward happened, by default now; it counts by
        this time if it arrives within the reward_grace
    sent : a time such as 2025-01-31T12:00:00Z: when the request was sent by the sender's clock,
        which then need not agree with the service's; without it, at is taken literally
    """

    assignment: AnyId | None = None
    unit: Unit | None = None
    reward: float | None = None
    metrics: Annotated[dict[str, float], Meta(min_length=1)] | None = None
    event: Unit | None = None
    at: Time | None = None
    sent: Time | None = None

    def __post_init__(self) -> None:
        if self.assignment is not None and self.unit is not None:
            raise ValueError("there are both assignment and unit; give one of them")
        if self.assignment is None and self.unit is None:
            raise ValueError("it is missing whose reward this is; give assignment or unit")
        if (self.reward is None) == (self.metrics is None):
            raise ValueError(
                "it is missing what was observed; give either reward, a number, or metrics, values "
                "by their names"
            )

    @property
    def values(self) -> float | dict[str, float]:
        """The reported values: the reward, or values by the names of metrics."""
        found = self.reward if self.metrics is None else self.metrics
        assert found is not None
        return found


class NewRewards(Request):
    """The rewards of many assignments.

    rewards : a list of rewards; an error takes the place of one that is refused
    sent : a time such as 2025-01-31T12:00:00Z: when the request was sent by the sender's clock,
        which then need not agree with the service's; without it, every at is taken literally
    """

    rewards: list[
        Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/NewReward"})]
    ]
    sent: Time | None = None


class NewEvent(Request, kw_only=True):
    """Something that a unit did, for every experiment that measures it.

    unit : a text of 1 to 512 characters, such as a visitor's id
    event : the name of a metric, such as purchase; an experiment whose reward has no name of its
        own takes reward and the experiment's name
    value : a number, such as the amount of an order; 1 by default
    id : a text of 1 to 512 characters that identifies the event, such as the number of an order;
        metrics that a unit may have several events of need it
    at : a time such as 2025-01-31T12:00:00Z: when the event happened, by default now; it counts by
        this time if it arrives within the metric's grace
    sent : a time such as 2025-01-31T12:00:00Z: when the request was sent by the sender's clock,
        which then need not agree with the service's; without it, at is taken literally
    """

    unit: Unit
    event: Annotated[str, Meta(min_length=1, max_length=LONGEST_UNIT, examples=["purchase"])]
    value: float = 1.0
    id: Unit | None = None
    at: Time | None = None
    sent: Time | None = None


class NewEvents(Request):
    """Many events of units.

    events : a list of events; an error takes the place of one that is refused
    sent : a time such as 2025-01-31T12:00:00Z: when the request was sent by the sender's clock,
        which then need not agree with the service's; without it, every at is taken literally
    """

    events: list[Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/NewEvent"})]]
    sent: Time | None = None


class Evaluation(Request, forbid_unknown_fields=False):
    """Whose flags are evaluated, in the words of OFREP.

    context : an object with targetingKey, the unit. The attributes and covariates that an
        experiment has declared are taken from it by their names, unitToken is the token of a
        signed unit; everything else is ignored
    """

    context: (
        Annotated[
            dict[str, Any], Meta(examples=[{"targetingKey": "visitor 1", "device": "mobile"}])
        ]
        | None
    ) = None


class NewCorrection(Request):
    """A correction and its reason.

    kind : void a reward, exclude the visits of a unit or of a period, or erase the identity of a
        unit
    assignment : to void: the id of the assignment
    unit : a text of 1 to 512 characters, such as a visitor's id: who is excluded or erased, or
        whose reward it is
    since : to exclude a period: a time such as 2025-01-31T12:00:00Z, at which the period begins
    until : to exclude a period: a time such as 2025-01-31T12:00:00Z, before which it ends; not
        later than now
    reason : a text of up to 1000 characters that says why, for readers of the audit log, which
        keeps it for ever; it must name no unit. Needed except to erase
    """

    kind: Literal["void", "exclude", "erase"]
    assignment: Id | None = None
    unit: Unit | None = None
    since: Time | None = None
    until: Time | None = None
    reason: Annotated[
        str, Meta(max_length=1000, pattern=r"^[^\u0000]*$", examples=["a monitor of our own"])
    ] = ""


class NewReopening(Request):
    """The reason to reopen a stopped experiment.

    reason : a text of 1 to 1000 characters that says why, for readers of the audit log; it must
        name no unit
    """

    reason: Annotated[
        str, Meta(min_length=1, max_length=1000, pattern=r"^[^\u0000]*$", examples=["a mistake"])
    ]


class NewRollOut(Request):
    """A variant that units get outside of the test, from now on.

    variant : the name of a variant; by default what is rolled out already, else the recommended one
        if the decision is clear
    share : a number from 0 to 1: the share of all units that it reaches
    stop : true or false: whether to stop the test if it is still running; it is refused otherwise
    change : true or false: whether units may lose what was rolled out to them, because the share
        gets smaller or another variant takes its place
    reason : a text of up to 1000 characters that says why, for readers of the audit log; it must
        name no unit
    """

    variant: Annotated[str, Meta(examples=["B"])] | None = None
    share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    stop: bool = False
    change: bool = False
    reason: Annotated[str, Meta(max_length=1000, pattern=r"^[^\u0000]*$")] = ""


class Query(Struct, forbid_unknown_fields=True):
    """The query of an address."""


class RecommendationQuery(Query):
    """Options of a recommendation.

    level : a number between 0 and 1: the probability with which intervals hold
    anytime : true or false: whether intervals hold at every time somebody reads them, or once, at
        the end; by default at every time until the test has ended
    """

    level: Level = 0.95
    anytime: bool | None = None


class DriftQuery(Query):
    """Options of the drift report.

    periods : a whole number from 1 to 1000: in how many equal shares the test is divided
    level : a number between 0 and 1: the probability with which intervals hold
    """

    periods: Annotated[int, Meta(ge=1, le=1000)] = 4
    level: Level = 0.95


class AuditQuery(Query):
    """Which entries of the audit log to read.

    after : a whole number: the id of the last entry that was read
    most : a whole number from 1 to 10000: how many at most
    experiment : the name of an experiment, for the entries about it alone
    """

    after: Annotated[int, Meta(ge=0, lt=2**53)] = 0
    most: Annotated[int, Meta(ge=1, le=10000)] = 1000
    experiment: Annotated[str, Meta(max_length=100, pattern=r"^[^\u0000]*$")] | None = None


class ExperimentsQuery(Query):
    """Which experiments to list.

    cursor : a whole number: `next` of the page before
    limit : a whole number from 1 to 1000: how many at most
    """

    cursor: Annotated[int, Meta(ge=0, lt=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ExportQuery(Query):
    """The format of an export.

    format : csv, parquet, or zip: CSV and the description that analyze reads with it
    """

    format: Literal["csv", "parquet", "zip"] = "csv"


# Reading requests


M = TypeVar("M", bound=Struct)
MOST_FAULTS = 5
ENTRY = re.compile(r"(\w+(?:, \w+)*) : (.*(?:\n +.*)*)")
MISTAKEN = {"id": ("assignment", "the assignment's id goes into assignment")}


class MalformedError(InvalidInputError):
    """The body of a request is not JSON."""


@cache
def descriptions(model: type) -> Mapping[str, str]:
    """Descriptions of the fields of a class, from its docstring and those of its bases.

    Examples
    --------
    >>> descriptions(NewExperiment)["budget"]
    'a whole number of at least 1: how many assignments are made in all'
    """
    return {
        name: " ".join(text.split())
        for kind in reversed(model.__mro__)
        for names, text in ENTRY.findall(cleandoc(kind.__doc__ or ""))
        for name in names.split(", ")
    }


def decode(model: type[M], body: bytes) -> M:
    """The body of a request; InvalidInputError says what is wrong with it.

    Examples
    --------
    >>> decode(NewAssignment, b'{"unit": "visitor 1"}').unit
    'visitor 1'
    >>> decode(NewAssignment, b'{"unit": 3}')
    Traceback (most recent call last):
    steadyarm.errors.InvalidInputError: unit is 3; expected a text: send it as "3".
    """
    try:
        return msgspec.json.decode(body, type=model)
    except msgspec.ValidationError as error:
        refused = str(error)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"The body is not JSON: {error}.") from None
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"The body is not JSON: {error}.") from None
    raise _error(model, given, refused)


def convert(model: type[M], given: Any, strict: bool = True) -> M:
    """A value as a request; InvalidInputError says what is wrong with it.

    strict : False if numbers are texts, as in the query of an address
    """
    try:
        return msgspec.convert(given, model, strict=strict)
    except msgspec.ValidationError as error:
        raise _error(model, given, str(error), strict) from None


def time_in(text: str, field: str) -> datetime:
    """A time that a field of a request gives."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _fault(field, text, "a time such as 2025-01-31T12:00:00Z") from None


def _error(model: type[Struct], given: Any, refused: str, strict: bool = True) -> InvalidInputError:
    """Explain a refused request in sentences; fields are of the first fault."""
    faults = list(_faults(model, given, strict)) or [InvalidInputError(f"{refused}.")]
    sentences = [str(fault) for fault in faults[:MOST_FAULTS]]
    if len(faults) > MOST_FAULTS:
        sentences.append(f"And {len(faults) - MOST_FAULTS} more.")
    error = faults[0]
    error.args = (" ".join(sentences),)
    return error


def _faults(
    model: type[Struct], given: Any, strict: bool, path: str = ""
) -> Iterator[InvalidInputError]:
    fields = {field.name: field for field in msgspec.structs.fields(model)}
    keys = ", ".join(fields)
    if not isinstance(given, dict):
        named = f" with the key{'s' * (len(fields) != 1)} {keys}" if fields else ""
        yield _fault(path or "the body", given, f"an object{named}")
        return
    for key, field in fields.items():
        name, expected = f"{path}.{key}" if path else key, descriptions(model)[key]
        if key not in given:
            if field.required:
                yield InvalidInputError(
                    f"there is no {name}; expected {expected}.", field=name, expected=expected
                )
            continue
        value = given[key]
        if _fits(value, field.type, strict):
            continue
        entries = get_args(field.type)[:1] if isinstance(value, list) else ()
        if entries and isinstance(entries[0], type) and issubclass(entries[0], Struct):
            # Only the first entry that is wrong: a list of all of them could be very long.
            each = (_faults(entries[0], one, strict, f"{name}[{i}]") for i, one in enumerate(value))
            yield from next((found for faults in each if (found := list(faults))), ())
        elif _is_number(value) and _fits(str(value), field.type, strict):
            yield _fault(name, value, f'a text: send it as "{shortened(value)}"')
        else:
            yield _fault(name, value, expected)
    open_to_more = not model.__struct_config__.forbid_unknown_fields
    for key in () if open_to_more else given:
        if key not in fields:
            where = f" in {path}" if path else ""
            meant, hint = MISTAKEN.get(key, ("", ""))
            end = f"; {hint}." if meant in fields else did_you_mean(key, tuple(fields))
            known = f"the keys are {keys}{end}" if fields else "none is expected."
            yield InvalidInputError(f"there is no key {shortened(key)}{where}; {known}", field=key)


def _fault(field: str, given: Any, expected: str) -> InvalidInputError:
    message = f"{field} is {shortened(given)}; expected {expected}."
    return InvalidInputError(message, field=field, given=given, expected=expected)


def _fits(value: Any, kind: Any, strict: bool) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    try:
        msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
