"""Tokens, sessions and the audit log in memory; whoever uses them takes care of locks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import AuditEntry, SessionRecord, TokenRecord, removable

__all__ = ["AccessBooks"]


class AccessBooks:
    """Who may come in, and who did what.

    Attributes
    ----------
    closed : whether there is a token or has ever been one
    tokens : by name
    sessions : by the hash of their id
    entries : the audit log
    """

    def __init__(self) -> None:
        self.closed = False
        self.tokens: dict[str, TokenRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.entries: list[AuditEntry] = []

    def add_token(self, token: TokenRecord, by: str) -> None:
        """See `Storage.add_token`."""
        if token.name in self.tokens:
            raise InvalidInputError(
                f"there is a token {token.name!r} already; remove it or take another name."
            )
        self.tokens[token.name] = token
        self.closed = True
        detail = {"name": token.name, "scope": token.scope}
        self.note(token.created, by, "token.created", detail=detail)

    def remove_token(self, name: str, by: str, now: int, lock_out: bool) -> TokenRecord:
        """See `Storage.remove_token`."""
        token = removable(name, self.tokens.values(), lock_out)
        del self.tokens[name]
        self.sessions = {
            id_: session for id_, session in self.sessions.items() if session.token != token.hash
        }
        self.note(now, by, "token.removed", detail={"name": name, "scope": token.scope})
        return token

    def add_session(self, session: SessionRecord) -> None:
        """See `Storage.add_session`."""
        if all(token.hash != session.token for token in self.tokens.values()):
            raise InvalidInputError("the token of the session was removed; use another one.")
        kept = {id_: s for id_, s in self.sessions.items() if s.expires > session.created}
        self.sessions = kept | {session.id: session}

    def find_session(self, id: str, now: int) -> SessionRecord | None:
        """See `Storage.find_session`."""
        session = self.sessions.get(id)
        return session if session is not None and session.expires > now else None

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

    def audit(self, after: int, most: int, experiment: str | None) -> list[AuditEntry]:
        """See `Storage.audit`."""
        later = islice(self.entries, max(after, 0), None)
        wanted = (e for e in later if experiment is None or e.experiment == experiment)
        return list(islice(wanted, most))
