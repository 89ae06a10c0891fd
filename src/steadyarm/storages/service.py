"""Tokens, sessions, webhooks and the heartbeat of a service."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from threading import Lock
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from sqlalchemy import Connection, Insert, Update, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from steadyarm.errors import InvalidInputError, SteadyArmError, StorageError
from steadyarm.storages.corrections import note
from steadyarm.storages.engine import HINTS, Database
from steadyarm.storages.records import dump, load, to_datetime
from steadyarm.storages.schema import (
    CLOSED,
    REFUSED,
    AnyRow,
    experiments,
    marks,
    notices,
    outbox,
    refusals_of,
    sessions,
    tokens,
    webhooks,
)

_mark = upsert(marks)
SET_MARK = _mark.on_conflict_do_update(
    index_elements=["name"], set_={"value": _mark.excluded.value, "note": _mark.excluded.note}
)

# Who may use the service

Scope = Literal["read", "write", "admin", "assign"]

ORDERED = select(tokens).order_by(tokens.c.created, tokens.c.name)
LISTS = ("experiments", "origins")  # of a token, stored as JSON


@dataclass(frozen=True)
class TokenRecord:
    """A token of the service; only its hash is stored.

    A token with the scope "assign" is a publishable key: it stands in pages that anybody may read,
    so it says for which experiments, from which pages and how often it may be used.

    Attributes
    ----------
    experiments : names of those that a publishable key is for
    origins : of the pages that may use it, such as "https://shop.example"; "none" for programs that
        are no browsers
    rate : requests in a minute that one address may send with it
    signing : secret with which a unit is signed, if requests have to prove theirs; kept as it is,
        because signatures are checked with it
    expires : when it is refused; None for never
    used : when it was last used, to the minute; None for never

    Examples
    --------
    >>> TokenRecord("web", "0a1b", "assign", 0, ("shop",), ("https://shop.example",), 120).detail
    {'name': 'web', 'scope': 'assign', 'experiments': ['shop'], 'origins': ['https://shop.example']}
    """

    name: str
    hash: str
    scope: Scope
    created: int
    experiments: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    rate: int | None = None
    signing: str | None = field(default=None, repr=False)
    expires: int | None = None
    used: int | None = None

    def __post_init__(self) -> None:
        bounds = self.experiments, self.origins, self.rate
        if self.publishable and not all(bounds):
            raise InvalidInputError(
                f"the token {self.name!r} has the scope assign, so anybody may get to know it, and "
                "it needs the experiments that it is for, the origins of the pages that use it, "
                "and the requests per minute that an address may send."
            )
        if not self.publishable and (any(bounds) or self.signing is not None):
            raise InvalidInputError(
                f"the token {self.name!r} has the scope {self.scope}, which cannot be bounded by "
                "experiments, origins, a rate or signed units; only the scope assign is."
            )

    @property
    def publishable(self) -> bool:
        """Whether anybody may get to know it."""
        return self.scope == "assign"

    @property
    def detail(self) -> dict[str, Any]:
        """The details that the audit log records."""
        detail: dict[str, Any] = {"name": self.name, "scope": self.scope}
        if self.publishable:
            detail |= {"experiments": list(self.experiments), "origins": list(self.origins)}
        if self.signing is not None:
            detail["signed_units"] = True
        if self.expires is not None:
            detail["expires"] = to_datetime(self.expires).isoformat(timespec="seconds")
        return detail

    @property
    def bounds(self) -> str:
        """The limits of a publishable key, in words; empty for other tokens."""
        if not self.publishable:
            return ""
        places = ", ".join(self.origins)
        signed = ", signed units" * (self.signing is not None)
        return f"{', '.join(self.experiments)} from {places}, {self.rate} a minute{signed}"

    def is_valid(self, now: int) -> bool:
        """Whether it has not expired."""
        return self.expires is None or now < self.expires


@dataclass(frozen=True)
class SessionRecord:
    """A person who has signed in to the dashboard.

    Attributes
    ----------
    id : hash of the id in the cookie
    token : hash of the token that was used to sign in
    expires : when it ends, unless it is ended before
    """

    id: str
    token: str
    created: int
    expires: int


class Tokens:
    """The tokens of a storage.

    A storage is open until its first token is added. After that a service on it refuses requests
    without a valid token, even when all tokens are removed.
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
            token = _removable(name, known, lock_out, now)
            connection.execute(delete(tokens).where(tokens.c.name == name))
            connection.execute(delete(sessions).where(sessions.c.token == token.hash))
            note(connection, now, by, "token.removed", detail=token.detail)
            return token

        return self._database.write(work)

    def note_used(self, hashes: Iterable[str], now: int) -> None:
        """Note that tokens, given by their hashes, are used now."""
        these = update(tokens).where(tokens.c.hash.in_(list(hashes))).values(used=now)
        self._database.write(lambda connection: connection.execute(these).close())


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


def _removable(name: str, known: Iterable[TokenRecord], lock_out: bool, now: int) -> TokenRecord:
    """The token of that name; without `lock_out` the last one and the last admin are refused.

    Publishable keys and expired tokens do not count as other tokens: they do not grant access to
    the service.
    """
    named = {token.name: token for token in known}
    token = named.pop(name, None)
    if token is None:
        raise InvalidInputError(f"there is no token {name!r}; list them to see which are.")
    others = [
        other
        for other in named.values()
        if (token.publishable or not other.publishable) and other.is_valid(now)
    ]
    if lock_out or not token.is_valid(now) or any(other.scope == "admin" for other in others):
        return token
    if not others:
        which, follows = "the last one", "the service would refuse every request"
    elif token.scope == "admin":
        which = "the last one with the scope admin"
        follows = "nobody could administer the service over HTTP"
    else:
        return token
    raise InvalidInputError(
        f"the token {name!r} is {which}; without it {follows} until somebody creates another one "
        "on a machine with access to the storage. Create another one with the scope admin first; "
        "or, if that is what you want, remove it with --lock-out (in Python, lock_out=True)."
    )


# Webhooks

EventType = Literal[
    "experiment.started",
    "experiment.decided",
    "experiment.unhealthy",
    "experiment.budget_spent",
    "experiment.window_closed",
]
EVENTS: tuple[EventType, ...] = get_args(EventType)
TEST = "webhook.test"  # the type of a message that only tests an endpoint
Format = Literal["standard", "slack"]
FORMATS: tuple[Format, ...] = get_args(Format)

_turn = upsert(marks)
# Another holder's row is changed only if its time is over.
TAKE_TURN = _turn.on_conflict_do_update(
    index_elements=["name"],
    set_={"value": _turn.excluded.value, "note": _turn.excluded.note},
    where=(marks.c.note == _turn.excluded.note) | (marks.c.value <= bindparam("now")),
).returning(marks.c.name)


@dataclass(frozen=True)
class Message:
    """One event.

    Attributes
    ----------
    id : the same at every attempt, so that receivers recognise repetitions
    experiment : its name
    since : endpoints that were added later do not receive it
    body : JSON-like, with the type of the event
    """

    id: str
    experiment: str
    since: int
    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An address that receives messages.

    Attributes
    ----------
    id : random
    url : where messages are posted
    secret : signs messages; whsec_ and base64
    events : types that it receives; all if empty
    experiments : names of the experiments that it receives messages of; all if empty
    format : "standard", or "slack" for messages that Slack shows
    private : whether it may have a private address, such as 127.0.0.1
    created : when it was added
    """

    id: str
    url: str
    secret: str = field(repr=False)
    events: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()
    format: Format = "standard"
    private: bool = False
    created: int

    @property
    def shown(self) -> str:
        """The URL without what may be secret: the query, and of Slack's all but the host."""
        parts = urlsplit(self.url)
        path = "/…" if self.format == "slack" else parts.path + ("?…" if parts.query else "")
        return f"{parts.scheme}://{parts.netloc}{path}"

    def wants(self, message: Message) -> bool:
        """Whether it receives a message."""
        return (
            self.created <= message.since
            and (not self.events or message.body["type"] in self.events)
            and (not self.experiments or message.experiment in self.experiments)
        )


@dataclass(frozen=True)
class Notice:
    """The events of an experiment that were noticed so far.

    Attributes
    ----------
    version : how often it has changed; a change that rests on an older version is refused
    state : JSON-like
    """

    version: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """A message in the outbox of one endpoint.

    Attributes
    ----------
    message : id of the message
    created : when it was stored
    attempts : how many were begun, with the present one
    """

    id: int
    endpoint: Endpoint
    message: str
    body: Mapping[str, Any]
    created: int
    attempts: int


class Webhooks:
    """Endpoints, notices and the outbox of a database.

    A message and the notice that it follows from are stored in one transaction. It stays in the
    outbox until it was accepted. The process that takes it moves the time of its next attempt, so
    that it is sent again if the process is killed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, endpoint: Endpoint, by: str = "") -> None:
        """Store an endpoint."""

        def work(connection: Connection) -> None:
            lists = {"events": dump(endpoint.events), "experiments": dump(endpoint.experiments)}
            connection.execute(insert(webhooks), asdict(endpoint) | lists)
            note(connection, endpoint.created, by, "webhook.added", detail=_detail(endpoint))

        self._database.write(work)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints, in the order in which they were added."""
        return self._database.read(_endpoints)

    def find(self, id: str) -> Endpoint:
        """Return an endpoint; InvalidInputError if there is none."""
        return self._database.read(lambda connection: _find(connection, id))

    def remove(self, id: str, by: str = "") -> Endpoint:
        """Remove an endpoint and its messages."""

        def work(connection: Connection) -> Endpoint:
            endpoint = _find(connection, id)
            connection.execute(delete(webhooks).where(webhooks.c.id == id))
            connection.execute(delete(outbox).where(outbox.c.webhook == id))
            note(connection, self._database.now(), by, "webhook.removed", detail=_detail(endpoint))
            return endpoint

        return self._database.write(work)

    def waiting(self) -> dict[str, tuple[int, str]]:
        """Messages that wait, by id of the endpoint: their number, and the last error of one."""
        query = select(outbox.c.webhook, func.count(), func.max(outbox.c.note))
        query = query.group_by(outbox.c.webhook)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return {id: (count, error) for id, count, error in rows}

    def notices(self) -> dict[int, Notice]:
        """The events that were noticed of experiments, by key."""
        rows = self._database.read(lambda connection: connection.execute(select(notices)).all())
        return {row.key: Notice(row.version, json.loads(row.state)) for row in rows}

    def notice(
        self, key: int, version: int, state: Mapping[str, Any], messages: Sequence[Message]
    ) -> bool:
        """Store what is noticed now, and each message for the endpoints that want it.

        False, and nothing is stored, if the notice has another version or the experiment is gone.
        """

        def work(connection: Connection) -> bool:
            row = {"key": key, "version": version + 1, "state": dump(state)}
            exists = select(experiments.c.key).where(experiments.c.key == key)
            if connection.execute(exists).scalar() is None:
                return False
            storing: Insert | Update = upsert(notices).on_conflict_do_nothing()
            if version:
                current = notices.c.key == key, notices.c.version == version
                storing = update(notices).where(*current)
            stored = connection.execute(storing.values(row).returning(notices.c.key)).scalar()
            if stored is not None:
                _put(connection, messages, self._database.now())
            return stored is not None

        return self._database.write(work)

    def take(self, lease: int) -> list[Delivery]:
        """Take the first message of each endpoint that is due, for some microseconds."""
        now = self._database.now()
        due = select(func.min(outbox.c.id)).where(outbox.c.due <= now).group_by(outbox.c.webhook)
        if not self._database.read(lambda connection: connection.execute(due).first()):
            return []
        taking = (
            update(outbox)
            .where(outbox.c.id.in_(due), outbox.c.due <= now)
            .values(due=now + lease, attempts=outbox.c.attempts + 1)
            .returning(outbox)
        )

        def work(connection: Connection) -> list[Delivery]:
            endpoints = {endpoint.id: endpoint for endpoint in _endpoints(connection)}
            return [
                Delivery(
                    row.id,
                    endpoints[row.webhook],
                    row.message,
                    json.loads(row.body),
                    row.created,
                    row.attempts,
                )
                for row in connection.execute(taking).all()
                if row.webhook in endpoints
            ]

        return self._database.write(work)

    def retry(self, delivery: Delivery, due: int, error: str) -> None:
        """Let a message wait for its next attempt, unless another process has taken it since."""
        this = outbox.c.id == delivery.id, outbox.c.attempts == delivery.attempts
        change = update(outbox).where(*this).values(due=due, note=error)
        self._database.write(lambda connection: connection.execute(change).close())

    def end(self, delivery: Delivery) -> None:
        """Remove a message that was accepted or given up."""
        gone = delete(outbox).where(outbox.c.id == delivery.id)
        self._database.write(lambda connection: connection.execute(gone).close())

    def take_turn(self, holder: str, lasts: int) -> bool:
        """Become or stay the one process that watches experiments, for some microseconds."""
        now = self._database.now()
        row = {"name": "turn webhooks", "value": now + lasts, "note": holder, "now": now}
        taken = self._database.write(lambda connection: connection.execute(TAKE_TURN, row).scalar())
        return taken is not None


def _endpoints(connection: Connection) -> list[Endpoint]:
    ordered = select(webhooks).order_by(webhooks.c.created, webhooks.c.id)
    return [_endpoint(row) for row in connection.execute(ordered)]


def _endpoint(row: AnyRow) -> Endpoint:
    lists = {name: tuple(json.loads(row._mapping[name])) for name in ("events", "experiments")}
    return Endpoint(**dict(row._mapping) | lists)


def _find(connection: Connection, id: str) -> Endpoint:
    endpoints = {endpoint.id: endpoint for endpoint in _endpoints(connection)}
    if id not in endpoints:
        raise InvalidInputError(
            f"there is no webhook {id!r}; the webhooks are: {', '.join(endpoints) or 'none'}."
        )
    return endpoints[id]


def _put(connection: Connection, messages: Sequence[Message], now: int) -> None:
    """Store messages for all endpoints that want them."""
    for endpoint in _endpoints(connection) if messages else ():
        for message in filter(endpoint.wants, messages):
            row = {"webhook": endpoint.id, "message": message.id, "body": dump(message.body)}
            connection.execute(insert(outbox), row | {"created": now, "due": now})


def _detail(endpoint: Endpoint) -> dict[str, Any]:
    """What the audit log records: neither path nor secret, because entries cannot be removed."""
    parts = urlsplit(endpoint.url)
    return {"webhook": endpoint.id, "host": f"{parts.scheme}://{parts.netloc}"}


# Events that were refused

UNKNOWN_EVENT = "unknown-event"  # why an event is refused that no experiment measures
MOST_REFUSED = 20  # of each experiment are kept


@dataclass(frozen=True)
class Refusal:
    """The latest event of a name that was refused for a reason.

    Attributes
    ----------
    event : its name
    reason : the kind of the problem, such as "reward-too-late"
    unit : whose event it was; empty if it named an assignment
    detail : the reason in a sentence
    key : the key of the experiment that refused it; 0 if no experiment measures it
    at : when it arrived
    """

    event: str
    reason: str
    unit: str
    detail: str = ""
    key: int = 0
    at: int = 0


def note_refusals(connection: Connection, refusals: Sequence[Refusal], now: int) -> None:
    """Keep the latest refusals of each experiment, one for each name and reason."""
    rows = [
        {
            "name": f"{REFUSED}{refusal.key} {refusal.reason} {refusal.event}",
            "value": now,
            "note": dump([refusal.unit, refusal.detail]),
        }
        for refusal in refusals
    ]
    connection.execute(SET_MARK, rows)
    for key in {refusal.key for refusal in refusals}:
        mine = refusals_of(key)
        latest = select(marks.c.name).where(mine).order_by(marks.c.value.desc(), marks.c.name)
        kept = latest.limit(MOST_REFUSED).subquery()
        others = marks.c.name.not_in(select(kept.c.name))
        connection.execute(delete(marks).where(mine, others))


def read_refusals(connection: Connection, key: int, since: int) -> list[Refusal]:
    """Refused events of an experiment, and events since a time that no experiment measures."""
    which = refusals_of(key) | (refusals_of(0) & (marks.c.value >= since))
    refusals = []
    for row in connection.execute(select(marks).where(which).order_by(marks.c.name)):
        of, reason, event = row.name.removeprefix(REFUSED).split(" ", 2)
        unit, detail = load(row.note)
        refusals.append(Refusal(event, reason, unit, detail, int(of), row.value))
    return refusals


def forget_refusals(connection: Connection, unit: str) -> None:
    """Remove what is kept of events of a unit."""
    named = marks.c.note.startswith(dump([unit])[:-1] + ",", autoescape=True)
    connection.execute(delete(marks).where(refusals_of(), named))


# Whether the storage takes writes

EVERY = 1.0  # seconds between two heartbeats
PATIENCE = 2.5  # seconds after which a heartbeat has failed
ROOM = 1 << 20  # free bytes below which a disk counts as full


class Heartbeat:
    """Whether a database takes durable writes, tested at most once a second.

    The heartbeat is one row. It proves what a `SELECT 1` does not: that the storage takes a durable
    write now.

    Attributes
    ----------
    damaged : whether the file was found to be damaged, so that no heartbeat succeeds
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = Lock()
        self.beaten, self.damaged = -inf, False
        self._error: SteadyArmError | None = None

    def check(self) -> None:
        """Return if the last heartbeat succeeded; it is at most a second old."""
        with self._turn:
            if time.monotonic() - self.beaten >= EVERY:
                self._error = self._beat()
                self.beaten = time.monotonic()
            error = self._error
        if error is not None:
            raise error.with_traceback(None)

    def _beat(self) -> SteadyArmError | None:
        file = self._database.file
        if file is not None:  # what a small write does not show
            if not file.exists():
                return self._failure("the file was deleted or moved")
            if self.damaged:
                return self._failure(HINTS[11])
            if not os.access(file, os.W_OK):
                return self._failure(HINTS[8])
            if shutil.disk_usage(file.parent).free < ROOM:
                return self._failure(HINTS[13])
        row = {"name": "heartbeat", "value": time.time_ns() // 1000}
        try:
            self._database.write(lambda c: c.execute(SET_MARK, row).close(), PATIENCE)
        except SteadyArmError as error:
            return error
        return None

    def _failure(self, reason: str) -> StorageError:
        error = StorageError(f"{self._database.shown}: {reason}.")
        error.reason = reason
        return error
