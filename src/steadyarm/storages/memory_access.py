"""Tokens and the audit log in memory; whoever uses them takes care of locks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import AuditEntry, TokenRecord

__all__ = ["AccessBooks"]


class AccessBooks:
    """Who may come in, and who did what.

    Attributes
    ----------
    tokens : by name
    entries : the audit log
    """

    def __init__(self) -> None:
        self.tokens: dict[str, TokenRecord] = {}
        self.entries: list[AuditEntry] = []

    def add_token(self, token: TokenRecord, by: str) -> None:
        """See `Storage.add_token`."""
        if token.name in self.tokens:
            raise InvalidInputError(
                f"there is a token {token.name!r} already; remove it or take another name."
            )
        self.tokens[token.name] = token
        detail = {"name": token.name, "scope": token.scope}
        self.note(token.created, by, "token.created", detail=detail)

    def remove_token(self, name: str, by: str, now: int) -> None:
        """See `Storage.remove_token`."""
        token = self.tokens.pop(name, None)
        if token is None:
            raise InvalidInputError(f"there is no token {name!r}; list them to see which are.")
        self.note(now, by, "token.removed", detail={"name": name, "scope": token.scope})

    def note(
        self,
        now: int,
        author: str,
        action: str,
        experiment: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an entry to the audit log; its id. The arguments are those of `AuditEntry`."""
        kept = json.loads(json.dumps(detail or {}))  # a copy, and refused if others refuse it
        number = len(self.entries) + 1
        self.entries.append(AuditEntry(number, now, author, action, experiment, kept))
        return number

    def audit(self, after: int, most: int) -> list[AuditEntry]:
        """See `Storage.audit`."""
        return self.entries[max(after, 0) :][:most]
