"""`steadyarm audit`: who created, changed and corrected what, and when."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from typing import Any

from steadyarm.cli.experiment_show import print_json
from steadyarm.cli.options import add_storage
from steadyarm.cli.storage import opened
from steadyarm.live.assignments import to_datetime
from steadyarm.live.serializers import entry_facts
from steadyarm.storages.base import Storage
from steadyarm.storages.records import AuditEntry

__all__ = ["add_parser"]

COLUMNS = ("id", "created", "author", "action", "experiment", "detail")


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "audit",
        help="who created, changed and corrected what, and when",
        description="Prints the audit log: experiments created, started, paused, stopped, archived "
        "and imported, corrections with their reasons, tokens created and removed. Entries are "
        "only ever added; the database itself refuses to change or delete one.",
    )
    parser.add_argument("--experiment", metavar="NAME", help="only what concerns this experiment")
    parser.add_argument(
        "--after",
        type=int,
        default=0,
        metavar="ID",
        help="only entries after this one, to go on where the last export ended",
    )
    parser.add_argument(
        "--format",
        choices=["text", "json", "csv"],
        default="text",
        help="text for people, json and csv for programs (default: text)",
    )
    add_storage(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        entries = list(_entries(storage, args.after, args.experiment))
    if args.format == "json":
        print_json({"entries": [entry_facts(entry) for entry in entries]})
    elif args.format == "csv":
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(COLUMNS)
        for entry in entries:
            facts = entry_facts(entry)
            detail = json.dumps(facts["detail"], ensure_ascii=False)
            table.writerow([*(facts[name] for name in COLUMNS[:-1]), detail])
    elif entries:
        for entry in entries:
            print(_line(entry))
    else:
        print("There are no entries.")


def _entries(storage: Storage, after: int, experiment: str | None) -> Iterator[AuditEntry]:
    while page := storage.audit(after, experiment=experiment):
        yield from page
        after = page[-1].id


def _line(entry: AuditEntry) -> str:
    facts = entry_facts(entry)["detail"]
    what = ", ".join(f"{name} {value}" for name, value in facts.items())
    about = [entry.action, entry.experiment or "", what]
    by = f" by {entry.author}" if entry.author else ""
    said = "  ".join(word for word in about if word)
    return f"{entry.id:>5}  {to_datetime(entry.created):%Y-%m-%d %H:%M} UTC{by}  {said}"
