"""`steadyarm serve`, `token`, `webhook` and `audit`: the service, and who may use it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli.common import (
    FORMAT,
    STORAGE,
    command,
    extra,
    group,
    open_storage,
    show,
    table,
    user_name,
)
from steadyarm.errors import InvalidInputError, SteadyArmError

if TYPE_CHECKING:
    from steadyarm.storages import Storage
    from steadyarm.storages.changes import AuditEntry
    from steadyarm.storages.service import TokenRecord
    from steadyarm.wire.responses import AuditEntryAnswer

DASHBOARD = "steadyarm.dashboard.app:create_app"  # imported when it is served
POSTGRES_WRITERS = 4  # threads; SQLite lets one write at a time anyway
MOST_RATE = 1_000_000


@command(
    "serve",
    ("--host ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)"),
    ("--port N", "port of that address (default: 8000); 0 for a free one"),
    STORAGE,
    ("--allowed-host NAME ...", "of requests; others are refused", {"dest": "allowed_hosts"}),
    ("--root-path PATH", "path under which a proxy serves this service, such as /ab"),
    (
        "--trusted-proxy ADDRESS ...",
        "a proxy whose X-Forwarded headers are believed, such as 10.0.0.0/8",
        {"dest": "trusted_proxies"},
    ),
    ("--max-body N", "bytes a request may have (default: 1000000)"),
    ("--max-batch N", "items a batch may have (default: 1000)"),
    ("--max-connections N", "open connections (default: 4000)"),
    ("--request-timeout X", "seconds in which a request is answered or refused (default: 15)"),
    ("--public-url URL", "address of the dashboard, for links in webhooks (default: no links)"),
    (
        "--clock-from TIME",
        "where its clock starts, for rehearsals, such as 2026-03-01T08:00",
    ),
    ("--clock-speed X", "times as quick as real time, such as 1000 (default: 1)"),
    ("--log-format text|json", "json for one object per line (default: text)"),
    ("--log-level debug|info|warning|error", "least important messages (default: info)"),
    (
        "--no-access-log",
        "do not log every request",
        {"dest": "access_log", "action": "store_false", "default": None},
    ),
)
def serve(args: argparse.Namespace) -> None:
    """Serve live experiments over HTTP until it is interrupted.

    Every option may be given as an environment variable instead, such as STEADYARM_PORT=80 or
    STEADYARM_ACCESS_LOG=false. Before the first token only this machine is served, and no proxy on
    it; see steadyarm token. Behind a proxy, declare the names that people use with --allowed-host.

    People open / in a browser and sign in with a token, if there is one. The interface for programs
    is described at /docs and /openapi.json; /healthz, /readyz and /metrics are for monitoring.
    """
    with extra("the service needs", "service"):
        from steadyarm.service import process
        from steadyarm.service.settings import ServiceSettings
    options = {k: v for k, v in vars(args).items() if k not in ("run", "command", "typed")}
    for name in ("allowed_hosts", "trusted_proxies"):
        options[name] = tuple(options[name]) or None
    settings = ServiceSettings.from_environment(os.environ, **options)
    if (settings.storage or "").startswith("postgres") and "STEADYARM_WRITERS" not in os.environ:
        settings = replace(settings, writers=POSTGRES_WRITERS)
    process.serve(settings, DASHBOARD)


group(
    "token",
    """Manage who may use the service: create, list and remove tokens.

    Once there has been one, every request needs one; changes count within five seconds.
    """,
)


@command(
    "token create",
    ("--name NAME", "to know it by, such as shop-frontend", {"required": True}),
    ("--scope read|write|admin|assign", "what it is good for, see above", {"required": True}),
    ("--expires TIME", "after which it is refused, such as 90d (default: never)"),
    STORAGE,
    {
        "publishable keys (--scope assign)": [
            ("--experiment NAME ...", "that the key is for"),
            ("--origin ORIGIN ...", "of pages, such as https://shop.example; none for programs"),
            ("--rate N", "requests that one address may send in a minute (default: 120)"),
            ("--signed-units", "take only units that your server has signed; prints a secret"),
        ]
    },
)
def _create_token(args: argparse.Namespace) -> None:
    """Create a token and print it, once.

    Only a hash of it is stored. The scope read is for results; write also for assignments and
    rewards; admin for everything.

    A token with the scope assign is a publishable key, for pages that visitors load. It begins with
    pk_. It assigns variants and reports rewards of the experiments that it names, from pages of the
    origins that it declares, and opens nothing else. With --signed-units a second line is the
    secret with which your server signs units; it is stored as it is.

    For example:

        steadyarm token create --name me --scope admin
        steadyarm token create --name web --scope assign --experiment shop
            --origin https://shop.example
    """
    with extra("tokens need", "service"):
        from steadyarm.service.auth import check_token_name, new_token
    from steadyarm.live.metrics import seconds_of

    check_token_name(args.name, "--name")
    _check_bounds(args)
    lasts = None if args.expires is None else seconds_of(args.expires, "--expires")
    if args.scope == "assign":
        token, record = _new_key(args, lasts)
    else:
        token, record = new_token(args.name, args.scope, lasts)
    with closing(sa.storages.open_storage(args.storage)) as storage:
        first = not storage.tokens.closed()
        storage.tokens.add(record, by=user_name())
        experiments = {summary.name for summary in storage.summaries()}
    notes = ["Keep the token: it is not shown again."]
    print(token, flush=True)
    if record.publishable:
        notes.insert(0, "Visitors may read it: it is for pages that they load.")
    if record.signing is not None:
        print(record.signing, flush=True)
        notes.append(
            "The second line is the secret for your server, which signs units with it: "
            "steadyarm.sign_unit(secret, unit). Visitors must not see it."
        )
    for name in sorted({*record.experiments} - experiments):
        notes.append(f"There is no experiment {name} yet; the key will be for it.")
    if first:
        notes.append(
            "It is the first; from now on every request needs a token, also when this one is "
            "removed." + (" Create one with the scope admin, too." * (args.scope != "admin"))
        )
    print(*notes, sep="\n", file=sys.stderr)


def _check_bounds(args: argparse.Namespace) -> None:
    """Refuse options of publishable keys for other tokens, and publishable keys without them."""
    for option in ("--experiment", "--origin", "--rate", "--signed-units"):
        value = getattr(args, option[2:].replace("-", "_"))
        if value not in (None, [], False) and args.scope != "assign":
            raise InvalidInputError(
                f"{option} is for publishable keys, and --scope is {args.scope}; leave it out, or "
                "create a key with --scope assign."
            )
        if value == [] and args.scope == "assign":
            raise InvalidInputError(
                f"{option} is missing: visitors may read a publishable key, so it is for named "
                "experiments and pages of declared origins alone."
            )


def _new_key(args: argparse.Namespace, lasts: float | None) -> tuple[str, TokenRecord]:
    from steadyarm.live.lifecycle import NAME as EXPERIMENT
    from steadyarm.service.auth import RATE, new_key

    for name in args.experiment:
        if not EXPERIMENT.fullmatch(name):
            expected = "the name of an experiment: letters, digits, dots, hyphens, underscores"
            raise InvalidInputError.of("--experiment", name, expected)
    rate = RATE if args.rate is None else args.rate
    if not 1 <= rate <= MOST_RATE:
        raise InvalidInputError.of("--rate", rate, f"a whole number from 1 to {MOST_RATE:,}")
    try:
        return new_key(args.name, args.experiment, args.origin, rate, args.signed_units, lasts)
    except InvalidInputError as error:
        raise error.called("--origin") if error.field == "origin" else error from None


@command("token list", FORMAT, STORAGE)
def _list_tokens(args: argparse.Namespace) -> None:
    """List name, scope, dates and bounds of every token, not the tokens.

    Last use is noted once a minute.
    """
    from steadyarm.storages.records import to_datetime
    from steadyarm.wire.responses import iso
    from steadyarm.wording import when

    with closing(sa.storages.open_storage(args.storage)) as storage:
        tokens, closed = storage.tokens.all(), storage.tokens.closed()
    facts: list[dict[str, Any]] = []
    rows = []
    for token in tokens:
        dates = {
            name: None if at is None else to_datetime(at)
            for name, at in (
                ("created", token.created),
                ("expires", token.expires),
                ("last_used", token.used),
            )
        }
        bounds = {}
        if token.publishable:
            signed = token.signing is not None
            bounds = token.detail | {"rate": token.rate, "signed_units": signed}
        stored = {name: None if at is None else iso(at) for name, at in dates.items()}
        facts.append(bounds | {"name": token.name, "scope": token.scope} | stored)
        shown = ("never" if at is None else when(at) for at in dates.values())
        rows.append((token.name, token.scope, *shown, token.bounds))
    text = "There are no tokens yet; the service answers this machine only."
    if closed:
        text = "There are no tokens any more; the service lets nobody in until one is created."
    if tokens:
        header = ("name", "scope", "created", "expires", "last used", "for")
        text = table(header, rows, "<<<<<<", most=None)
    show(args, {"tokens": facts}, text)


@command(
    "token remove",
    ("name NAME", "that the token was created with"),
    ("--lock-out", "remove it even if nobody can then get in, or change anything, over HTTP"),
    STORAGE,
)
def _remove_token(args: argparse.Namespace) -> None:
    """Refuse a token from now on.

    Removes it and ends the sessions of people who signed in with it; the service refuses it within
    five seconds.
    """
    with closing(sa.storages.open_storage(args.storage)) as storage:
        now = round(time.time() * 1e6)
        storage.tokens.remove(args.name, now=now, by=user_name(), lock_out=args.lock_out)
        left = storage.tokens.all()
    print(f"The token {args.name} is refused within five seconds; {len(left)} left.")
    if not left:
        print("Nobody can use the service over HTTP until a token is created.", file=sys.stderr)


# Webhooks


ID = ("id ID", "of the endpoint, such as wh_0123456789ab; steadyarm webhook list shows it")

group(
    "webhook",
    """Tell others when an experiment starts, is decided, turns unhealthy or ends.

    A running steadyarm serve notices events and sends them, signed as Standard Webhooks asks for.
    """,
    STORAGE,
)


@command(
    "webhook add",
    ("url URL", "where messages are posted: https:// or http://"),
    (
        "--event TYPE ...",
        "experiment.started, experiment.decided, experiment.unhealthy, experiment.budget_spent or "
        "experiment.window_closed (default: all)",
    ),
    ("--experiment NAME ...", "an experiment to hear of (default: all)"),
    ("--format standard|slack = standard", "slack for Slack's incoming webhooks"),
    ("--allow-private", "allow addresses of this machine and of private networks"),
)
def _add_webhook(args: argparse.Namespace) -> None:
    """Add an endpoint and print its secret, once.

    The endpoint hears of what happens from now on. Receivers check signatures with the secret.
    """
    with extra("webhooks need", "service"):
        from steadyarm.service.webhooks import new_endpoint
    with open_storage(args, new=True) as storage:
        endpoint = new_endpoint(
            args.url,
            storage.now(),
            events=args.event,
            experiments=args.experiment,
            format=args.format,
            private=args.allow_private,
        )
        storage.webhooks.add(endpoint, by=user_name())
    print(endpoint.secret, flush=True)
    print(
        f"Keep the secret: it is not shown again. The endpoint is {endpoint.id}; try it with: "
        f"steadyarm webhook test {endpoint.id}",
        file=sys.stderr,
    )


@command("webhook list", FORMAT)
def _list_webhooks(args: argparse.Namespace) -> None:
    """List all endpoints without their secrets, and the messages that wait for them."""
    with open_storage(args, new=True) as storage:
        endpoints, queue = storage.webhooks.endpoints(), storage.webhooks.waiting()
    facts: list[dict[str, Any]] = []
    for endpoint in endpoints:
        waiting, error = queue.get(endpoint.id, (0, ""))
        facts.append(
            {
                "id": endpoint.id,
                "url": endpoint.shown,
                "events": list(endpoint.events),
                "experiments": list(endpoint.experiments),
                "format": endpoint.format,
                "waiting": waiting,
                "error": error,
            }
        )
    text = "There are no webhooks; add one with: steadyarm webhook add URL"
    if facts:
        rows = [
            [", ".join(v) or "all" if isinstance(v, list) else f"{v}" for v in fact.values()]
            for fact in facts
        ]
        text = table(tuple(facts[0]), rows, "<<<<<><", most=None)
    show(args, {"webhooks": facts}, text)


@command("webhook remove", ID)
def _remove_webhook(args: argparse.Namespace) -> None:
    """Remove an endpoint and its messages: it is told nothing any more."""
    with open_storage(args) as storage:
        endpoint = storage.webhooks.remove(args.id, by=user_name())
    print(f"{endpoint.shown} is told nothing any more.")


@command("webhook test", ID)
def _test_webhook(args: argparse.Namespace) -> None:
    """Send a test to an endpoint from this machine, and say how that went.

    It is sent once, whether a service runs or not; the status is 1 if it is not accepted.
    """
    with extra("webhooks need", "service"):
        from steadyarm.service.webhooks import DeliveryError, send_test
    with open_storage(args) as storage:
        endpoint, now = storage.webhooks.find(args.id), storage.now()
    try:
        status = asyncio.run(send_test(endpoint, now))
    except DeliveryError as error:
        raise SteadyArmError(f"the test was not accepted: {error}") from None
    print(f"{endpoint.shown} answered {status}.")


# The audit log


@command(
    "audit",
    ("--experiment NAME", "only entries about this experiment"),
    ("--after N = 0", "only entries after this one, such as the last of an earlier export"),
    FORMAT,
    STORAGE,
)
def audit(args: argparse.Namespace) -> None:
    """Print who created, changed and corrected what, and when.

    The audit log has experiments created, started, paused, stopped and archived, corrections with
    their reasons, tokens and webhooks added and removed. Entries are only ever added; the database
    itself refuses to change or delete one.
    """
    from steadyarm.wire.responses import AuditEntryAnswer, AuditLog

    with open_storage(args) as storage:
        entries = [AuditEntryAnswer.of(entry) for entry in _entries(storage, args)]
    show(args, AuditLog(entries), "\n".join(map(_line, entries)) or "There are no entries.")


def _entries(storage: Storage, args: argparse.Namespace) -> Iterator[AuditEntry]:
    after = args.after
    while page := storage.audit(after, experiment=args.experiment):
        yield from page
        after = page[-1].id


def _line(entry: AuditEntryAnswer) -> str:
    what = ", ".join(f"{name} {value}" for name, value in entry.detail.items())
    by = f" by {entry.author}" if entry.author else ""
    text = "  ".join(word for word in (entry.action, entry.experiment or "", what) if word)
    return f"{entry.id:>5}  {entry.created:%Y-%m-%d %H:%M} UTC{by}  {text}"
