"""`steadyarm serve`, `token`, and `audit`: the service, who may use it, who changed what."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import steadyarm as sa
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
from steadyarm.errors import InvalidInputError

if TYPE_CHECKING:
    from steadyarm.storages import Storage
    from steadyarm.storages.changes import AuditEntry, TokenRecord
    from steadyarm.wire.results import AuditEntryAnswer

DASHBOARD = "steadyarm.dashboard.app:create_app"  # imported when it is served
PARTS = ("itsdangerous", "jinja2")  # that the dashboard needs beyond the service
POSTGRES_WRITERS = 4  # threads; SQLite lets one write at a time anyway
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
MOST_RATE = 1_000_000


@command(
    "serve",
    ("--host ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)"),
    ("--port N", "port of that address (default: 8000); 0 for a free one"),
    STORAGE,
    (
        "--allowed-host NAME",
        "a name under which requests come, such as that of a proxy in front; may be repeated, and "
        "others are then refused (default: all)",
        {"dest": "allowed_hosts", "action": "append"},
    ),
    (
        "--root-path PATH",
        "path under which a proxy serves this service, such as /ab, if it is not alone on its host",
    ),
    (
        "--trusted-proxy ADDRESS",
        "address or network of a proxy in front, such as 127.0.0.1 or 10.0.0.0/8; may be repeated. "
        "Only these are believed who sent a request (X-Forwarded-For and -Proto)",
        {"dest": "trusted_proxies", "action": "append"},
    ),
    ("--workers N", "number of processes (default: 1)"),
    ("--max-body N", "bytes a request may have (default: 1000000)", {"metavar": "BYTES"}),
    ("--max-batch N", "items a batch may have (default: 1000)"),
    ("--max-waiting N", "assignments and rewards that may wait to be written (default: 50000)"),
    ("--max-connections N", "open connections of each process (default: 4000)"),
    (
        "--request-timeout X",
        "seconds in which a request is answered or refused (default: 15)",
        {"metavar": "SECONDS"},
    ),
    (
        "--public-url URL",
        "address under which people open the dashboard, for links in webhooks (default: no links)",
    ),
    ("--log-format text|json", "of the lines on standard output (default: text)"),
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

        for part in PARTS:
            import_module(part)
    known = ("run", "command", "typed")
    given = {name: value for name, value in vars(args).items() if name not in known}
    for name in ("allowed_hosts", "trusted_proxies"):
        if given[name] is not None:
            given[name] = tuple(given[name])
    settings = ServiceSettings.from_environment(os.environ, **given)
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
    (
        "--scope read|write|admin|assign",
        "read results; write also assignments and rewards; admin everything; assign makes a "
        "publishable key, for pages that visitors load",
        {"required": True},
    ),
    STORAGE,
    {
        "publishable keys (--scope assign)": [
            ("--experiment NAME ...", "an experiment that the key is for; may be repeated"),
            (
                "--origin ORIGIN ...",
                "the origin of pages that use the key, such as https://shop.example; may be "
                "repeated; none for programs that are no browsers",
            ),
            ("--rate N", "requests that one address may send in a minute (default: 120)"),
            (
                "--signed-units",
                "take only units that your server has signed; prints the secret for that, once, in "
                "a second line",
            ),
        ]
    },
)
def _create(args: argparse.Namespace) -> None:
    """Create a token and print it, once.

    Only a hash of it is stored. A publishable key (--scope assign) begins with pk_. It assigns
    variants and reports rewards of the experiments that it names, from pages of the origins that it
    declares, and opens nothing else, so it may stand in a page. The secret of --signed-units is
    stored as it is.

    For example:

        steadyarm token create --name me --scope admin
        steadyarm token create --name web --scope assign --experiment shop
            --origin https://shop.example
    """
    with extra("tokens need", "service"):
        from steadyarm.service.auth import new_token
    if not NAME.fullmatch(args.name):
        expected = "up to 100 letters, digits and . _ @ -, the first a letter or digit"
        raise InvalidInputError.of("--name", args.name, expected)
    _check_bounds(args)
    token, record = new_token(args.name, args.scope) if args.scope != "assign" else _key(args)
    with closing(sa.storages.open_storage(args.storage)) as storage:
        first = not storage.tokens.closed()
        storage.tokens.add(record, by=typed_by())
        names = {summary.name for summary in storage.summaries()}
    print(token, flush=True)
    if record.publishable:
        print("Visitors may read it: it is for pages that they load.", file=sys.stderr)
    if record.signing is not None:
        print(record.signing, flush=True)
        print(
            "The second line is the secret for your server, which signs units with it: "
            "steadyarm.sign_unit(secret, unit). Visitors must not see it.",
            file=sys.stderr,
        )
    for name in sorted({*record.experiments} - names):
        print(f"There is no experiment {name} yet; the key will be for it.", file=sys.stderr)
    print("Keep the token: it is not shown again.", file=sys.stderr)
    if first:
        print(
            "It is the first; from now on every request needs a token, also when this one is "
            "removed." + (" Create one with the scope admin, too." * (args.scope != "admin")),
            file=sys.stderr,
        )


def _check_bounds(args: argparse.Namespace) -> None:
    """Refuse options of publishable keys for other tokens, and publishable keys without them."""
    given = {
        "--experiment": args.experiment,
        "--origin": args.origin,
        "--rate": args.rate,
        "--signed-units": args.signed_units,
    }
    for option, value in given.items():
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


def _key(args: argparse.Namespace) -> tuple[str, TokenRecord]:
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
        return new_key(args.name, args.experiment, args.origin, rate, args.signed_units)
    except InvalidInputError as error:
        raise error.called("--origin") if error.field == "origin" else error from None


@command("token list", FORMAT, STORAGE)
def _list(args: argparse.Namespace) -> None:
    """List name, scope, date and bounds of every token, not the tokens."""
    from steadyarm.storages.records import to_datetime
    from steadyarm.wire.responses import iso

    with closing(sa.storages.open_storage(args.storage)) as storage:
        tokens, closed = storage.tokens.all(), storage.tokens.closed()
    facts = [
        {"name": token.name, "scope": token.scope, "created": iso(to_datetime(token.created))}
        | (
            token.detail | {"rate": token.rate, "signed_units": token.signing is not None}
            if token.publishable
            else {}
        )
        for token in tokens
    ]
    text = "There are no tokens yet; the service answers this machine only."
    if closed:
        text = "There are no tokens any more; the service lets nobody in until one is created."
    if tokens:
        rows = [
            (t.name, t.scope, f"{to_datetime(t.created):%Y-%m-%d %H:%M} UTC", _bounds(t))
            for t in tokens
        ]
        heads = ("name", "scope", "created", "for")
        text = table(heads, rows, "<<<<", most=None)
        if not any(token.publishable for token in tokens):
            text = table(heads[:3], [row[:3] for row in rows], "<<<", most=None)
    show(args, {"tokens": facts}, text)


def _bounds(token: TokenRecord) -> str:
    """What a publishable key is for; empty for other tokens."""
    if not token.publishable:
        return ""
    places = ", ".join(token.origins)
    signed = ", signed units" * (token.signing is not None)
    return f"{', '.join(token.experiments)} from {places}, {token.rate} a minute{signed}"


@command(
    "token remove",
    ("name NAME", "that the token was created with"),
    (
        "--lock-out",
        "remove it even if it is the last one, or the last one with the scope admin: nobody can "
        "then get in over HTTP, or change anything, until a token is created on this machine",
    ),
    STORAGE,
)
def _remove(args: argparse.Namespace) -> None:
    """Refuse a token from now on.

    Removes it and ends the sessions of people who signed in with it; the service refuses it within
    five seconds.
    """
    with closing(sa.storages.open_storage(args.storage)) as storage:
        now = round(time.time() * 1e6)
        storage.tokens.remove(args.name, now=now, by=typed_by(), lock_out=args.lock_out)
        left = storage.tokens.all()
    print(f"The token {args.name} is refused within five seconds; {len(left)} left.")
    if not left:
        print("Nobody can use the service over HTTP until a token is created.", file=sys.stderr)


@command(
    "audit",
    ("--experiment NAME", "only entries about this experiment"),
    (
        "--after N = 0",
        "only entries after this one, to go on where the last export ended",
        {"metavar": "ENTRY"},
    ),
    FORMAT,
    STORAGE,
)
def audit(args: argparse.Namespace) -> None:
    """Print who created, changed and corrected what, and when.

    The audit log has experiments created, started, paused, stopped, archived and imported,
    corrections with their reasons, tokens and webhooks added and removed. Entries are only ever
    added; the database itself refuses to change or delete one.
    """
    from steadyarm.wire.results import AuditEntryAnswer, AuditLog

    with opened(args) as storage:
        entries = [AuditEntryAnswer.of(entry) for entry in _entries(storage, args)]
    show(args, AuditLog(entries), "\n".join(map(_line, entries)) or "There are no entries.")


def _entries(log: Storage, args: argparse.Namespace) -> Iterator[AuditEntry]:
    after = args.after
    while page := log.audit(after, experiment=args.experiment):
        yield from page
        after = page[-1].id


def _line(entry: AuditEntryAnswer) -> str:
    what = ", ".join(f"{name} {value}" for name, value in entry.detail.items())
    by = f" by {entry.author}" if entry.author else ""
    text = "  ".join(word for word in (entry.action, entry.experiment or "", what) if word)
    return f"{entry.id:>5}  {entry.created:%Y-%m-%d %H:%M} UTC{by}  {text}"
