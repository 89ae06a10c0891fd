"""Changes of stored rows behind the back of a storage, which a replay must notice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import text

import steadyarm as sa
from steadyarm.storages.records import SegmentRecord
from steadyarm.storages.schema import segments
from steadyarm.storages.storage import segment_row


def tamper(live: sa.Experiment, statement: str, **values: Any) -> None:
    """Execute a statement that changes rows; `:key` is the experiment's key."""
    storage: Any = live.storage
    changed = storage._database.write(
        lambda connection: connection.execute(text(statement), {"key": live.key} | values).rowcount
    )
    assert changed, "the statement changed nothing"


def tamper_with_segment(
    live: sa.Experiment, index: int, change: Callable[[SegmentRecord], SegmentRecord]
) -> None:
    """Replace a stored segment."""
    storage: Any = live.storage
    row = segment_row(live.key, change(storage.segments(live.key, [index])[index]))
    this = segments.update().where(segments.c.key == live.key, segments.c.index == index)
    storage._database.write(lambda connection: connection.execute(this.values(row)).close())


def tamper_with_state(live: sa.Experiment, change: Callable[[Any], object]) -> None:
    """Change the policy's stored state in place."""
    state = json.loads(json.dumps(live.storage.find(live.name).policy_state))
    change(state)
    statement = "UPDATE steadyarm_experiments SET policy_state = :state WHERE key = :key"
    tamper(live, statement, state=json.dumps(state))
