"""The audit log: who did what, and when. Entries are only ever appended.

Entries become visible in the order of their ids, so a reader who goes on after the last id seen
misses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert, select, text

from steadyarm.storages.changes import AuditEntry
from steadyarm.storages.schema import audit, dump, load

TURN = 0x57EAD7A4  # PostgreSQL's advisory lock for writing to the audit log
NEXT = {
    "sqlite": text(f"SELECT 1 + max(seq) FROM sqlite_sequence WHERE name = '{audit.name}'"),
    "postgresql": text(f"SELECT nextval(pg_get_serial_sequence('{audit.name}', 'id'))"),
}


def note(
    connection: Connection,
    now: int,
    author: str,
    action: str,
    experiment: str | None = None,
    detail: Mapping[str, Any] | None = None,
    *,
    id: int | None = None,
) -> None:
    """Append an entry to the audit log. The arguments are those of `AuditEntry`.

    id : one that was reserved; by default the next one
    """
    row: dict[str, Any] = {
        "created": now,
        "author": author,
        "action": action,
        "experiment": experiment,
        "detail": dump(detail or {}),
    }
    if id is None:
        _take_turn(connection)
    else:
        row["id"] = id
    connection.execute(insert(audit), row)


def reserve(connection: Connection) -> int:
    """The id of an entry that follows in this transaction; others wait until its end."""
    _take_turn(connection)
    return int(connection.execute(NEXT[connection.dialect.name]).scalar() or 1)


def read_entries(
    connection: Connection, after: int, most: int, experiment: str | None
) -> list[AuditEntry]:
    """The next entries after an id; only those of an experiment if its name is given."""
    page = select(audit).where(audit.c.id > after).order_by(audit.c.id).limit(most)
    if experiment is not None:
        page = page.where(audit.c.experiment == experiment)
    entries = [AuditEntry(*row) for row in connection.execute(page)]
    return [replace(entry, detail=load(str(entry.detail))) for entry in entries]


def _take_turn(connection: Connection) -> None:
    """Wait for others who write to the audit log, so that entries appear in the order of ids."""
    if connection.dialect.name == "postgresql":  # where an id is taken before it is committed
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})
