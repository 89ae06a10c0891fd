"""`steadyarm storage`: the tables in which live experiments are kept, looked at and upgraded."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from steadyarm.cli.options import add_format, add_storage
from steadyarm.errors import UnknownExperimentError
from steadyarm.storages import open_storage, storage_status, upgrade_storage
from steadyarm.storages.base import Storage

if TYPE_CHECKING:
    from steadyarm.storages.sql.versions import StorageStatus

__all__ = ["add_parser", "opened"]

EPILOG = """\
The first experiment makes the tables. After a new version of SteadyArm was installed:

  steadyarm storage status  --storage postgresql+psycopg://me@host/tests
  steadyarm storage upgrade --storage postgresql+psycopg://me@host/tests

Stop the processes that use the storage and make a backup first. An upgrade is one transaction: it
happens as a whole or not at all.
"""

MEANING = {
    "current": "the tables are up to date",
    "older": "the tables are of an older version; make a backup, then: steadyarm storage upgrade",
    "newer": "the tables are of a newer version; install a newer SteadyArm",
    "empty": "there are no tables yet; the first experiment makes them",
}


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "storage",
        help="look at the tables of live experiments, or upgrade them",
        description="Looks at the tables in which live experiments are kept, or brings them up to "
        "date after a new version of SteadyArm was installed.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    for name, run, text in (
        ("status", _status, "which version the tables are of; changes nothing"),
        ("upgrade", _upgrade, "bring the tables up to date, or make them"),
    ):
        verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        add_storage(verb)
        add_format(verb)
        verb.set_defaults(run=run)


@contextmanager
def opened(args: argparse.Namespace, new: bool = False) -> Iterator[Storage]:
    """The storage that was named, closed in the end.

    new : whether its tables are made if there are none; else a wrong name would leave an empty
        file behind
    """
    found = storage_status(args.storage)  # refuses memory, which ends with the command
    if not new and found.state == "empty":
        raise UnknownExperimentError(
            f"there are no experiments in {found.url}; make one with steadyarm experiment create, "
            "or give the right --storage."
        )
    storage = open_storage(args.storage)
    try:
        yield storage
    finally:
        storage.close()


def _status(args: argparse.Namespace) -> None:
    found = storage_status(args.storage)
    if args.format == "json":
        print(json.dumps(_facts(found)))
    else:
        print(f"{found.url}: {MEANING[found.state]}.")
        print(f"Tables: {found.revision or 'none'}; this SteadyArm works with {found.newest}.")


def _upgrade(args: argparse.Namespace) -> None:
    before, after = upgrade_storage(args.storage)
    found = storage_status(args.storage)
    if args.format == "json":
        print(json.dumps({"before": before} | _facts(found)))
    elif before == after:
        print(f"{found.url}: {MEANING['current']}, nothing to do.")
    else:
        print(f"{found.url}: upgraded from {before or 'nothing'} to {after}.")


def _facts(found: StorageStatus) -> dict[str, str | None]:
    return {
        "url": found.url,
        "backend": found.backend,
        "revision": found.revision,
        "newest": found.newest,
        "state": found.state,
    }
