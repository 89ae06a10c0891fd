"""What programs are told of experiments: the same plain values over HTTP and on the command line.

Names of problems are here, too, so that the service, its client and the command line agree on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from steadyarm.answers import LiveAssignment, moment
from steadyarm.errors import (
    BudgetSpentError,
    ExperimentExistsError,
    InvalidInputError,
    LeaseExpiredError,
    RepeatedRewardError,
    RewardsPendingError,
    RewardTooLateError,
    SteadyArmError,
    StorageError,
    UnknownAssignmentError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.experiment import Experiment
from steadyarm.inference.plain import plain
from steadyarm.replay import Replay
from steadyarm.storages.records import ExperimentRecord
from steadyarm.verdict import Verdict

__all__ = [
    "PROBLEM",
    "PROBLEMS",
    "assignment_facts",
    "experiment_facts",
    "iso",
    "record_facts",
    "replay_facts",
    "verdict_facts",
]

PROBLEM = "urn:steadyarm:problem:"
PROBLEMS: dict[str, type[SteadyArmError]] = {
    "invalid-input": InvalidInputError,
    "unknown-experiment": UnknownExperimentError,
    "unknown-assignment": UnknownAssignmentError,
    "experiment-exists": ExperimentExistsError,
    "wrong-state": WrongStateError,
    "budget-spent": BudgetSpentError,
    "rewards-pending": RewardsPendingError,
    "reward-conflict": RepeatedRewardError,
    "reward-too-late": RewardTooLateError,
    "lease-expired": LeaseExpiredError,
    "storage-unavailable": StorageError,
}


def record_facts(record: ExperimentRecord) -> dict[str, Any]:
    """One of many experiments, in short."""
    config = record.config
    return {
        "name": record.name,
        "state": record.state,
        "created": iso(moment(record.created)),
        "budget": config["budget"],
        "policy": config["policy"]["name"],
        "arms": len(config["arms"]["names"]),
    }


def experiment_facts(experiment: Experiment) -> dict[str, Any]:
    """All of one experiment, and where it stands."""
    status, names = experiment.status(), experiment.arms.names
    return {
        "name": status.name,
        "state": status.state,
        "created": iso(status.created),
        "settings": plain(experiment.settings.to_dict()),
        "assigned": dict(zip(names, status.assigned, strict=True)),
        "rewarded": dict(zip(names, status.rewarded, strict=True)),
        "segments": status.segments,
        "observed": status.observed,
        "leased": status.leased,
    }


def assignment_facts(answer: LiveAssignment) -> dict[str, Any]:
    """One variant handed out."""
    return {
        "id": answer.id,
        "unit": answer.unit,
        "arm": answer.name,
        "probability": answer.probability,
        "created": iso(answer.created),
    }


def verdict_facts(verdict: Verdict, names: Sequence[str]) -> dict[str, Any]:
    """A verdict; None where a number is unknown or has no end."""
    low, high = verdict.intervals.T
    gap_low, gap_high = verdict.gap_intervals.T
    columns = {
        "estimate": verdict.estimates,
        "standard_error": verdict.standard_errors,
        "low": low,
        "high": high,
        "gap": verdict.gaps,
        "gap_low": gap_low,
        "gap_high": gap_high,
    }
    facts: dict[str, Any] = plain(
        {
            "arm": verdict.name,
            "sure": verdict.sure,
            "level": verdict.level,
            "anytime": verdict.anytime,
            "method": verdict.method,
            "assumption": verdict.assumption,
            "rewards": verdict.rewards,
            "missing": verdict.missing,
            "plausible": verdict.plausible,
            "arms": [
                {"name": name} | {key: column[k] for key, column in columns.items()}
                for k, name in enumerate(names)
            ],
        }
    )
    return facts


def replay_facts(found: Replay) -> dict[str, Any]:
    """Whether the log leads to what is stored."""
    return {
        "agrees": found.agrees,
        "assignments": found.assignments,
        "rewards": found.rewards,
        "segments": found.segments,
        "differences": list(found.differences),
    }


def iso(when: datetime) -> str:
    """A time as programs read it."""
    return when.isoformat().replace("+00:00", "Z")
