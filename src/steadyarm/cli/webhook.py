"""`steadyarm webhook`: who is told when a test starts, is decided, turns unhealthy or ends."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from steadyarm.cli.common import (
    FORMAT,
    STORAGE,
    command,
    extra,
    group,
    opened,
    show,
    table,
    typed_by,
)
from steadyarm.errors import SteadyArmError
from steadyarm.wording import when

if TYPE_CHECKING:
    from steadyarm.storages.webhooks import Delivery, WebhookRecord

ID = ("id ID", "of the endpoint, such as wh_0123456789ab; steadyarm webhook list shows it")

group(
    "webhook",
    """Tell others when an experiment starts, is decided, turns unhealthy or ends.

    A running steadyarm serve notices events and sends them, signed as Standard Webhooks asks for.
    """,
)


@command(
    "webhook add",
    ("url URL", "where messages are posted: https:// or http://"),
    (
        "--event TYPE ...",
        "experiment.started, experiment.decided, experiment.unhealthy, experiment.budget_spent or "
        "experiment.window_closed; may be repeated (default: all)",
        {"dest": "events"},
    ),
    (
        "--experiment NAME ...",
        "an experiment to hear of; may be repeated (default: all)",
        {"dest": "experiments"},
    ),
    (
        "--format standard|slack = standard",
        "slack for messages that Slack's incoming webhooks show",
    ),
    (
        "--allow-private",
        "allow addresses of this machine and of private networks, which are refused otherwise",
    ),
    STORAGE,
)
def _add(args: argparse.Namespace) -> None:
    """Add an endpoint and print its secret, once.

    The endpoint hears of what happens from now on. Receivers check signatures with the secret.
    """
    with extra("webhooks need", "service"):
        from steadyarm.service.webhooks import new_webhook
    with opened(args, new=True) as storage:
        webhook = new_webhook(
            args.url,
            storage.now(),
            events=args.events,
            experiments=args.experiments,
            format=args.format,
            private=args.allow_private,
        )
        storage.add_webhook(webhook, by=typed_by())
    print(webhook.secrets[0].text, flush=True)
    print(
        f"Keep the secret: it is not shown again. The endpoint is {webhook.id}; try it with: "
        f"steadyarm webhook test {webhook.id}",
        file=sys.stderr,
    )


@command("webhook list", FORMAT, STORAGE)
def _list(args: argparse.Namespace) -> None:
    """List all endpoints, without their secrets."""
    from steadyarm.wire.webhooks import WebhookAnswer, WebhookList

    with opened(args, new=True) as storage:
        webhooks = storage.webhooks()
    text = "There are no webhooks; add one with: steadyarm webhook add URL"
    if webhooks:
        head = "id", "url", "events", "experiments", "format", "state"
        text = table(head, map(_cells, webhooks), "<<<<<<", most=None)
    show(args, WebhookList([WebhookAnswer.of(one) for one in webhooks]), text)


def _cells(webhook: WebhookRecord) -> tuple[str, ...]:
    return (
        webhook.id,
        webhook.shown,
        ", ".join(one.removeprefix("experiment.") for one in webhook.events) or "all",
        ", ".join(webhook.experiments) or "all",
        webhook.format,
        "active" if webhook.active else f"disabled: {webhook.note}",
    )


@command("webhook remove", ID, STORAGE)
def _remove(args: argparse.Namespace) -> None:
    """Remove an endpoint and its deliveries: it is told nothing any more."""
    with opened(args) as storage:
        gone = storage.remove_webhook(args.id, now=storage.now(), by=typed_by())
    print(f"{gone.shown} is told nothing any more.")


@command("webhook rotate", ID, STORAGE)
def _rotate(args: argparse.Namespace) -> None:
    """Give an endpoint another secret and print it, once.

    For a day messages are signed with both secrets, so that receivers can change theirs meanwhile.
    """
    with extra("webhooks need", "service"):
        from steadyarm.service.webhooks import rotate
    with opened(args) as storage:
        webhook = rotate(storage, args.id, typed_by())
    print(webhook.secrets[0].text, flush=True)
    print(
        "Keep the secret: it is not shown again. For a day the old one signs, too.", file=sys.stderr
    )


@command("webhook enable", ID, STORAGE)
def _enable(args: argparse.Namespace) -> None:
    """Tell an endpoint again that was disabled because it answered 410."""
    with opened(args) as storage:
        webhook = storage.enable_webhook(args.id, now=storage.now(), by=typed_by())
    print(f"{webhook.shown} is told of what happens from now on.")


@command("webhook test", ID, FORMAT, STORAGE)
def _test(args: argparse.Namespace) -> None:
    """Send a test to an endpoint from this machine, and say how that went.

    It is sent once, whether a service runs or not; the status is 1 if it is not accepted.
    """
    with extra("webhooks need", "service"):
        from steadyarm.service.webhooks import Notifier
        from steadyarm.wire.webhooks import DeliveryAnswer
    with opened(args) as storage:
        delivery = asyncio.run(Notifier(storage).test(args.id))
    said = f"answered {delivery.status}" if delivery.state == "delivered" else delivery.note
    text = f"Delivery {delivery.id} ({delivery.message}): {said}"
    show(args, DeliveryAnswer.of(delivery), text)
    if delivery.state != "delivered":
        raise SteadyArmError(f"the test was not accepted: {delivery.note}")


@command(
    "webhook deliveries",
    ("id [ID]", "of one endpoint (default: of all)"),
    ("--most N = 20", "how many, the newest first"),
    FORMAT,
    STORAGE,
)
def _deliveries(args: argparse.Namespace) -> None:
    """List what was sent, or waits to be sent, and how that went."""
    from steadyarm.wire.webhooks import Deliveries, DeliveryAnswer

    with opened(args, new=True) as storage:
        found = storage.deliveries(args.id, most=max(args.most, 1))
    text = "Nothing was sent yet."
    if found:
        head = "id", "created", "event", "experiment", "webhook", "state", "attempts", "said"
        text = table(head, map(_delivery_cells, found), "><<<<<><", most=None)
    show(args, Deliveries([DeliveryAnswer.of(one) for one in found]), text)


def _delivery_cells(delivery: Delivery) -> tuple[str, ...]:
    from steadyarm.storages.records import to_datetime

    said = delivery.note or ("" if delivery.status is None else f"answered {delivery.status}")
    if delivery.state == "waiting" and delivery.attempts:
        said += f"; next attempt {when(to_datetime(delivery.due))}"
    return (
        f"{delivery.id}",
        when(to_datetime(delivery.created)),
        delivery.type,
        delivery.experiment or "",
        delivery.webhook,
        delivery.state,
        f"{delivery.attempts}",
        said,
    )


@command(
    "webhook resend",
    ("delivery N", "number of the delivery; steadyarm webhook deliveries shows it"),
    STORAGE,
)
def _resend(args: argparse.Namespace) -> None:
    """Send a delivery once more, with the same id, whatever became of it.

    A running steadyarm serve sends it within seconds.
    """
    with opened(args) as storage:
        delivery = storage.resend(args.delivery, now=storage.now())
    print(f"Delivery {delivery.id} ({delivery.message}) waits to be sent again.")
