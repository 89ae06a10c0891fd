"""What requests may say; they are checked with these, strictly.

Descriptions follow the word "expected" when a value is refused. Long lists are refused at their
first fault: a list of all of them could be very long.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, WithJsonSchema, model_validator

from steadyarm.experiment import LONGEST

__all__ = [
    "Asked",
    "AuditQuery",
    "DriftQuery",
    "ExportQuery",
    "NewAssignment",
    "NewAssignments",
    "NewCorrection",
    "NewExperiment",
    "NewLease",
    "NewReward",
    "NewRewards",
    "NoQuery",
    "Query",
    "RecommendationQuery",
    "Used",
    "UsedPosition",
]

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
