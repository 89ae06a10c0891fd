"""`steadyarm storage`: where live experiments are kept, checked, backed up and upgraded."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime

import steadyarm as sa
from steadyarm.cli.common import FORMAT, STORAGE, command, group, open_storage, show
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.wording import counted

ABOUT = """Check, back up, copy, prune or upgrade where live experiments are kept.

Checks the database of live experiments, backs it up or copies it, removes what nobody needs, or
brings its tables up to date after a new version of SteadyArm was installed.

The first experiment makes the tables. After a new version of SteadyArm was installed:

  steadyarm storage status  --storage postgresql+psycopg://me@host/tests
  steadyarm storage upgrade --storage postgresql+psycopg://me@host/tests

Stop the processes that use the storage and make a backup first. An upgrade is one transaction: it
happens as a whole or not at all. A backup may be made at any time, also of a storage in use:

  steadyarm storage backup tests-monday.db --storage sqlite:///tests.db
  steadyarm storage check                  --storage sqlite:///tests.db

To move to another database:

  steadyarm storage copy sqlite:///tests.db postgresql+psycopg://me@host/tests
"""
MEANING = {
    "current": "the tables are up to date",
    "older": "the tables are of an older version; make a backup, then: steadyarm storage upgrade",
    "newer": "the tables are of a newer version; install a newer SteadyArm",
    "empty": "there are no tables yet; the first experiment makes them",
}


group("storage", ABOUT, STORAGE, FORMAT)


@command("storage status")
def _status(args: argparse.Namespace) -> None:
    """Say which version the tables are of; change nothing.

    Reads a whole file of SQLite to find damage, and ends with status 1 if there is any.
    """
    found = sa.storages.storage_status(args.storage, thorough=True)
    text = (
        f"{found.url}: {MEANING[found.state]}.\n"
        f"Tables: {found.revision or 'none'}; this SteadyArm works with {found.newest}."
    )
    show(args, asdict(found), text)
    if found.damage is not None:
        raise SteadyArmError(
            f"{found.url}: the file is damaged ({found.damage}); put a backup in its place."
        )


@command("storage check")
def _check(args: argparse.Namespace) -> None:
    """Check for damage and compute every experiment anew; status 1 if anything is wrong.

    Searches for damage of the file and for missing tables, then replays every experiment. Changes
    nothing.
    """
    from steadyarm.live.lifecycle import check_storage

    found = check_storage(args.storage)
    lines = [f"not computed anew: {line}" for line in found.skipped] + list(found.faults)
    if not found.faults:
        lines.append(f"All is in order; {counted(found.experiments, 'experiment')} computed anew.")
    if not found.experiments and not found.skipped:
        lines.append(
            "If there should be experiments: a copy of the file alone lacks what is in the file "
            "beside it that ends with -wal. Copy with: steadyarm storage backup"
        )
    show(args, asdict(found), "\n".join(lines))
    if found.faults:
        raise SteadyArmError(f"{counted(len(found.faults), 'fault')} found; nothing was changed.")


@command(
    "storage backup",
    ("target FILE", "the file that is written"),
    ("--force", "replace FILE if it exists, unless it is in use"),
)
def _backup(args: argparse.Namespace) -> None:
    """Copy an SQLite storage that may be in use.

    The copy is as of one moment, and it is checked before it gets its name. PostgreSQL has pg_dump.
    """
    made = sa.storages.backup_storage(args.storage, args.target, force=args.force)
    size = made.stat().st_size
    show(args, {"backup": str(made), "bytes": size}, f"{made}: {size:,} bytes, checked.")


@command(
    "storage copy",
    ("source SOURCE", "the URL of the storage that is copied"),
    ("target TARGET", "the URL of an empty database"),
)
def _copy(args: argparse.Namespace) -> None:
    """Copy all tables to an empty database, such as from SQLite to PostgreSQL.

    The copy is as of one moment. It happens as a whole or not at all.
    """
    copied = sa.storages.copy_storage(args.source, args.target)
    tests = counted(copied.get("experiments", 0), "experiment")
    text = f"Copied {tests}, {sum(copied.values()):,} rows in all."
    show(args, copied, text)


@command(
    "storage prune",
    ("--archived-before DATE", "also delete experiments archived before it, such as 2026-01-31"),
    ("--yes", "delete these experiments, for good"),
)
def _prune(args: argparse.Namespace) -> None:
    """Remove what nobody needs: expired sessions and old experiments.

    Removes sessions that have expired and, if asked to, experiments that were archived before a day
    (UTC); export them first. Traffic may go on meanwhile.
    """
    before = None
    if args.archived_before is not None:
        try:
            day = datetime.strptime(args.archived_before, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            given = args.archived_before
            raise InvalidInputError.of(
                "--archived-before", given, "a day, such as 2026-01-31"
            ) from None
        before = round(day.timestamp() * 1e6)
    with open_storage(args) as storage:
        now = storage.now()  # sessions end by this clock, not by that of this machine
        if before is not None and not args.yes:
            names = storage.prune(now, before, dry=True).experiments
            if names:
                raise InvalidInputError(
                    f"this would delete {', '.join(names)} for good, and nothing was removed; "
                    "export what you want to keep with steadyarm experiment export NAME FILE, then "
                    "add --yes."
                )
        pruned = storage.prune(now, before)
    text = f"Removed: {pruned.sessions:,} expired sessions."
    if before is not None:
        text += f"\nDeleted: {', '.join(pruned.experiments) or 'no experiments'}."
    show(args, asdict(pruned), text)


@command("storage upgrade")
def _upgrade(args: argparse.Namespace) -> None:
    """Bring the tables up to date, or create them."""
    before, after = sa.storages.upgrade_storage(args.storage)
    found = sa.storages.storage_status(args.storage)
    text = f"{found.url}: upgraded from {before or 'nothing'} to {after}."
    if before == after:
        text = f"{found.url}: {MEANING['current']}, nothing to do."
    show(args, {"before": before} | asdict(found), text)
