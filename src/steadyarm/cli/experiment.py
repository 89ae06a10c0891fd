"""`steadyarm experiment`: live tests from the command line, from creation to verdict."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from steadyarm.cli import experiment_traffic
from steadyarm.cli.experiment_show import (
    print_drift,
    print_experiment,
    print_json,
    print_list,
    print_verdict,
)
from steadyarm.cli.options import add_format, add_level, add_storage, typed_by
from steadyarm.cli.storage import opened
from steadyarm.errors import (
    InvalidInputError,
    SteadyArmError,
    UnknownAssignmentError,
    UnknownExperimentError,
)
from steadyarm.inference.evidence import json_ready
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import (
    DESCRIBED,
    create_from_description,
    import_experiment,
    load_experiment,
)
from steadyarm.live.serializers import experiment_facts, record_facts, verdict_facts
from steadyarm.live.transfer import read_export
from steadyarm.storages.changes import Corrected
from steadyarm.wording import counted, did_you_mean

__all__ = ["add_parser", "add_verbs"]

# `steadyarm experiment void`, `correct`, `exclude`, `include`, `erase`: what was stored wrongly.


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


EPILOG = """\
A whole test, from a file test.toml:

  name = "checkout"
  arms = ["now", "one page", "guest first"]   # or a table [arms], as for steadyarm plan
  budget = 20_000                             # steadyarm plan says how many are needed
  policy = "steady"
  reward_window = "2d"                        # what happens later does not count
  reward_grace = "1d"                         # it may arrive so much later; usually as the window
  missing = "zero"                            # no purchase is a reward of 0
  control = { now = 0.2 }                     # always a fifth

  export STEADYARM_STORAGE=sqlite:///tests.db
  steadyarm experiment create test.toml
  steadyarm experiment ask checkout visitor-1
  steadyarm experiment tell checkout visitor-1 1
  steadyarm experiment show checkout
  steadyarm experiment recommend checkout     # once the first visits can be judged
  steadyarm experiment stop checkout
  steadyarm experiment export checkout checkout.parquet
  steadyarm experiment replay checkout

Other settings: seed, direction, reward_range, sticky, min_share. All are explained in docs/live.md.
"""
ASK = """\
Many at once, one unit in a line, or CSV with a column unit:

  steadyarm experiment ask checkout - < visitors.csv
"""
TELL = """\
Rewards of units, or of the ids that ask gave. A negative one follows --:

  steadyarm experiment tell checkout visitor-1 1 visitor-2 0
  steadyarm experiment tell checkout -- visitor-3 -12.50
  steadyarm experiment tell checkout - < purchases.csv

In the file are an id or a unit and a reward in every line, or CSV with a column reward and one of
id, assignment and unit. Those told before are counted once; others are stored although some are
refused.
"""
MOVES = {
    "start": ("a draft begins to hand out", "is running: it hands out variants."),
    "pause": ("hand nothing out for now", "is paused: nothing is handed out, rewards count."),
    "resume": ("go on after a pause", "is running: it hands out variants."),
    "stop": ("hand nothing out any more", "is stopped: rewards of what was handed out count."),
    "archive": ("close the books for good", "is archived: neither variants nor rewards."),
}


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "experiment",
        help="create a live test, hand out variants, tell rewards, see the verdict",
        description="Live tests in a database: any number of processes hand out variants and tell "
        "rewards, now or days later; at the end stands a verdict that can be computed anew.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], None], text: str, epilog: str = ""
    ) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name not in ("create", "list", "import", "erase"):
            verb.add_argument("name", metavar="NAME", help="of the experiment")
        verb.set_defaults(run=run)
        return verb

    create = add("create", _create, "make a new test from a TOML file", EPILOG)
    create.add_argument("file", type=Path, metavar="FILE.toml", help="what is tested, see below")
    create.add_argument("--name", help="of the experiment, instead of the file's")
    create.add_argument(
        "--draft", action="store_true", help="hand nothing out before it is started"
    )
    add("list", _list, "all tests")
    add("show", _show, "where a test stands")
    ask = add(
        "ask", experiment_traffic.ask, "the variant to show to a unit, such as a visitor", ASK
    )
    ask.add_argument(
        "units",
        nargs="*",
        metavar="UNIT",
        help="who gets a variant; - reads standard input",
    )
    tell = add("tell", experiment_traffic.tell, "the rewards that came", TELL)
    tell.add_argument(
        "rewards",
        nargs="+",
        metavar="UNIT|ID REWARD",
        help="whose reward, and the number; - reads standard input",
    )
    tell.add_argument(
        "--at",
        metavar="TIME",
        help="when the rewards happened, such as 2025-01-31T12:00:00Z, if not just now; from "
        "standard input a column at says it",
    )
    recommend = add("recommend", _recommend, "the best variant so far, with intervals")
    looks = recommend.add_mutually_exclusive_group()
    looks.add_argument(
        "--anytime",
        action="store_true",
        default=None,
        help="intervals that hold at all looks; the default until the test has ended",
    )
    looks.add_argument(
        "--once",
        action="store_false",
        dest="anytime",
        default=None,
        help="intervals of one look; the default when the test has ended",
    )
    for name, (text, _) in MOVES.items():
        add(name, _move, text).set_defaults(move=name)
    export = add("export", _export, "write the log and all that is needed to import it")
    export.add_argument("file", type=Path, metavar="FILE", help="FILE.csv or FILE.parquet")
    take = add("import", _import, "take an exported test into a storage, where it goes on")
    take.add_argument("file", type=Path, metavar="FILE", help="that export wrote")
    take.add_argument("--name", help="of the experiment, instead of the one it had")
    add_verbs(add)
    add("replay", _replay, "compute a test anew from its log; status 1 if anything differs")
    add("health", _health, "whether variants were handed out as planned, whose rewards are missing")
    drift = add("drift", _drift, "whether the world moved during the test")
    drift.add_argument(
        "--periods",
        type=int,
        default=4,
        help="in how many equal shares the test is cut (default: %(default)s)",
    )
    for verb in (recommend, drift):
        add_level(verb)
    for verb in verbs.choices.values():
        add_storage(verb)
        add_format(verb)


def _create(args: argparse.Namespace) -> None:
    description = _read(args.file)
    name = description.pop("name", None) if args.name is None else args.name
    description.pop("name", None)
    if name is None:
        raise InvalidInputError(
            f'{args.file} has no name; add name = "…" at its top, or give --name.'
        )
    # What is wrong is found before a database is made.
    create_from_description(name, description, "memory")
    with opened(args, new=True) as storage:
        made = create_from_description(
            name, description, storage, start=not args.draft, by=typed_by()
        )
        warnings = made.settings.cautions()
        if args.format == "json":
            print_json(experiment_facts(made) | {"warnings": warnings})
        else:
            print_experiment(made)
            for text in warnings:
                print(f"\nNote: {text}")


def _read(path: Path) -> dict[str, Any]:
    try:
        description = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read as TOML: {error}") from None
    for key in description:
        if key not in (known := ("name", *DESCRIBED)):
            raise InvalidInputError(
                f"{path}: an experiment has no setting {key!r}; the settings are "
                f"{', '.join(known)}{did_you_mean(key, known)}"
            )
    return description


def _list(args: argparse.Namespace) -> None:
    try:
        with opened(args) as storage:
            records = storage.experiments()
    except UnknownExperimentError:  # no tables, so none
        records = []
    if args.format == "json":
        print_json({"experiments": [record_facts(record) for record in records]})
    elif records:
        print_list(records)
    else:
        print("There are no experiments yet; make one with steadyarm experiment create.")


def _show(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        _tell_all(args, load_experiment(args.name, storage))


def _tell_all(args: argparse.Namespace, experiment: Experiment) -> None:
    if args.format == "json":
        print_json(experiment_facts(experiment))
    else:
        print_experiment(experiment)


def _recommend(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        experiment = load_experiment(args.name, storage)
        verdict = experiment.recommend(args.level, args.anytime)
    if args.format == "json":
        print_json(verdict_facts(verdict, experiment.arms.names))
    else:
        print_verdict(verdict, experiment.settings)


def _move(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        experiment = load_experiment(args.name, storage)
        getattr(experiment, args.move)(typed_by())
        if args.format == "json":
            print_json(experiment_facts(experiment))
        else:
            print(f"{args.name} {MOVES[args.move][1]}")


def _export(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        path = load_experiment(args.name, storage).export(args.file)
    beside = path.with_name(path.name + ".experiment.json")
    if args.format == "json":
        print_json({"file": str(path), "description": str(beside)})
    else:
        print(f"The log is in {path}, settings and segments in {beside}; import needs both.")


def _import(args: argparse.Namespace) -> None:
    read_export(args.file)  # found before, too
    with opened(args, new=True) as storage:
        _tell_all(args, import_experiment(args.file, storage, args.name, by=typed_by()))


def _replay(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        found = load_experiment(args.name, storage).replay()
    if args.format == "json":
        print_json({"agrees": found.agrees} | json_ready(found))
    else:
        print(found)
    if not found.agrees:
        raise SteadyArmError(f"the log of {args.name!r} does not lead to what is stored.")


def _health(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        report = load_experiment(args.name, storage).health()
    print_json(report.to_dict()) if args.format == "json" else print(report)


def _drift(args: argparse.Namespace) -> None:
    with opened(args) as storage:
        report = load_experiment(args.name, storage).drift(args.periods, args.level)
    print_json(report.to_dict()) if args.format == "json" else print_drift(report)
