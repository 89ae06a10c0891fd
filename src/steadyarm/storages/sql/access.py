"""Who may come in, and who did what: tokens, sessions, the audit log. Inside a transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, text

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import AuditEntry, SessionRecord, TokenRecord, removable
from steadyarm.storages.sql.schema import AnyRow, audit, dump, if_free, marks, sessions, tokens

__all__ = [
    "CLOSED",
    "add_session",
    "add_token",
    "closed",
    "entries",
    "find_session",
    "list_tokens",
    "note",
    "remove_session",
    "remove_token",
    "reserve",
    "reserve_many",
]

TURN = 0x57EAD7A4  # PostgreSQL's advisory lock of those who write to the audit log

CLOSED = "closed"  # the mark; its value is when the first token was made
CLOSE = if_free(marks, marks.c.name)
IS_CLOSED = select(marks.c.value).where(marks.c.name == CLOSED)

ADD_TOKEN = if_free(tokens, tokens.c.name)
TOKENS = select(tokens).order_by(tokens.c.created, tokens.c.name)
# Whoever removes a token locks all: of two who remove the last two, the second sees one left.
LOCKED_TOKENS = TOKENS.with_for_update()
KEPT_TOKEN = select(tokens).where(tokens.c.hash == bindparam("of_hash")).with_for_update(read=True)
REMOVE_TOKEN = delete(tokens).where(tokens.c.name == bindparam("of_name"))

ADD_SESSION = insert(sessions)
FIND_SESSION = select(sessions).where(
    sessions.c.id == bindparam("of_id"), sessions.c.expires > bindparam("now")
)
REMOVE_SESSION = delete(sessions).where(sessions.c.id == bindparam("of_id"))
REMOVE_SESSIONS = delete(sessions).where(sessions.c.token == bindparam("of_hash"))
REMOVE_EXPIRED = delete(sessions).where(sessions.c.expires <= bindparam("now"))

NOTE = insert(audit).returning(audit.c.id)
NEXT = {
    "sqlite": text(f"SELECT 1 + max(seq) FROM sqlite_sequence WHERE name = '{audit.name}'"),
    "postgresql": text(f"SELECT nextval(pg_get_serial_sequence('{audit.name}', 'id'))"),
}
ENTRIES = (
    select(audit)
    .where(audit.c.id > bindparam("after"))
    .order_by(audit.c.id)
    .limit(bindparam("most"))
)
ENTRIES_OF = ENTRIES.where(audit.c.experiment == bindparam("of"))


def closed(connection: Connection) -> bool:
    """See `Storage.closed`."""
    return connection.execute(IS_CLOSED).scalar() is not None


def add_token(connection: Connection, token: TokenRecord, by: str) -> None:
    """See `Storage.add_token`."""
    dialect = connection.dialect.name
    row = {
        "name": token.name,
        "hash": token.hash,
        "scope": token.scope,
        "created": token.created,
    }
    if connection.execute(ADD_TOKEN[dialect], row).scalar() is None:
        raise InvalidInputError(f"there is a token {token.name!r} already; choose another name.")
    connection.execute(CLOSE[dialect], {"name": CLOSED, "value": token.created})
    detail = {"name": token.name, "scope": token.scope}
    note(connection, token.created, by, "token.created", detail=detail)


def list_tokens(connection: Connection) -> list[TokenRecord]:
    """See `Storage.tokens`."""
    return [_token(row) for row in connection.execute(TOKENS)]


def remove_token(
    connection: Connection, name: str, by: str, now: int, lock_out: bool
) -> TokenRecord:
    """See `Storage.remove_token`."""
    kept = [_token(row) for row in connection.execute(LOCKED_TOKENS)]
    token = removable(name, kept, lock_out)
    connection.execute(REMOVE_TOKEN, {"of_name": name})
    connection.execute(REMOVE_SESSIONS, {"of_hash": token.hash})
    note(connection, now, by, "token.removed", detail={"name": name, "scope": token.scope})
    return token


def _token(row: AnyRow) -> TokenRecord:
    return TokenRecord(row.name, row.hash, row.scope, row.created)


def add_session(connection: Connection, session: SessionRecord) -> None:
    """See `Storage.add_session`."""
    if connection.execute(KEPT_TOKEN, {"of_hash": session.token}).first() is None:
        raise InvalidInputError("the token of the session was removed; use another one.")
    connection.execute(REMOVE_EXPIRED, {"now": session.created})
    row = {
        "id": session.id,
        "token": session.token,
        "created": session.created,
        "expires": session.expires,
    }
    connection.execute(ADD_SESSION, row)


def find_session(connection: Connection, id: str, now: int) -> SessionRecord | None:
    """See `Storage.find_session`."""
    row = connection.execute(FIND_SESSION, {"of_id": id, "now": now}).one_or_none()
    return None if row is None else SessionRecord(row.id, row.token, row.created, row.expires)


def remove_session(connection: Connection, id: str) -> None:
    """See `Storage.remove_session`."""
    connection.execute(REMOVE_SESSION, {"of_id": id})


def note(
    connection: Connection,
    now: int,
    author: str,
    action: str,
    experiment: str | None = None,
    detail: Mapping[str, Any] | None = None,
    *,
    id: int | None = None,
) -> int:
    """Append an entry to the audit log; its id. The arguments are those of `AuditEntry`.

    id : that was reserved before; by default the next one
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
    return int(connection.execute(NOTE, row).scalar_one())


def reserve(connection: Connection) -> int:
    """The id of an entry that is noted later in the transaction; others wait until its end."""
    _take_turn(connection)
    return int(connection.execute(NEXT[connection.dialect.name]).scalar() or 1)


def reserve_many(connection: Connection, old: Sequence[int]) -> dict[int, int]:
    """New ids for entries that were made elsewhere, in their order; nothing if there are none."""
    if not old:
        return {}
    if connection.dialect.name == "sqlite":
        first = reserve(connection)
        return {entry: first + i for i, entry in enumerate(old)}
    return {entry: reserve(connection) for entry in old}


def _take_turn(connection: Connection) -> None:
    """Wait for others who write to the audit log, so that ids appear in their order."""
    if connection.dialect.name == "postgresql":  # where ids are counted before they are committed
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})


def entries(
    connection: Connection, after: int, most: int, experiment: str | None
) -> list[AuditEntry]:
    """See `Storage.audit`."""
    statement = ENTRIES if experiment is None else ENTRIES_OF
    found = connection.execute(statement, {"after": after, "most": most, "of": experiment})
    return [
        AuditEntry(
            row.id, row.created, row.author, row.action, row.experiment, json.loads(row.detail)
        )
        for row in found
    ]
