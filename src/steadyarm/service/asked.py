"""What requests may say; they are checked with these, strictly."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from steadyarm.experiment import LONGEST

__all__ = [
    "Asked",
    "DriftQuery",
    "ExportQuery",
    "NewAssignment",
    "NewAssignments",
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

Share = Annotated[float, Field(ge=0, lt=1)]
Unit = Annotated[str, Field(min_length=1, max_length=LONGEST, pattern=r"^[^\u0000]*$")]
Id = Annotated[str, Field(min_length=1, max_length=LONGEST)]


class Asked(BaseModel):
    """Something that a request says."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class NewExperiment(Asked):
    """An experiment to be created; see `create_from_description`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", examples=["checkout"])
    arms: list[str] | dict[str, Any] = Field(
        description="names, or one of the tables one_hot, factorial, bundles, features",
        examples=[["A", "B", "C"]],
    )
    policy: str | dict[str, Any] = Field("steady", examples=["steady"])
    budget: int = Field(ge=1, lt=2**53, examples=[10000])
    seed: int | None = Field(None, ge=0, lt=2**63)
    direction: Literal["maximize", "minimize"] = "maximize"
    reward_range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    reward_window: float | str | None = Field(None, description="seconds, or such as 90m, 12h, 7d")
    missing: Literal["zero", "drop", "fail"] = "zero"
    sticky: Literal["unit", "none"] = "unit"
    control: dict[str, Share] | None = None
    min_share: dict[str, Share] | Share | None = None
    start: bool = True
    load_if_exists: bool = False


class NewAssignment(Asked):
    """Who gets a variant."""

    unit: Unit | None = Field(None, description="needed unless the experiment has sticky: none")


class NewAssignments(Asked):
    """Who get variants."""

    units: list[str | None]


class NewReward(Asked):
    """The reward of an assignment, by its id or its unit."""

    assignment: Id | None = None
    unit: Unit | None = None
    reward: float

    @model_validator(mode="after")
    def _one_of_them(self) -> NewReward:
        if (self.assignment is None) == (self.unit is None):
            raise ValueError("expected either assignment or unit")
        return self


class NewRewards(Asked):
    """Rewards of many assignments."""

    rewards: list[NewReward]


class NewLease(Asked):
    """Positions to hand out without asking for each."""

    positions: int = Field(1000, ge=1)
    seconds: float = Field(60.0, gt=0, le=3600)


class UsedPosition(Asked):
    """One position of a lease that was handed out."""

    position: int = Field(ge=0, lt=2**32)
    unit: str
    created: str = Field(json_schema_extra={"format": "date-time"})


class Used(Asked):
    """What was handed out from a lease."""

    used: list[UsedPosition]


class Query(BaseModel):
    """What stands behind the question mark of an address."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class NoQuery(Query):
    """Nothing."""


class RecommendationQuery(Query):
    """How sure, and whether it is looked at more than once."""

    level: float = Field(0.95, gt=0, lt=1)
    anytime: bool = False


class DriftQuery(Query):
    """In how many shares, and how sure."""

    periods: int = Field(4, ge=1, le=1000)
    level: float = Field(0.95, gt=0, lt=1)


class ExportQuery(Query):
    """As which kind of file."""

    format: Literal["csv", "parquet"] = "csv"
