"""Who may use the service: tokens, and the sessions of people who signed in to the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from steadyarm.errors import InvalidInputError
from steadyarm.storages.audit import note
from steadyarm.storages.changes import SessionRecord, TokenRecord
from steadyarm.storages.engine import Database
from steadyarm.storages.schema import CLOSED, AnyRow, dump, load, marks, sessions, tokens

ORDERED = select(tokens).order_by(tokens.c.created, tokens.c.name)
LISTS = ("experiments", "origins")  # of a token, stored as JSON


class Tokens:
    """The tokens of a storage.

    A storage is open until its first token is added, and closed for ever after that, even when all
    tokens are removed: a service on it then admits nobody.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def closed(self) -> bool:
        """Whether there has ever been a token."""
        mark = select(marks.c.value).where(marks.c.name == CLOSED)
        return self._database.read_one(lambda c: c.execute(mark).scalar()) is not None

    def all(self) -> list[TokenRecord]:
        """All tokens, in the order of their creation."""
        return self._database.read_one(lambda c: [_token_of(row) for row in c.execute(ORDERED)])

    def add(self, token: TokenRecord, *, by: str = "") -> None:
        """Add a token and close the storage; InvalidInputError if the name is taken."""
        row = asdict(token) | {name: dump(getattr(token, name)) for name in LISTS}
        mark = {"name": CLOSED, "value": token.created}

        def work(connection: Connection) -> None:
            taken = select(tokens.c.name).where(tokens.c.name == token.name)
            if connection.execute(taken).first() is not None:
                raise InvalidInputError(
                    f"there is a token {token.name!r} already; choose another name."
                )
            connection.execute(insert(tokens), row)
            connection.execute(upsert(marks).on_conflict_do_nothing(), mark)
            note(connection, token.created, by, "token.created", detail=token.detail)

        self._database.write(work)

    def remove(self, name: str, *, now: int, by: str = "", lock_out: bool = False) -> TokenRecord:
        """Remove a token and end its sessions; returns its record.

        InvalidInputError if there is none of that name; or if no token would be left, or none with
        the scope admin where there was one, unless `lock_out` is true.
        """

        def work(connection: Connection) -> TokenRecord:
            # All are locked: if two callers remove the last two, the second sees one left.
            known = [_token_of(row) for row in connection.execute(ORDERED.with_for_update())]
            token = _removable(name, known, lock_out)
            connection.execute(delete(tokens).where(tokens.c.name == name))
            connection.execute(delete(sessions).where(sessions.c.token == token.hash))
            note(connection, now, by, "token.removed", detail=token.detail)
            return token

        return self._database.write(work)


class Sessions:
    """Sessions of the dashboard, which end when they are removed or expire, or with their token."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, session: SessionRecord) -> None:
        """Add a session, and remove those that had expired when it was created.

        InvalidInputError if there is no token with the session's hash.
        """

        def work(connection: Connection) -> None:
            token = select(tokens).where(tokens.c.hash == session.token)
            if connection.execute(token.with_for_update(read=True)).first() is None:
                raise InvalidInputError("the token of the session was removed; use another one.")
            connection.execute(delete(sessions).where(sessions.c.expires <= session.created))
            connection.execute(insert(sessions), asdict(session))

        self._database.write(work)

    def find(self, id: str, now: int) -> SessionRecord | None:
        """The session with the hash of that id; None if it has ended or expired."""
        this = select(sessions).where(sessions.c.id == id, sessions.c.expires > now)
        row = self._database.read_one(lambda connection: connection.execute(this).one_or_none())
        return None if row is None else SessionRecord(*row)

    def remove(self, id: str) -> None:
        """End a session, if there is one with the hash of that id."""
        this = delete(sessions).where(sessions.c.id == id)
        self._database.write(lambda connection: connection.execute(this).close())


def _token_of(row: AnyRow) -> TokenRecord:
    lists = {name: tuple(load(row._mapping[name]) or ()) for name in LISTS}
    return TokenRecord(**dict(row._mapping) | lists)


def _removable(name: str, known: Iterable[TokenRecord], lock_out: bool) -> TokenRecord:
    """The token of that name; without `lock_out` the last one and the last admin are refused.

    Publishable keys do not count as others that are left: they let nobody in but visitors of pages.
    """
    named = {token.name: token for token in known}
    token = named.pop(name, None)
    if token is None:
        raise InvalidInputError(f"there is no token {name!r}; list them to see which are.")
    others = [other for other in named.values() if token.publishable or not other.publishable]
    if lock_out or any(other.scope == "admin" for other in others):
        return token
    if not others:
        which, follows = "the last one", "nobody could use the service over HTTP"
    elif token.scope == "admin":
        which = "the last one with the scope admin"
        follows = "nobody could create or change experiments over HTTP"
    else:
        return token
    raise InvalidInputError(
        f"the token {name!r} is {which}; without it {follows} until somebody creates another one "
        "on a machine with access to the storage. Create another one with the scope admin first; "
        "or, if that is what you want, remove it with --lock-out (in Python, lock_out=True)."
    )
