"""`steadyarm experiment void`, `correct`, `exclude`, `include`, `erase`: what was stored wrongly.

Each is noted in the audit log, under the name of the operating system's user.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from steadyarm.cli.experiment_show import print_json
from steadyarm.cli.options import typed_by
from steadyarm.cli.storage import opened
from steadyarm.errors import InvalidInputError, UnknownAssignmentError
from steadyarm.experiment import Experiment
from steadyarm.lifecycle import load_experiment
from steadyarm.storages.changes import Corrected
from steadyarm.wording import counted

__all__ = ["add_verbs"]

Add = Callable[..., argparse.ArgumentParser]

EXCLUDE = """\
A unit, or all visits that were assigned in a period of the past:

  steadyarm experiment exclude checkout --unit bot-7 --reason "a monitor of our own"
  steadyarm experiment exclude checkout --since 2026-11-03T09:00Z --until 2026-11-03T11:30Z \\
      --reason "the shop was down"

They count nowhere any more. What was excluded counts again with steadyarm experiment include and
the number of the entry, which is printed here and by steadyarm audit.
"""
ERASE = """\
The visits of the unit stay, under a random name, so that sums and replay stay right. In every
experiment of the storage:

  steadyarm experiment erase --everywhere visitor-7

Backups, exports and buffers of clients still have the name; docs/guides/corrections.md tells more.
"""


def add_verbs(add: Add) -> None:
    """Describe the verbs; `add` makes one."""
    void = add("void", _void, "take back a reward, so that the visit has none")
    correct = add("correct", _correct, "another reward in the place of a wrong one")
    for verb in (void, correct):
        verb.add_argument(
            "target", metavar="UNIT|ID", help="whose reward, by unit or by the id that ask gave"
        )
    correct.add_argument("reward", type=float, metavar="REWARD", help="the right number")
    exclude = add("exclude", _exclude, "leave out all visits of a unit or of a period", EXCLUDE)
    exclude.add_argument("--unit", metavar="UNIT", help="whose visits are left out")
    exclude.add_argument(
        "--since",
        metavar="TIME",
        help="leave out what was assigned from then on, such as 2026-11-03T09:00Z",
    )
    exclude.add_argument("--until", metavar="TIME", help="and before then; not later than now")
    include = add("include", _include, "count again what was excluded")
    include.add_argument(
        "entry", type=int, metavar="ENTRY", help="of the audit log that excluded it"
    )
    erase = add("erase", _erase, "erase the identity of a unit, on its request", ERASE)
    erase.add_argument(
        "words", nargs="+", metavar="[NAME] UNIT", help="of the experiment, and whom to erase"
    )
    erase.add_argument(
        "--everywhere", action="store_true", help="in all experiments; then no NAME is given"
    )
    for verb in (void, correct, exclude, include, erase):
        verb.add_argument(
            "--reason",
            required=verb is not erase,
            default="",
            metavar="TEXT",
            help="why, for those who read the audit log; name no unit in it",
        )


def _void(args: argparse.Namespace) -> None:
    _do(args, lambda live, by: live.void(args.target, reason=args.reason, by=by))


def _correct(args: argparse.Namespace) -> None:
    _do(args, lambda live, by: live.correct(args.target, args.reward, reason=args.reason, by=by))


def _exclude(args: argparse.Namespace) -> None:
    period = {"since": _time(args.since, "--since"), "until": _time(args.until, "--until")}
    if (args.unit is None) == (args.since is None or args.until is None):
        raise InvalidInputError("give either --unit, or --since and --until.")
    _do(args, lambda live, by: live.exclude(unit=args.unit, **period, reason=args.reason, by=by))


def _include(args: argparse.Namespace) -> None:
    _do(args, lambda live, by: live.include(args.entry, reason=args.reason, by=by))


def _time(text: str | None, option: str) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"{option} is {text!r}; expected a time with its zone, such as 2026-11-03T09:00Z."
        ) from None


def _do(args: argparse.Namespace, work: Callable[[Experiment, str], Corrected]) -> None:
    with opened(args) as storage:
        done = work(load_experiment(args.name, storage), typed_by())
    _tell(args, {args.name: done})


def _erase(args: argparse.Namespace) -> None:
    if len(args.words) != 2 - args.everywhere:
        raise InvalidInputError(
            "give the name of the experiment and the unit; with --everywhere the unit alone."
        )
    unit, by = args.words[-1], typed_by()
    done: dict[str, Corrected] = {}
    with opened(args) as storage:
        if not args.everywhere:
            live = load_experiment(args.words[0], storage)
            done[live.name] = live.erase(unit, reason=args.reason, by=by)
        else:
            for record in storage.experiments():
                with suppress(UnknownAssignmentError):
                    live = Experiment(storage, record)
                    done[record.name] = live.erase(unit, reason=args.reason, by=by)
    if not done:
        raise UnknownAssignmentError("the unit has no assignment in any experiment of the storage.")
    _tell(args, done)


def _tell(args: argparse.Namespace, done: dict[str, Corrected]) -> None:
    if args.format == "json":
        told = [
            {"experiment": name, "entry": each.entry, "assignments": each.assignments}
            for name, each in done.items()
        ]
        print_json({"corrections": told})
        return
    for name, each in done.items():
        visits = counted(each.assignments, "visit was", "visits were")
        print(f"{name}: {visits} corrected; entry {each.entry} of the audit log.")
