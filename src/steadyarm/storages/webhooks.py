"""Webhooks in the database: endpoints, what was noticed of experiments, and messages to be sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from sqlalchemy import Connection, Insert, Update, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from steadyarm.errors import InvalidInputError
from steadyarm.storages.audit import note
from steadyarm.storages.engine import Database
from steadyarm.storages.schema import (
    AnyRow,
    dump,
    experiments,
    marks,
    notices,
    outbox,
    webhooks,
)

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
    """What was noticed of an experiment so far.

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
    outbox until it was accepted. Whoever takes it moves the time of its next attempt, so that it is
    sent again if the process is killed.
    """

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database, self._now = database, now

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
            note(connection, self._now(), by, "webhook.removed", detail=_detail(endpoint))
            return endpoint

        return self._database.write(work)

    def waiting(self) -> dict[str, tuple[int, str]]:
        """Messages that wait, by id of the endpoint: their number, and the last error of one."""
        query = select(outbox.c.webhook, func.count(), func.max(outbox.c.note))
        query = query.group_by(outbox.c.webhook)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return {id: (count, error) for id, count, error in rows}

    def notices(self) -> dict[int, Notice]:
        """What was noticed of experiments, by key."""
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
                _put(connection, messages, self._now())
            return stored is not None

        return self._database.write(work)

    def take(self, lease: int) -> list[Delivery]:
        """Take the first message of each endpoint that is due, for some microseconds."""
        now = self._now()
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
        now = self._now()
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
    """What the audit log, which nobody can change, keeps: neither path nor secret."""
    parts = urlsplit(endpoint.url)
    return {"webhook": endpoint.id, "host": f"{parts.scheme}://{parts.netloc}"}
