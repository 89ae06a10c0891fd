"""What is answered to a reward: stored, there already, or why not. Nothing is stored here."""

from __future__ import annotations

from typing import Literal

from steadyarm.errors import (
    InvalidInputError,
    RepeatedRewardError,
    RewardTooLateError,
    SteadyArmError,
    UnknownAssignmentError,
)
from steadyarm.settings import Settings
from steadyarm.storages.records import Outcome

__all__ = ["told"]


def told(
    name: str, settings: Settings, target: str, reward: float, outcome: Outcome
) -> Literal["stored", "repeated"] | SteadyArmError:
    """The answer to the reward of a target, in the experiment of that name."""
    if outcome.status == "stored" or outcome.status == "repeated":
        return outcome.status
    if outcome.status == "unknown":
        return UnknownAssignmentError(
            f"{target!r} is neither the id of an assignment of {name!r} nor a unit that has one; "
            "tell rewards by what ask() gave."
        )
    if outcome.status == "conflict":
        return RepeatedRewardError(
            f"{target!r} has the reward {outcome.told!r} already, {reward!r} is another; the first "
            "one counts."
        )
    if outcome.status == "early":
        return InvalidInputError(
            f"the reward of {target!r} is said to have happened before its assignment; check `at`, "
            "and the clock of whoever reported it, and tell it again."
        )
    if settings.reward_window is None:
        return RewardTooLateError(
            f"the rewards around {target!r} are closed already; this one came too late to count."
        )
    return RewardTooLateError(
        f"the reward of {target!r} happened after its window of {settings.reward_window:g} "
        f"seconds, or arrived more than {settings.reward_grace:g} seconds after it; what was "
        f"missing then counts as missing={settings.missing!r} says."
    )
