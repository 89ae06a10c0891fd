"""Records as plain values for JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

import numpy as np

from steadyarm.segments import Order, Segment
from steadyarm.storages.records import ExperimentRecord, ExperimentState, SegmentRecord
from steadyarm.validation import check_choice, whole_number

__all__ = ["record_from", "record_to", "segment_from", "segment_to"]


def record_to(record: ExperimentRecord) -> dict[str, Any]:
    """An experiment's record without its key, which belongs to its storage."""
    values = asdict(record)
    del values["key"]
    return values


def record_from(values: Mapping[str, Any]) -> ExperimentRecord:
    """The record that `record_to` wrote."""
    record = ExperimentRecord(key=0, **values)
    check_choice(record.state, "state", get_args(ExperimentState))
    for name in ("created", "version", "observed"):
        whole_number(getattr(record, name), name)
    return record


def segment_to(record: SegmentRecord) -> dict[str, Any]:
    """A segment with its allocation and reference, floats to the bit."""
    segment = record.segment
    some = {} if segment.arms is None else {"arms": segment.arms.tolist()}
    return some | {
        "index": record.index,
        "weights": segment.weights[0].tolist(),
        "rounds": record.rounds,
        "order": segment.order,
        "block": segment.block,
        "reference": None if segment.reference is None else segment.reference[0].tolist(),
        "carried_on": record.carried_on,
        "superseded": record.superseded,
        "policy_version": record.policy_version,
        "opened": record.opened,
        "handed": record.handed,
        "closed": record.closed,
        "closed_at": record.closed_at,
    }


def segment_from(values: Mapping[str, Any]) -> SegmentRecord:
    """The segment that `segment_to` wrote."""
    rest = dict(values)
    weights, rounds, order, block, reference = (
        rest.pop(name) for name in ("weights", "rounds", "order", "block", "reference")
    )
    arms = rest.pop("arms", None)
    check_choice(order, "order", get_args(Order))
    segment = Segment(
        np.array([weights], dtype=np.float64),
        np.array([whole_number(rounds, "rounds", least=1)]),
        order,
        whole_number(block, "block", least=1),
        None if reference is None else np.array([reference], dtype=np.float64),
        None if arms is None else np.array(arms, dtype=np.int64),
    )
    count = len(weights) if arms is None else max(arms, default=0) + 1
    return SegmentRecord(segment=segment.checked(count), **rest)
