"""`steadyarm storage`: where live experiments are kept, checked, backed up and upgraded."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyarm.cli.options import add_format, add_storage
from steadyarm.errors import InvalidInputError, SteadyArmError, UnknownExperimentError
from steadyarm.live.lifecycle import check_storage
from steadyarm.storages import (
    backup_command,
    backup_storage,
    open_storage,
    restore_storage,
    storage_status,
    upgrade_storage,
)
from steadyarm.storages.base import Storage

if TYPE_CHECKING:
    from steadyarm.storages.sql.upkeep import StorageStatus

__all__ = ["add_parser", "opened"]

EPILOG = """\
The first experiment makes the tables. After a new version of SteadyArm was installed:

  steadyarm storage status  --storage postgresql+psycopg://me@host/tests
  steadyarm storage upgrade --storage postgresql+psycopg://me@host/tests

Stop the processes that use the storage and make a backup first. An upgrade is one transaction: it
happens as a whole or not at all. A backup may be made at any time, also of a storage in use:

  steadyarm storage backup  tests-monday.db --storage sqlite:///tests.db
  steadyarm storage restore tests-monday.db --storage sqlite:///tests.db
  steadyarm storage check                   --storage sqlite:///tests.db
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
        help="check, back up, restore, prune or upgrade where live experiments are kept",
        description="Looks at the database in which live experiments are kept: checks it, backs it "
        "up and restores it, removes what nobody needs, or brings its tables up to date after a "
        "new version of SteadyArm was installed.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    added = {}
    for name, run, text, more in (
        (
            "status",
            _status,
            "which version the tables are of; changes nothing",
            " Reads a whole file of SQLite to find damage, and ends with status 1 if there is any.",
        ),
        (
            "check",
            _check,
            "look for damage, compute every experiment anew; status 1 if anything is wrong",
            " Looks for damage of the file, for missing tables and for rows that belong to "
            "nothing, then replays every experiment. Changes nothing.",
        ),
        (
            "backup",
            _backup,
            "copy an SQLite storage that may be in use; name pg_dump for PostgreSQL",
            " The copy is as of one moment, and it is checked before it gets its name. Of "
            "PostgreSQL the command line of pg_dump is printed, with status 2.",
        ),
        (
            "restore",
            _restore,
            "put a backup in the place of an SQLite storage; name pg_restore for PostgreSQL",
            " Refuses a storage that is in use and a backup that is damaged. The file that was "
            "there is kept beside it under a name that says when. A service that needed tokens "
            "goes on to need them, all sessions end, and the tokens that are valid now are named. "
            "Of PostgreSQL the command line of pg_restore is printed, with status 2.",
        ),
        (
            "prune",
            _prune,
            "remove what nobody needs: ended leases, expired sessions, old experiments",
            " Gives positions of expired leases back and removes rows of leases that ended more "
            "than a day ago, sessions that have expired and, if asked to, archived experiments. "
            "Traffic may go on meanwhile.",
        ),
        ("upgrade", _upgrade, "bring the tables up to date, or make them", ""),
    ):
        verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.{more}")
        add_storage(verb)
        add_format(verb)
        verb.set_defaults(run=run)
        added[name] = verb
    added["backup"].add_argument(
        "target", type=Path, metavar="TARGET", help="the file that is written"
    )
    added["backup"].add_argument(
        "--force", action="store_true", help="replace TARGET if it is there, unless it is in use"
    )
    added["restore"].add_argument(
        "backup", type=Path, metavar="BACKUP", help="the file that steadyarm storage backup wrote"
    )
    added["prune"].add_argument(
        "--archived-before",
        type=_date,
        metavar="DATE",
        help="also delete experiments that were archived before it, such as 2026-01-31 (UTC); "
        "export them first",
    )
    added["prune"].add_argument(
        "--yes", action="store_true", help="delete these experiments, for good"
    )


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
    found = storage_status(args.storage, thorough=True)
    if args.format == "json":
        print(json.dumps(_facts(found)))
    else:
        print(f"{found.url}: {MEANING[found.state]}.")
        print(f"Tables: {found.revision or 'none'}; this SteadyArm works with {found.newest}.")
    if found.damage is not None:
        raise SteadyArmError(
            f"{found.url}: the file is damaged ({found.damage}); restore a backup with: steadyarm "
            "storage restore"
        )


def _check(args: argparse.Namespace) -> None:
    found = check_storage(args.storage)
    if args.format == "json":
        print(json.dumps(asdict(found)))
    else:
        for line in found.skipped:
            print(f"not computed anew: {line}")
        for line in found.faults:
            print(line)
        if not found.faults:
            count = found.experiments
            print(f"All is in order; {count} experiment{'s' * (count != 1)} computed anew.")
    if found.faults:
        count = len(found.faults)
        raise SteadyArmError(f"{count} fault{'s' * (count != 1)} found; nothing was changed.")


def _backup(args: argparse.Namespace) -> None:
    _name_tool(backup_command(args.storage, args.target))
    made = backup_storage(args.storage, args.target, force=args.force)
    size = made.stat().st_size
    if args.format == "json":
        print(json.dumps({"backup": str(made), "bytes": size}))
    else:
        print(f"{made}: {size:,} bytes, checked.")


def _restore(args: argparse.Namespace) -> None:
    _name_tool(backup_command(args.storage, args.backup, restore=True))
    done = restore_storage(args.storage, args.backup)
    before = None if done.before is None else str(done.before)
    if args.format == "json":
        facts = {"file": str(done.file), "before": before, "revision": done.revision}
        named = [{"name": name, "scope": scope} for name, scope in done.tokens]
        admitted = {"closed": done.closed, "tokens": named, "returned": done.returned}
        print(json.dumps(facts | {"newest": done.newest} | admitted))
        return
    print(f"{done.file}: restored from {args.backup}.")
    if before is not None:
        print(f"What was there is kept as {before}.")
    if done.tokens:
        print(f"Valid tokens now: {', '.join(f'{name} ({scope})' for name, scope in done.tokens)}.")
    elif done.closed:
        print("No token is valid now; the service lets nobody in until one is created.")
    else:
        print("There has been no token; the service answers this machine only, and lets all in.")
    if done.returned:
        print(
            f"Not valid before the restore: {', '.join(done.returned)}; what was removed on "
            "purpose is removed again with: steadyarm token remove NAME"
        )
    if done.revision != done.newest:
        print(f"Its tables are of version {done.revision}; run: steadyarm storage upgrade")


def _prune(args: argparse.Namespace) -> None:
    before = args.archived_before
    with opened(args) as storage:
        now = storage.now()  # leases and sessions end by this clock, not by that of this machine
        if before is not None and not args.yes:
            names = storage.prune(now, before, dry=True).experiments
            if names:
                raise InvalidInputError(
                    f"this would delete {', '.join(names)} for good, and nothing was removed; "
                    "export what you want to keep with steadyarm experiment export NAME FILE, then "
                    "add --yes."
                )
        pruned = storage.prune(now, before)
    if args.format == "json":
        print(json.dumps(asdict(pruned)))
        return
    print(f"Given back: {pruned.positions:,} positions of expired leases.")
    print(f"Removed: {pruned.leases:,} rows of leases, {pruned.sessions:,} expired sessions.")
    if before is not None:
        print(f"Deleted: {', '.join(pruned.experiments) or 'no experiments'}.")


def _upgrade(args: argparse.Namespace) -> None:
    before, after = upgrade_storage(args.storage)
    found = storage_status(args.storage)
    if args.format == "json":
        print(json.dumps({"before": before} | _facts(found)))
    elif before == after:
        print(f"{found.url}: {MEANING['current']}, nothing to do.")
    else:
        print(f"{found.url}: upgraded from {before or 'nothing'} to {after}.")


def _name_tool(command: str | None) -> None:
    """End with status 2 where PostgreSQL's own tools do it."""
    if command is not None:
        print(f"steadyarm: PostgreSQL has tools of its own for this:\n  {command}", file=sys.stderr)
        raise SystemExit(2)


def _date(text: str) -> int:
    """A day or a time, in UTC if it does not say otherwise, as it is stored."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; expected 2026-01-31") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1e6)


def _facts(found: StorageStatus) -> dict[str, str | None]:
    return {
        "url": found.url,
        "backend": found.backend,
        "revision": found.revision,
        "newest": found.newest,
        "state": found.state,
        "damage": found.damage,
    }
