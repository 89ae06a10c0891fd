"""What programs are told of experiments: the same plain values over HTTP and on the command line.

Names of problems are here, too, so that the service, its client and the command line agree on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

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
from steadyarm.inference.evidence import json_ready
from steadyarm.live.assignments import LiveAssignment, Status, to_datetime
from steadyarm.live.experiment import Experiment
from steadyarm.live.replay import Replay
from steadyarm.live.settings import Settings, variants_in
from steadyarm.live.verdict import Verdict
from steadyarm.storages.changes import AuditEntry
from steadyarm.storages.records import ExperimentRecord, SegmentRecord

__all__ = [
    "PROBLEM",
    "PROBLEMS",
    "allocation_facts",
    "assignment_facts",
    "entry_facts",
    "experiment_facts",
    "iso",
    "record_facts",
    "replay_facts",
    "settings_facts",
    "verdict_facts",
]

MOST = 500  # variants of very many that are told of

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
        "created": iso(to_datetime(record.created)),
        "budget": config["budget"],
        "policy": config["policy"]["name"],
        "arms": variants_in(config),
    }


def experiment_facts(experiment: Experiment) -> dict[str, Any]:
    """All of one experiment, and where it stands."""
    status = experiment.status()
    indices, assigned, rewarded = _counts(status, experiment.arms.names)
    return {
        "name": status.name,
        "state": status.state,
        "created": iso(status.created),
        "settings": json_ready(settings_facts(experiment.settings)),
        "assigned": assigned,
        "rewarded": rewarded,
        "indices": indices,
        "totals": {
            "variants": experiment.arms.size,
            "handed_out": sum(count > 0 for count in status.assigned),
            "assigned": status.total_assigned,
            "rewarded": status.total_rewarded,
            "excluded": status.excluded,
        },
        "segments": status.segments,
        "observed": status.observed,
        "leased": status.leased,
    }


def settings_facts(settings: Settings) -> dict[str, Any]:
    """What it was created with; of very many variants in a table not the table.

    Nor the coordinates that variants are computed in: the features say all about them.
    """
    arms = settings.arms
    if not arms.large or arms.recipe is not None:
        told = {key: value for key, value in arms.to_dict().items() if key != "span"}
        return settings.to_dict(told)
    return settings.to_dict({"count": arms.size, "feature_names": list(arms.feature_names)})


def _counts(
    status: Status, names: Sequence[str]
) -> tuple[dict[str, int] | None, dict[str, int], dict[str, int]]:
    """Indices, assignments and rewards by name; None for indices if these are all variants."""
    if status.arms is None:
        pairs = dict(zip(names, status.assigned, strict=True))
        return None, pairs, dict(zip(names, status.rewarded, strict=True))
    rows = sorted(
        zip(status.arms, status.assigned, status.rewarded, strict=True),
        key=lambda row: (-row[1], row[0]),
    )
    named = [(names[row[0]], row) for row in rows[:MOST]]
    indices, assigned, rewarded = ({name: row[i] for name, row in named} for i in range(3))
    return indices, assigned, rewarded


def allocation_facts(record: SegmentRecord, names: Sequence[str]) -> dict[str, Any]:
    """What is handed out now; of very many variants the most likely."""
    segment = record.segment
    weights = segment.weights[0]
    shown = np.arange(segment.columns)
    if segment.arms is not None:
        shown = np.argsort(-weights, kind="stable")[:MOST]
    return {
        "segment": record.index,
        "policy_version": record.policy_version,
        "weights": {names[segment.arm_at(c)]: float(weights[c]) for c in shown.tolist()},
        "played": int((weights > 0).sum()),
        "rounds": record.rounds,
        "order": segment.order,
        "block": segment.block,
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
    """A verdict; None where a number is unknown or has no end.

    Of a large set `arms` are a short list, and `others` counts those beside it that are plausible.
    """
    low, high = verdict.intervals.T
    gap_low, gap_high = verdict.gap_intervals.T
    shown = range(len(names)) if verdict.shown is None else verdict.shown.tolist()
    columns = {
        "estimate": verdict.estimates,
        "standard_error": verdict.standard_errors,
        "low": low,
        "high": high,
        "gap": verdict.gaps,
        "gap_low": gap_low,
        "gap_high": gap_high,
    }
    facts: dict[str, Any] = json_ready(
        {
            "arm": verdict.name,
            "sure": verdict.sure,
            "level": verdict.level,
            "anytime": verdict.anytime,
            "method": verdict.method,
            "assumption": verdict.assumption,
            "rewards": verdict.rewards,
            "missing": verdict.missing,
            "judged": verdict.judged,
            "waiting": verdict.waiting,
            "pending": verdict.pending,
            "until": None if verdict.until is None else iso(verdict.until),
            "unhealthy": verdict.unhealthy,
            "caution": verdict.caution,
            "plausible": verdict.plausible,
            "others": verdict.others,
            "variants": verdict.variants,
            "arms": [
                {"name": names[k], "index": k}
                | {key: column[row] for key, column in columns.items()}
                for row, k in enumerate(shown)
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
        "corrections": found.corrections,
    }


def entry_facts(entry: AuditEntry) -> dict[str, Any]:
    """One entry of the audit log; the ends of a period as times."""
    detail = {
        name: iso(to_datetime(value)) if name in ("since", "until") else value
        for name, value in entry.detail.items()
    }
    return {
        "id": entry.id,
        "created": iso(to_datetime(entry.created)),
        "author": entry.author,
        "action": entry.action,
        "experiment": entry.experiment,
        "detail": detail,
    }


def iso(when: datetime) -> str:
    """A time as programs read it."""
    return when.isoformat().replace("+00:00", "Z")
