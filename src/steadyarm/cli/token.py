"""`steadyarm token`: who may use the service; tokens are made and removed in the storage."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from contextlib import closing
from typing import Any

from steadyarm.cli.options import add_format, add_storage, typed_by
from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.live.assignments import to_datetime
from steadyarm.live.serializers import iso
from steadyarm.live.settings import microseconds
from steadyarm.storages import open_storage

__all__ = ["add_parser"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "token",
        help="who may use the service",
        description="Creates, lists and removes tokens of the service. Once there has been one, "
        "every request needs one; changes count within five seconds.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = actions.add_parser(
        "create",
        help="a new token, shown once",
        description="Makes a token and prints it. Only a hash of it is stored.",
    )
    create.add_argument("--name", required=True, help="to know it by, such as shop-frontend")
    create.add_argument(
        "--scope",
        required=True,
        choices=["read", "write", "admin"],
        help="read results; write also assignments and rewards; admin everything",
    )
    create.set_defaults(run=run_create)
    listed = actions.add_parser(
        "list",
        help="names, scopes and dates",
        description="Prints name, scope and date of every token, not the tokens.",
    )
    add_format(listed)
    listed.set_defaults(run=run_list)
    remove = actions.add_parser(
        "remove",
        help="refuse a token from now on",
        description="Forgets a token and ends the sessions of people who signed in with it; the "
        "service refuses it within five seconds.",
    )
    remove.add_argument("name", metavar="NAME", help="that the token was created with")
    remove.add_argument(
        "--lock-out",
        action="store_true",
        help="remove it even if it is the last one, or the last one with the scope admin: nobody "
        "can then get in over HTTP, or change anything, until a token is created on this machine",
    )
    remove.set_defaults(run=run_remove)
    for action in (create, listed, remove):
        add_storage(action)


def run_create(args: argparse.Namespace) -> None:
    """Print a new token."""
    try:
        from steadyarm.service.auth import new_token
    except ImportError as error:
        raise MissingExtraError(
            f"tokens need {error.name}; install it with: pip install 'steadyarm[service]'"
        ) from None
    if not NAME.fullmatch(args.name):
        raise InvalidInputError(
            f"--name is {args.name!r}; expected up to 100 letters, digits and . _ @ -, the first "
            "a letter or digit."
        )
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
    """Print names, scopes and dates."""
    with closing(open_storage(args.storage)) as storage:
        tokens, closed = storage.tokens(), storage.closed()
    if args.format == "json":
        facts = [
            {"name": token.name, "scope": token.scope, "created": iso(to_datetime(token.created))}
            for token in tokens
        ]
        print(json.dumps({"tokens": facts}))
        return
    if not tokens:
        if closed:
            print("There are no tokens any more; the service lets nobody in until one is created.")
        else:
            print("There are no tokens yet; the service answers this machine only.")
        return
    width = max(len(token.name) for token in tokens)
    for token in tokens:
        created = to_datetime(token.created)
        print(f"{token.name:<{width}}  {token.scope:<5}  {created:%Y-%m-%d %H:%M} UTC")


def run_remove(args: argparse.Namespace) -> None:
    """Forget a token."""
    with closing(open_storage(args.storage)) as storage:
        now = microseconds(time.time())
        storage.remove_token(args.name, now=now, by=typed_by(), lock_out=args.lock_out)
        left = storage.tokens()
    print(f"The token {args.name} is refused within five seconds; {len(left)} left.")
    if not left:
        print("Nobody can use the service over HTTP until a token is created.", file=sys.stderr)
