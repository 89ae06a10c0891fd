"""`steadyarm serve`, `token`, `audit` and `warm`: the service, who may use it, who changed what."""

from __future__ import annotations

import argparse
import csv
import io
import json
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
    from steadyarm.storages.changes import AuditEntry
    from steadyarm.wire.results import AuditEntryAnswer

DASHBOARD = "steadyarm.dashboard.app:create_app"  # imported when it is served
PARTS = ("itsdangerous", "jinja2", "plotly")  # that the dashboard needs beyond the service
POSTGRES_WRITERS = 4  # threads; SQLite lets one write at a time anyway
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
COLUMNS = ("id", "created", "author", "action", "experiment", "detail")


@command(
    "serve",
    ("--host ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)"),
    ("--port N", "port of that address (default: 8000); 0 for a free one"),
    STORAGE,
    (
        "--allowed-host NAME",
        "a name under which requests come, such as that of a proxy in front; may be repeated, and "
        "others are then refused (default: all, but through a proxy only localhost)",
        {"dest": "allowed_hosts", "action": "append"},
    ),
    ("--workers N", "number of processes (default: 1)"),
    ("--max-body N", "bytes a request may have (default: 1000000)", {"metavar": "BYTES"}),
    ("--max-batch N", "items a batch may have (default: 1000)"),
    ("--max-lease N", "positions a lease may have (default: 10000)"),
    ("--max-waiting N", "assignments and rewards that may wait to be written (default: 50000)"),
    ("--max-connections N", "open connections of each process (default: 4000)"),
    (
        "--request-timeout X",
        "seconds in which a request is answered or refused (default: 15)",
        {"metavar": "SECONDS"},
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
    is described at /openapi.json; /healthz, /readyz and /metrics are for monitoring.
    """
    with extra("the service needs", "service"):
        from steadyarm.service import process
        from steadyarm.service.settings import ServiceSettings

        for part in PARTS:
            import_module(part)
    known = ("run", "command", "typed")
    given = {name: value for name, value in vars(args).items() if name not in known}
    if given["allowed_hosts"] is not None:
        given["allowed_hosts"] = tuple(given["allowed_hosts"])
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
        "--scope read|write|admin",
        "read results; write also assignments and rewards; admin everything",
        {"required": True},
    ),
    STORAGE,
)
def _create(args: argparse.Namespace) -> None:
    """Create a token and print it, once.

    Only a hash of it is stored.
    """
    with extra("tokens need", "service"):
        from steadyarm.service.auth import new_token
    if not NAME.fullmatch(args.name):
        expected = "up to 100 letters, digits and . _ @ -, the first a letter or digit"
        raise InvalidInputError.of("--name", args.name, expected)
    token, record = new_token(args.name, args.scope)
    with closing(sa.storages.open_storage(args.storage)) as storage:
        first = not storage.closed()
        storage.add_token(record, by=typed_by())
    print(token, flush=True)
    print("Keep the token: it is not shown again.", file=sys.stderr)
    if first:
        print(
            "It is the first; from now on every request needs a token, also when this one is "
            "removed.",
            file=sys.stderr,
        )


@command("token list", FORMAT, STORAGE)
def _list(args: argparse.Namespace) -> None:
    """List name, scope and date of every token, not the tokens."""
    from steadyarm.storages.records import to_datetime
    from steadyarm.wire.responses import iso

    with closing(sa.storages.open_storage(args.storage)) as storage:
        tokens, closed = storage.tokens(), storage.closed()
    facts = [
        {"name": token.name, "scope": token.scope, "created": iso(to_datetime(token.created))}
        for token in tokens
    ]
    text = "There are no tokens yet; the service answers this machine only."
    if closed:
        text = "There are no tokens any more; the service lets nobody in until one is created."
    if tokens:
        rows = [(t.name, t.scope, f"{to_datetime(t.created):%Y-%m-%d %H:%M} UTC") for t in tokens]
        text = table(("name", "scope", "created"), rows, "<<<", most=None)
    show(args, {"tokens": facts}, text)


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
        storage.remove_token(args.name, now=now, by=typed_by(), lock_out=args.lock_out)
        left = storage.tokens()
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
    ("--format text|json|csv = text", "text for people, json and csv for programs"),
    STORAGE,
)
def audit(args: argparse.Namespace) -> None:
    """Print who created, changed and corrected what, and when.

    The audit log has experiments created, started, paused, stopped, archived and imported,
    corrections with their reasons, tokens created and removed. Entries are only ever added; the
    database itself refuses to change or delete one.
    """
    from msgspec import to_builtins

    from steadyarm.wire.results import AuditEntryAnswer, AuditLog

    with opened(args) as storage:
        entries = [AuditEntryAnswer.of(entry) for entry in _entries(storage, args)]
    if args.format == "csv":
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for entry in entries:
            plain = to_builtins(entry)
            detail = json.dumps(entry.detail, ensure_ascii=False)
            rows.writerow([*(plain[name] for name in COLUMNS[:-1]), detail])
        print(file.getvalue(), end="")
    else:
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


@command("warm")
def _warm(args: argparse.Namespace) -> None:
    """Compile numerical code ahead, where an installation or an image is made.

    Otherwise that is done when it is first needed. The code is kept in NUMBA_CACHE_DIR if that is
    set, else beside the installed files or in the cache of the user.
    """
    from steadyarm.warming import compile_all

    compile_all()
