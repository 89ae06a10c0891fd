"""`steadyarm webhook`: who is told when a test starts, is decided, turns unhealthy or ends."""

from __future__ import annotations

import argparse
import asyncio
import sys

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
        from steadyarm.service.webhooks import new_endpoint
    with opened(args, new=True) as storage:
        endpoint = new_endpoint(
            args.url,
            storage.now(),
            events=args.events,
            experiments=args.experiments,
            format=args.format,
            private=args.allow_private,
        )
        storage.webhooks.add(endpoint, by=typed_by())
    print(endpoint.secret, flush=True)
    print(
        f"Keep the secret: it is not shown again. The endpoint is {endpoint.id}; try it with: "
        f"steadyarm webhook test {endpoint.id}",
        file=sys.stderr,
    )


@command("webhook list", FORMAT, STORAGE)
def _list(args: argparse.Namespace) -> None:
    """List all endpoints without their secrets, and the messages that wait for them."""
    with opened(args, new=True) as storage:
        endpoints, waiting = storage.webhooks.endpoints(), storage.webhooks.waiting()
    rows = [
        {
            "id": endpoint.id,
            "url": endpoint.shown,
            "events": list(endpoint.events),
            "experiments": list(endpoint.experiments),
            "format": endpoint.format,
            "waiting": waiting.get(endpoint.id, (0, ""))[0],
            "error": waiting.get(endpoint.id, (0, ""))[1],
        }
        for endpoint in endpoints
    ]
    text = "There are no webhooks; add one with: steadyarm webhook add URL"
    if rows:
        text = table(tuple(rows[0]), map(_cells, rows), "<<<<<><", most=None)
    show(args, {"webhooks": rows}, text)


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    cells = (", ".join(cell) or "all" if isinstance(cell, list) else cell for cell in row.values())
    return tuple(f"{cell}".replace("experiment.", "") for cell in cells)


@command("webhook remove", ID, STORAGE)
def _remove(args: argparse.Namespace) -> None:
    """Remove an endpoint and its messages: it is told nothing any more."""
    with opened(args) as storage:
        endpoint = storage.webhooks.remove(args.id, by=typed_by())
    print(f"{endpoint.shown} is told nothing any more.")


@command("webhook test", ID, STORAGE)
def _test(args: argparse.Namespace) -> None:
    """Send a test to an endpoint from this machine, and say how that went.

    It is sent once, whether a service runs or not; the status is 1 if it is not accepted.
    """
    with extra("webhooks need", "service"):
        from steadyarm.service.webhooks import DeliveryError, send_test
    with opened(args) as storage:
        endpoint, now = storage.webhooks.find(args.id), storage.now()
    try:
        status = asyncio.run(send_test(endpoint, now))
    except DeliveryError as error:
        raise SteadyArmError(f"the test was not accepted: {error}") from None
    print(f"{endpoint.shown} answered {status}.")
