"""`steadyarm storage`: where live experiments are kept, checked, backed up and upgraded."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime

import steadyarm as sa
from steadyarm.cli.main import FORMAT, STORAGE, command, group, open_storage, show
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.wording import counted

ABOUT = """Check, back up, copy, prune or upgrade where live experiments are kept.

The first experiment creates the tables. After you install a new version of SteadyArm:

  steadyarm storage status  --storage postgresql+psycopg://me@host/tests
  steadyarm storage upgrade --storage postgresql+psycopg://me@host/tests

Before an upgrade, stop the processes that use the storage and make a backup. An upgrade is one
transaction. You can make a backup at any time, also of a storage in use:

  steadyarm storage backup tests-monday.db --storage sqlite:///tests.db
  steadyarm storage check                  --storage sqlite:///tests.db

To move to another database:

  steadyarm storage copy sqlite:///tests.db postgresql+psycopg://me@host/tests
"""
MEANING = {
    "current": "the tables are up to date",
    "older": "the tables have an older version; make a backup, then run steadyarm storage upgrade",
    "newer": "the tables have a newer version; install a newer SteadyArm",
    "empty": "the database has no tables yet; the first experiment creates them",
}


group("storage", ABOUT, STORAGE, FORMAT)


@command("storage status")
def _status(args: argparse.Namespace) -> None:
    """Show the version of the tables; change nothing.

    Also checks an SQLite file for damage, and exits with status 1 if it is damaged.
    """
    found = sa.storages.storage_status(args.storage, thorough=True)
    text = (
        f"{found.url}: {MEANING[found.state]}.\n"
        f"Tables: {found.revision or 'none'}; this SteadyArm works with {found.newest}."
    )
    show(args, asdict(found), text)
    if found.damage is not None:
        raise SteadyArmError(
            f"{found.url}: the file is damaged ({found.damage}). Restore a backup."
        )


@command("storage check")
def _check(args: argparse.Namespace) -> None:
    """Check for damage and replay every experiment; exit with status 1 if anything is wrong.

    Checks the file for damage and for missing tables. Changes nothing.
    """
    from steadyarm.live.lifecycle import check_storage

    found = check_storage(args.storage)
    lines = [f"not replayed: {line}" for line in found.skipped] + list(found.faults)
    if not found.faults:
        lines.append(f"No faults found. Replayed {counted(found.experiments, 'experiment')}.")
    if not found.experiments and not found.skipped:
        lines.append(
            "If you expected experiments: the file may have been copied without the -wal file "
            "beside it. Copy with: steadyarm storage backup"
        )
    show(args, asdict(found), "\n".join(lines))
    if found.faults:
        raise SteadyArmError(f"{counted(len(found.faults), 'fault')} found; nothing was changed.")


@command(
    "storage backup",
    ("target FILE", "file to write"),
    ("--force", "replace FILE if it exists and is not in use"),
)
def _backup(args: argparse.Namespace) -> None:
    """Back up an SQLite storage, also one that is in use.

    The backup is a consistent snapshot and is checked for damage. For PostgreSQL, use pg_dump.
    """
    made = sa.storages.backup_storage(args.storage, args.target, force=args.force)
    size = made.stat().st_size
    show(args, {"backup": str(made), "bytes": size}, f"{made}: {size:,} bytes, checked.")


@command(
    "storage copy",
    ("source SOURCE", "URL of the storage to copy"),
    ("target TARGET", "URL of an empty database"),
)
def _copy(args: argparse.Namespace) -> None:
    """Copy all tables to an empty database, such as from SQLite to PostgreSQL.

    The copy is a consistent snapshot, written in one transaction.
    """
    copied = sa.storages.copy_storage(args.source, args.target)
    tests = counted(copied.get("experiments", 0), "experiment")
    text = f"Copied {tests}, {sum(copied.values()):,} rows in all."
    show(args, copied, text)


@command(
    "storage prune",
    ("--archived-before DATE", "delete experiments archived before this day, such as 2026-01-31"),
    ("--yes", "delete these experiments permanently"),
)
def _prune(args: argparse.Namespace) -> None:
    """Remove expired sign-in sessions and, on request, old experiments.

    With --archived-before, also deletes experiments that were archived before that day (UTC).
    Export them first. The service may run meanwhile.
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
                    f"this would delete {', '.join(names)} permanently. Nothing was removed. "
                    "Export what you want to keep with steadyarm experiment export NAME FILE, "
                    "then add --yes."
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
