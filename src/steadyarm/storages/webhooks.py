"""What storages keep of webhooks: endpoints, what was noticed of experiments, and deliveries.

An endpoint is an address that wants to hear of events. A message is one event, and a delivery is a
message on its way to one endpoint, with how that went. The rules are the same in every storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from steadyarm.errors import InvalidInputError

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
DeliveryState = Literal["waiting", "delivered", "failed"]

KEPT = 30 * 86_400_000_000  # microseconds after its end for which `prune` keeps a delivery
SERVICE = "the service"  # who disabled an endpoint, in the audit log


@dataclass(frozen=True)
class Secret:
    """A secret that signs messages.

    Attributes
    ----------
    text : whsec_ and base64
    until : when it stops signing, after another took its place; None for the present one
    """

    text: str = field(repr=False)
    until: int | None = None


@dataclass(frozen=True)
class Message:
    """One event, as endpoints hear of it.

    Attributes
    ----------
    id : the same in every delivery and at every attempt, so that receivers recognise repetitions
    type : one of `EVENTS`, or `TEST`
    experiment : its name; None if it concerns none
    at : when it happened; endpoints that were added later do not hear of it
    body : JSON-like
    """

    id: str
    type: str
    experiment: str | None
    at: int
    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class WebhookRecord:
    """An endpoint.

    Attributes
    ----------
    id : random
    url : where messages are posted
    secrets : the present one first, then those that others took the place of
    events : types that it wants; all if empty
    experiments : names of those that it wants to hear of; all if empty
    format : "standard", or "slack" for messages that Slack shows
    private : whether it may have a private address, such as 127.0.0.1
    created : when it was added
    disabled : when it was disabled; None while it is active
    note : why it was disabled
    """

    id: str
    url: str
    secrets: tuple[Secret, ...]
    events: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()
    format: Format = "standard"
    private: bool = False
    created: int
    disabled: int | None = None
    note: str = ""

    @property
    def active(self) -> bool:
        """Whether messages are sent to it."""
        return self.disabled is None

    @property
    def shown(self) -> str:
        """The URL without what may be secret: the query, and of Slack's all but the host."""
        parts = urlsplit(self.url)
        path = "/…" if self.format == "slack" else parts.path + ("?…" if parts.query else "")
        return f"{parts.scheme}://{parts.netloc}{path}"

    @property
    def detail(self) -> dict[str, Any]:
        """What the audit log says of it, which nobody can delete: no path and no secret."""
        parts = urlsplit(self.url)
        found: dict[str, Any] = {"webhook": self.id, "host": f"{parts.scheme}://{parts.netloc}"}
        more = {"events": list(self.events), "experiments": list(self.experiments)}
        found |= {name: value for name, value in more.items() if value}
        if self.format != "standard":
            found["format"] = self.format
        return found | ({"private": True} if self.private else {})

    def wants(self, message: Message) -> bool:
        """Whether it hears of a message."""
        return (
            self.active
            and self.created <= message.at
            and (not self.events or message.type in self.events)
            and (not self.experiments or message.experiment in self.experiments)
        )

    def rotated(self, secret: str, until: int, now: int) -> WebhookRecord:
        """The endpoint with a new secret; the one before it goes on signing for a while."""
        before = replace(self.secrets[0], until=until)
        return replace(self, secrets=(Secret(secret), before, *self.signing(now)[1:]))

    def signing(self, now: int) -> tuple[Secret, ...]:
        """The secrets that sign messages now."""
        return tuple(one for one in self.secrets if one.until is None or one.until > now)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A message on its way to one endpoint.

    Attributes
    ----------
    id : of the delivery; those that were made later have larger ones
    webhook : id of the endpoint
    message : id of the message
    type, experiment, body : of the message
    created : when it was made
    state : "waiting" for the next attempt, "delivered", or "failed" for good
    attempts : how many were begun
    due : when the next attempt may begin
    leased : until when an attempt is under way, unless its process has ended; 0 if none is
    status : of HTTP, at the last attempt that got a response; None before
    note : what went wrong at the last attempt; empty if nothing did
    ended : when it was delivered, or failed; None before
    began : when its attempts began: the time from which on it may be tried
    """

    id: int
    webhook: str
    message: str
    type: str
    experiment: str | None
    body: Mapping[str, Any]
    created: int
    state: DeliveryState = "waiting"
    attempts: int = 0
    due: int
    leased: int = 0
    status: int | None = None
    note: str = ""
    ended: int | None = None
    began: int

    def after(self, attempt: Attempt, now: int) -> Delivery:
        """The delivery after an attempt."""
        return replace(
            self,
            state=attempt.state,
            due=self.due if attempt.due is None else attempt.due,
            leased=0,
            status=attempt.status,
            note=attempt.note,
            ended=None if attempt.state == "waiting" else now,
        )

    def again(self, now: int) -> Delivery:
        """The delivery, to be sent again from now on, whatever became of it."""
        return replace(self, state="waiting", due=now, leased=0, ended=None, began=now)


@dataclass(frozen=True)
class Attempt:
    """How an attempt to deliver went.

    Attributes
    ----------
    state : of the delivery from now on
    due : when the next attempt may begin, if it waits
    status, note : as in `Delivery`
    gone : whether the endpoint asked not to be called any more, so that it is disabled
    """

    state: DeliveryState
    due: int | None = None
    status: int | None = None
    note: str = ""
    gone: bool = False


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


def delivery_of(message: Message, webhook: str, now: int, number: int = 0) -> Delivery:
    """A new delivery of a message."""
    return Delivery(
        id=number,
        webhook=webhook,
        message=message.id,
        type=message.type,
        experiment=message.experiment,
        body=message.body,
        created=now,
        due=now,
        began=now,
    )


def unknown_webhook(id: str, ids: Iterable[str]) -> InvalidInputError:
    """The error for an id that no endpoint has."""
    known = ", ".join(ids) or "none"
    return InvalidInputError(f"there is no webhook {id!r}; those that there are: {known}.")


def unknown_delivery(id: int) -> InvalidInputError:
    """The error for a number that no delivery has."""
    return InvalidInputError(
        f"there is no delivery {id}; those that ended long ago are removed by: "
        "steadyarm storage prune"
    )
