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
from steadyarm.cli.main import (
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
    from steadyarm.storages.records import AuditEntry
    from steadyarm.storages.service import TokenRecord
    from steadyarm.wire.responses import AuditEntryAnswer

DASHBOARD = "steadyarm.dashboard.app:create_app"  # imported when it is served
POSTGRES_WRITERS = 4  # threads; SQLite lets one write at a time anyway
MOST_RATE = 1_000_000


@command(
    "serve",
    ("--host ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)"),
    ("--port N", "port to listen on; 0 for a free one (default: 8000)"),
    STORAGE,
    ("--allowed-host NAME ...", "host name that requests may use", {"dest": "allowed_hosts"}),
    ("--root-path PATH", "path under which a proxy serves this service, such as /ab"),
    (
        "--trusted-proxy ADDRESS ...",
        "proxy whose X-Forwarded headers are trusted, such as 10.0.0.0/8",
        {"dest": "trusted_proxies"},
    ),
    ("--max-body N", "most bytes of a request (default: 1000000)"),
    ("--max-batch N", "most items of a batch (default: 1000)"),
    ("--max-connections N", "most open connections (default: 4000)"),
    ("--request-timeout X", "seconds until a request is refused (default: 15)"),
    ("--public-url URL", "address of the dashboard for links in webhooks (default: no links)"),
    ("--clock-from TIME", "start of a clock for rehearsals, such as 2026-03-01T08:00"),
    ("--clock-speed X", "speed of that clock, such as 1000 (default: 1)"),
    ("--log-format text|json", "json for one object per line (default: text)"),
    (
        "--log-level debug|info|warning|error",
        "least severe messages to log (default: info)",
    ),
    (
        "--no-access-log",
        "do not log every request",
        {"dest": "access_log", "action": "store_false", "default": None},
    ),
)
def serve(args: argparse.Namespace) -> None:
    """Serve live experiments over HTTP until it is interrupted.

    Every option has an environment variable, such as STEADYARM_PORT=80 or
    STEADYARM_ACCESS_LOG=false. Until you create a token, the service accepts only direct
    connections from this machine; see steadyarm token. Behind a proxy, declare its public host
    names with --allowed-host.

    The dashboard is at /, the API reference at /docs and /openapi.json. /healthz, /readyz and
    /metrics are for monitoring.
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
    """Create, list and remove the tokens that give access to the service.

    After the first token was created, every request needs one. Changes take effect within five
    seconds.
    """,
)


@command(
    "token create",
    ("--name NAME", "name of the token, such as shop-frontend", {"required": True}),
    ("--scope read|write|admin|assign", "rights of the token (see above)", {"required": True}),
    ("--expires TIME", "lifetime of the token, such as 90d (default: never expires)"),
    STORAGE,
    {
        "publishable keys (--scope assign)": [
            ("--experiment NAME ...", "experiment that the key may use"),
            (
                "--origin ORIGIN ...",
                "origin of pages, such as https://shop.example",
            ),
            ("--rate N", "requests per minute from one address (default: 120)"),
            ("--signed-units", "accept only units that your server has signed; prints a secret"),
        ]
    },
)
def _create_token(args: argparse.Namespace) -> None:
    """Create a token and print it, once.

    Only a hash of the token is stored. The scope read allows reading results. write also allows
    assignments and rewards. admin allows everything.

    A token with the scope assign is a publishable key for pages that visitors load. It begins with
    pk_. It assigns variants and reports rewards of the named experiments, from pages of the
    declared origins, and allows nothing else. With --signed-units, the second line of the output is
    the secret with which your server signs units. This secret is stored in plain text.

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
    notes = ["Keep the token. It is not shown again."]
    print(token, flush=True)
    if record.publishable:
        notes.insert(0, "This key is for pages. Visitors may read it.")
    if record.signing is not None:
        print(record.signing, flush=True)
        notes.append(
            "The second line is a secret. Your server signs units with it: "
            "steadyarm.sign_unit(secret, unit). Do not send it to visitors."
        )
    for name in sorted({*record.experiments} - experiments):
        notes.append(f"The experiment {name} does not exist yet. Create it to use the key.")
    if first:
        notes.append(
            "This is the first token. From now on every request needs a token, even if you remove "
            "this one." + (" Create a token with the scope admin, too." * (args.scope != "admin"))
        )
    print(*notes, sep="\n", file=sys.stderr)


def _check_bounds(args: argparse.Namespace) -> None:
    """Refuse options of publishable keys for other tokens, and publishable keys without them."""
    for option in ("--experiment", "--origin", "--rate", "--signed-units"):
        value = getattr(args, option[2:].replace("-", "_"))
        if value not in (None, [], False) and args.scope != "assign":
            raise InvalidInputError(
                f"{option} is for publishable keys. Leave it out, or use --scope assign."
            )
        if value == [] and args.scope == "assign":
            raise InvalidInputError(
                f"{option} is required: a publishable key is limited to named experiments and "
                "origins."
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
    """List name, scope, dates and limits of every token, not the tokens.

    The last use is recorded at most once a minute.
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
    text = "There are no tokens yet. The service accepts connections from this machine only."
    if closed:
        text = "All tokens were removed. The service refuses every request until you create one."
    if tokens:
        header = ("name", "scope", "created", "expires", "last used", "for")
        text = table(header, rows, "<<<<<<", most=None)
    show(args, {"tokens": facts}, text)


@command(
    "token remove",
    ("name NAME", "name of the token"),
    ("--lock-out", "also remove the last token, or the last one with the scope admin"),
    STORAGE,
)
def _remove_token(args: argparse.Namespace) -> None:
    """Remove a token.

    Ends the sessions of people who signed in with it. The service refuses the token within five
    seconds.
    """
    with closing(sa.storages.open_storage(args.storage)) as storage:
        now = round(time.time() * 1e6)
        storage.tokens.remove(args.name, now=now, by=user_name(), lock_out=args.lock_out)
        left = storage.tokens.all()
    print(f"The token {args.name} is refused within five seconds. Tokens left: {len(left)}.")
    if not left:
        print("The service refuses every request until you create a token.", file=sys.stderr)


# Webhooks


ID = ("id ID", "id of the endpoint, such as wh_0123456789ab; steadyarm webhook list shows it")

group(
    "webhook",
    """Send a message when an experiment starts, is decided, turns unhealthy or ends.

    A running steadyarm serve sends the messages. They are signed as Standard Webhooks defines it.
    """,
    STORAGE,
)


@command(
    "webhook add",
    ("url URL", "address that receives the messages: https:// or http://"),
    (
        "--event TYPE ...",
        "experiment.started, experiment.decided, experiment.unhealthy, experiment.budget_spent or "
        "experiment.window_closed (default: all)",
    ),
    ("--experiment NAME ...", "experiment to send messages about (default: all)"),
    ("--format standard|slack = standard", "slack for Slack's incoming webhooks"),
    ("--allow-private", "allow addresses of this machine and of private networks"),
)
def _add_webhook(args: argparse.Namespace) -> None:
    """Add an endpoint and print its secret, once.

    The endpoint gets messages about later events. Receivers check signatures with the secret.
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
        f"Keep the secret. It is not shown again. The endpoint is {endpoint.id}. Test it with: "
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
    text = "There are no webhooks. Add one with: steadyarm webhook add URL"
    if facts:
        rows = [
            [", ".join(v) or "all" if isinstance(v, list) else f"{v}" for v in fact.values()]
            for fact in facts
        ]
        text = table(tuple(facts[0]), rows, "<<<<<><", most=None)
    show(args, {"webhooks": facts}, text)


@command("webhook remove", ID)
def _remove_webhook(args: argparse.Namespace) -> None:
    """Remove an endpoint and its waiting messages."""
    with open_storage(args) as storage:
        endpoint = storage.webhooks.remove(args.id, by=user_name())
    print(f"{endpoint.shown} gets no more messages.")


@command("webhook test", ID)
def _test_webhook(args: argparse.Namespace) -> None:
    """Send a test message to an endpoint from this machine.

    It is sent once; no service needs to run. Exits with status 1 if the message is not accepted.
    """
    with extra("webhooks need", "service"):
        from steadyarm.service.webhooks import DeliveryError, send_test
    with open_storage(args) as storage:
        endpoint, now = storage.webhooks.find(args.id), storage.now()
    try:
        status = asyncio.run(send_test(endpoint, now))
    except DeliveryError as error:
        raise SteadyArmError(f"the endpoint did not accept the test: {error}") from None
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
    """Print the audit log: who changed what, and when.

    The log records changes of experiments, corrections with their reasons, and tokens and webhooks
    that were added or removed. The database refuses to change or delete an entry.
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
