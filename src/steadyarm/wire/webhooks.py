"""Requests and responses about webhooks; `requests` and `responses` say how they are read."""

from __future__ import annotations

from typing import Annotated, Any, Self

from msgspec import Meta

from steadyarm.storages.records import to_datetime
from steadyarm.storages.webhooks import Delivery, DeliveryState, EventType, Format, WebhookRecord
from steadyarm.wire.requests import Query, Request
from steadyarm.wire.responses import Response, Time

Names = Annotated[list[str], Meta(max_length=1000, examples=[["checkout"]])]


class NewWebhook(Request, kw_only=True):
    """An endpoint that wants to hear of events.

    url : the address that messages are posted to, https:// or http://, which the internet can reach
    events : a list of types of events that it wants, such as experiment.decided; all if left out
    experiments : a list with the names of experiments that it wants to hear of; all if left out
    format : standard, or slack for messages that Slack's incoming webhooks show
    """

    url: Annotated[str, Meta(max_length=2048, examples=["https://hooks.example/steadyarm"])]
    events: Annotated[list[EventType], Meta(max_length=20)] | None = None
    experiments: Names | None = None
    format: Format = "standard"


class DeliveriesQuery(Query):
    """Which deliveries to read.

    before : a whole number: the id of the last delivery that was read, to go on with older ones
    most : a whole number from 1 to 1000: how many at most
    """

    before: Annotated[int, Meta(ge=1, lt=2**53)] | None = None
    most: Annotated[int, Meta(ge=1, le=1000)] = 100


class WebhookAnswer(Response):
    """An endpoint.

    id : by which it is named
    url : the address, without what may be secret in it
    events : types of events that it wants; empty for all
    experiments : names of experiments that it wants to hear of; empty for all
    format : standard or slack
    private : whether it may have a private address, which only the command line can allow
    created : when it was added, in UTC; it hears of what happens after that
    disabled : when it was disabled, in UTC; null while it is active
    note : why it was disabled; empty if it was not
    """

    id: str
    url: str
    events: list[str]
    experiments: list[str]
    format: Format
    private: bool
    created: Time
    disabled: Time | None
    note: str

    @classmethod
    def of(cls, webhook: WebhookRecord, **more: Any) -> Self:
        """A stored endpoint, without its secret."""
        return cls(
            id=webhook.id,
            url=webhook.shown,
            events=list(webhook.events),
            experiments=list(webhook.experiments),
            format=webhook.format,
            private=webhook.private,
            created=to_datetime(webhook.created),
            disabled=None if webhook.disabled is None else to_datetime(webhook.disabled),
            note=webhook.note,
            **more,
        )


class WebhookWithSecret(WebhookAnswer, kw_only=True):
    """An endpoint with its secret, which is shown once.

    secret : signs messages, as Standard Webhooks says; it begins with whsec_
    """

    secret: str

    @classmethod
    def of(cls, webhook: WebhookRecord, **more: Any) -> Self:
        """An endpoint that was added, or got another secret, just now."""
        return super().of(webhook, secret=webhook.secrets[0].text, **more)


class WebhookList(Response):
    """All endpoints, in the order in which they were added.

    webhooks : one for each endpoint
    """

    webhooks: list[WebhookAnswer]


class DeliveryAnswer(Response):
    """A message on its way to an endpoint, and how that went.

    id : of the delivery; newer ones have larger ids
    webhook : the id of the endpoint
    message : the id of the message, which the receiver gets as webhook-id at every attempt
    type : of the event, such as experiment.decided; webhook.test for a test
    experiment : its name; null for a test
    created : when the event was noticed, in UTC
    state : waiting for the next attempt, delivered, or failed for good
    attempts : how many were begun
    due : when the next attempt may begin, in UTC; null if none will
    status : of HTTP, at the last attempt; null if no response came
    note : what went wrong at the last attempt; empty if nothing did
    ended : when it was delivered or given up, in UTC; null before
    body : what is sent, in the format standard
    """

    id: int
    webhook: str
    message: str
    type: str
    experiment: str | None
    created: Time
    state: DeliveryState
    attempts: int
    due: Time | None
    status: int | None
    note: str
    ended: Time | None
    body: dict[str, Any]

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        """A stored delivery."""
        waits = delivery.state == "waiting"
        return cls(
            id=delivery.id,
            webhook=delivery.webhook,
            message=delivery.message,
            type=delivery.type,
            experiment=delivery.experiment,
            created=to_datetime(delivery.created),
            state=delivery.state,
            attempts=delivery.attempts,
            due=to_datetime(delivery.due) if waits else None,
            status=delivery.status,
            note=delivery.note,
            ended=None if delivery.ended is None else to_datetime(delivery.ended),
            body=dict(delivery.body),
        )


class Deliveries(Response):
    """Deliveries, the newest first.

    deliveries : one for each message
    """

    deliveries: list[DeliveryAnswer]
