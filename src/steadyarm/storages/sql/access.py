"""Who may come in, and who did what: tokens and the audit log. Inside a transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, text

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import AuditEntry, TokenRecord
from steadyarm.storages.sql.many import if_free
from steadyarm.storages.sql.schema import audit, dump, tokens

__all__ = ["add_token", "entries", "list_tokens", "note", "remove_token"]

TURN = 0x57EAD7A4  # PostgreSQL's advisory lock of those who write to the audit log

ADD_TOKEN = if_free(tokens, tokens.c.name)
TOKENS = select(tokens).order_by(tokens.c.created, tokens.c.name)
REMOVE_TOKEN = delete(tokens).where(tokens.c.name == bindparam("of_name")).returning(tokens.c.scope)

NOTE = insert(audit).returning(audit.c.id)
ENTRIES = (
    select(audit)
    .where(audit.c.id > bindparam("after"))
    .order_by(audit.c.id)
    .limit(bindparam("most"))
)


def add_token(connection: Connection, token: TokenRecord, by: str) -> None:
    """See `Storage.add_token`."""
    row = {
        "name": token.name,
        "hash": token.hash,
        "scope": token.scope,
        "created": token.created,
    }
    if connection.execute(ADD_TOKEN[connection.dialect.name], row).scalar() is None:
        raise InvalidInputError(f"there is a token {token.name!r} already; choose another name.")
    detail = {"name": token.name, "scope": token.scope}
    note(connection, token.created, by, "token.created", detail=detail)


def list_tokens(connection: Connection) -> list[TokenRecord]:
    """See `Storage.tokens`."""
    return [
        TokenRecord(row.name, row.hash, row.scope, row.created)
        for row in connection.execute(TOKENS)
    ]


def remove_token(connection: Connection, name: str, by: str, now: int) -> None:
    """See `Storage.remove_token`."""
    scope = connection.execute(REMOVE_TOKEN, {"of_name": name}).scalar()
    if scope is None:
        raise InvalidInputError(f"there is no token {name!r}; list them to see which are.")
    note(connection, now, by, "token.removed", detail={"name": name, "scope": scope})


def note(
    connection: Connection,
    now: int,
    author: str,
    action: str,
    experiment: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> int:
    """Append an entry to the audit log; its id. The arguments are those of `AuditEntry`."""
    if connection.dialect.name == "postgresql":
        # Ids are counted before they are committed; in turn, they appear in their order.
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})
    row = {
        "created": now,
        "author": author,
        "action": action,
        "experiment": experiment,
        "detail": dump(detail or {}),
    }
    return int(connection.execute(NOTE, row).scalar_one())


def entries(connection: Connection, after: int, most: int) -> list[AuditEntry]:
    """See `Storage.audit`."""
    found = connection.execute(ENTRIES, {"after": after, "most": most})
    return [
        AuditEntry(
            row.id, row.created, row.author, row.action, row.experiment, json.loads(row.detail)
        )
        for row in found
    ]
