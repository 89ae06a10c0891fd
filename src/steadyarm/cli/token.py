"""`steadyarm token` and `steadyarm audit`: who may use the service, and who changed what."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from steadyarm.cli.common import (
    FORMAT,
    STORAGE,
    Option,
    add_command,
    extra,
    opened,
    show,
    table,
    typed_by,
)
from steadyarm.errors import InvalidInputError
from steadyarm.live.settings import microseconds
from steadyarm.storages import open_storage
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import AuditEntry
from steadyarm.storages.records import to_datetime

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
COLUMNS = ("id", "created", "author", "action", "experiment", "detail")


def add_parser(commands: Any) -> None:
    """Describe the options of `steadyarm token`."""
    about = """Manage who may use the service: create, list and remove tokens.

    Once there has been one, every request needs one; changes count within five seconds.
    """
    parser = add_command(commands, "token", None, text=about)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    scopes = "read results; write also assignments and rewards; admin everything"
    create: list[Option] = [
        ("--name NAME", "to know it by, such as shop-frontend", {"required": True}),
        ("--scope read|write|admin", scopes, {"required": True}),
    ]
    remove = [
        ("name NAME", "that the token was created with"),
        (
            "--lock-out",
            "remove it even if it is the last one, or the last one with the scope admin: nobody "
            "can then get in over HTTP, or change anything, until a token is created on this "
            "machine",
        ),
    ]
    add_command(actions, "create", run_create, [*create, STORAGE])
    add_command(actions, "list", run_list, [FORMAT, STORAGE])
    add_command(actions, "remove", run_remove, [*remove, STORAGE])


def run_create(args: argparse.Namespace) -> None:
    """Create a token and print it, once.

    Only a hash of it is stored.
    """
    with extra("tokens need", "service"):
        from steadyarm.service.auth import new_token
    if not NAME.fullmatch(args.name):
        expected = "up to 100 letters, digits and . _ @ -, the first a letter or digit"
        raise InvalidInputError.of("--name", args.name, expected)
    token, record = new_token(args.name, args.scope)
    with closing(open_storage(args.storage)) as storage:
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


def run_list(args: argparse.Namespace) -> None:
    """List name, scope and date of every token, not the tokens."""
    from steadyarm.wire.responses import iso

    with closing(open_storage(args.storage)) as storage:
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


def run_remove(args: argparse.Namespace) -> None:
    """Refuse a token from now on.

    Removes it and ends the sessions of people who signed in with it; the service refuses it within
    five seconds.
    """
    with closing(open_storage(args.storage)) as storage:
        now = microseconds(time.time())
        storage.remove_token(args.name, now=now, by=typed_by(), lock_out=args.lock_out)
        left = storage.tokens()
    print(f"The token {args.name} is refused within five seconds; {len(left)} left.")
    if not left:
        print("Nobody can use the service over HTTP until a token is created.", file=sys.stderr)


def add_audit_parser(commands: Any) -> None:
    """Describe the options of `steadyarm audit`."""
    add_command(
        commands,
        "audit",
        run_audit,
        [
            ("--experiment NAME", "only entries about this experiment"),
            (
                "--after N = 0",
                "only entries after this one, to go on where the last export ended",
                {"metavar": "ENTRY"},
            ),
            ("--format text|json|csv = text", "text for people, json and csv for programs"),
            STORAGE,
        ],
    )


def run_audit(args: argparse.Namespace) -> None:
    """Print who created, changed and corrected what, and when.

    The audit log has experiments created, started, paused, stopped, archived and imported,
    corrections with their reasons, tokens created and removed. Entries are only ever added; the
    database itself refuses to change or delete one.
    """
    from msgspec import to_builtins

    from steadyarm.wire.results import AuditEntryAnswer, AuditLog

    with opened(args) as storage:
        entries = list(_entries(storage, args.after, args.experiment))
    facts = [AuditEntryAnswer.of(entry) for entry in entries]
    if args.format == "csv":
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for one in facts:
            plain = to_builtins(one)
            detail = json.dumps(one.detail, ensure_ascii=False)
            rows.writerow([*(plain[name] for name in COLUMNS[:-1]), detail])
        print(file.getvalue(), end="")
    else:
        text = "\n".join(map(_line, entries)) or "There are no entries."
        show(args, AuditLog(facts), text)


def _entries(storage: Storage, after: int, experiment: str | None) -> Iterator[AuditEntry]:
    while page := storage.audit(after, experiment=experiment):
        yield from page
        after = page[-1].id


def _line(entry: AuditEntry) -> str:
    from steadyarm.wire.results import AuditEntryAnswer

    facts = AuditEntryAnswer.of(entry).detail
    what = ", ".join(f"{name} {value}" for name, value in facts.items())
    by = f" by {entry.author}" if entry.author else ""
    text = "  ".join(word for word in (entry.action, entry.experiment or "", what) if word)
    return f"{entry.id:>5}  {to_datetime(entry.created):%Y-%m-%d %H:%M} UTC{by}  {text}"
