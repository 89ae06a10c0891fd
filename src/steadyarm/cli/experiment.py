"""`steadyarm experiment` and `report`: live tests, from creation to verdict."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli import experiment_traffic
from steadyarm.cli.common import (
    FORMAT,
    LEVEL,
    STORAGE,
    Option,
    command,
    group,
    loaded,
    opened,
    read_time,
    read_toml,
    show,
    typed_by,
)
from steadyarm.errors import (
    InvalidInputError,
    SteadyArmError,
    UnknownAssignmentError,
    UnknownExperimentError,
)
from steadyarm.wording import counted, did_you_mean, percent

if TYPE_CHECKING:
    from steadyarm.storages.changes import Corrected

ABOUT = """Create a live test, assign variants, report rewards, see the verdict.

Live tests are in a database: any number of processes assign variants and report rewards, now or
days later; at the end stands a verdict that can be computed anew.

A whole test, from a file test.toml:

  name = "checkout"
  arms = ["now", "one page", "guest first"]   # or a table [arms], as for steadyarm plan
  budget = 20_000                             # steadyarm plan says how many are needed
  policy = "steady"
  reward_window = "2d"                        # a reward that happens later does not count
  reward_grace = "1d"                         # it may arrive this much later; by default the window
  missing = "zero"                            # no purchase is a reward of 0
  control = "now"                             # what others are compared with; { now = 0.2 } also
                                              # gives it a fifth of all visits
  stop = "when sure"                          # the test stops itself when it is decided
  looks = "weekly"                            # at the end of a week; or daily, or how often

  export STEADYARM_STORAGE=sqlite:///tests.db
  steadyarm experiment create test.toml
  steadyarm experiment ask checkout visitor-1
  steadyarm experiment tell checkout visitor-1 1
  steadyarm experiment show checkout
  steadyarm experiment recommend checkout     # once the first visits can be judged
  steadyarm experiment stop checkout
  steadyarm experiment export checkout checkout.csv
  steadyarm experiment replay checkout

Other settings: seed, direction, reward_range, sticky, min_share, attributes, covariates, spending,
futility, values, bulk. All are explained in docs/live.md.
"""
MOVES = {  # what a verb does, and the state after it
    "start": ("Begin to assign variants.", "is running: it assigns variants."),
    "pause": ("Assign nothing for now.", "is paused: it assigns nothing, rewards count."),
    "resume": ("Go on after a pause.", "is running: it assigns variants."),
    "stop": ("Assign nothing any more.", "is stopped: rewards of earlier visits count."),
    "archive": (
        "Accept neither visits nor rewards any more.",
        "is archived: it accepts neither visits nor rewards; its results stay.",
    ),
}


NAME = ("name NAME", "of the experiment")
WHY = "why, for those who read the audit log; name no unit in it"
REASON: Option = ("--reason TEXT", WHY, {"required": True})
TARGET: Option = (
    "target",
    "whose reward, by unit or by the id that ask gave",
    {"metavar": "UNIT|ID"},
)

group("experiment", ABOUT, STORAGE, FORMAT)


@command(
    "experiment create",
    ("file FILE.toml", "what is tested"),
    ("--name NAME", "of the experiment, instead of the file's"),
    ("--draft", "assign nothing before it is started"),
)
def _create(args: argparse.Namespace) -> None:
    """Create a test from a TOML file.

    An example of such a file is in steadyarm experiment --help.
    """
    from steadyarm.live.lifecycle import create_from_description

    description = _read(args.file)
    own = description.pop("name", None)
    name = own if args.name is None else args.name
    if name is None:
        raise InvalidInputError(
            f'{args.file} has no name; add name = "…" at its top, or give --name.'
        )
    # Errors come before there is a database.
    warnings = create_from_description(name, description, "memory").settings.cautions()
    notes = "".join(f"\n\nNote: {text}" for text in warnings)
    with opened(args, new=True) as storage:
        made = create_from_description(
            name, description, storage, start=not args.draft, by=typed_by()
        )
        _show_experiment(args, made, notes, warnings=warnings)


def _read(path: Path) -> dict[str, Any]:
    from steadyarm.live.lifecycle import DESCRIBED

    description, known = read_toml(path), ("name", *DESCRIBED)
    for key in description:
        if key not in known:
            raise InvalidInputError(
                f"{path}: an experiment has no setting {key!r}; the settings are "
                f"{', '.join(known)}{did_you_mean(key, known)}"
            )
    return description


@command("experiment list")
def _list(args: argparse.Namespace) -> None:
    """List all tests."""
    from steadyarm.cli.experiment_show import list_text
    from steadyarm.wire.responses import ExperimentList

    try:
        with opened(args) as storage:
            found = ExperimentList.of(storage.summaries())
    except UnknownExperimentError:  # no tables, so none
        found = ExperimentList([])
    none = "There are no experiments yet; create one with steadyarm experiment create."
    show(args, found, list_text(found.experiments) if found.experiments else none)


@command("experiment show", NAME)
def _show(args: argparse.Namespace) -> None:
    """Show the state of a test."""
    with loaded(args) as experiment:
        _show_experiment(args, experiment)


def _show_experiment(
    args: argparse.Namespace,
    experiment: sa.Experiment,
    notes: str = "",
    **more: Any,
) -> None:
    if args.format == "json":
        show(args, _facts(experiment, **more), "")
    else:
        from steadyarm.cli.experiment_show import experiment_text

        print(experiment_text(experiment) + notes)


def _facts(experiment: sa.Experiment, **more: Any) -> Any:
    """The experiment as a service answers."""
    from msgspec import to_builtins

    from steadyarm.wire.responses import ExperimentAnswer

    return to_builtins(ExperimentAnswer.of(experiment)) | more


command(
    "experiment ask",
    NAME,
    ("units [UNIT ...]", "who gets a variant; - reads standard input"),
    (
        "--known NAME=VALUE ...",
        "an attribute or a covariate of these units, such as device=mobile; may be repeated",
    ),
)(experiment_traffic.ask)
command(
    "experiment tell",
    NAME,
    (
        "rewards",
        "whose reward, and the number, or values of metrics such as revenue=35; - reads standard "
        "input",
        {"nargs": "+", "metavar": "UNIT|ID REWARD"},
    ),
    (
        "--event KEY",
        "which event the values come from, such as the number of an order; metrics that a unit may "
        "have several events of need it, and in standard input a column named event has it",
    ),
    (
        "--at TIME",
        "when the rewards happened, such as 2025-01-31T12:00:00Z, if not just now; in standard "
        "input a column named at has it",
    ),
)(experiment_traffic.tell)


@command(
    "experiment recommend",
    NAME,
    [
        (
            "--anytime",
            "intervals that hold at all times; the default until the test has ended",
            {"action": "store_true", "default": None},
        ),
        (
            "--once",
            "intervals of one interim analysis; the default when the test has ended",
            {"action": "store_false", "dest": "anytime", "default": None},
        ),
    ],
    ("--by ATTRIBUTE", "what variants brought in each level of an attribute of units, instead"),
    LEVEL,
)
def _recommend(args: argparse.Namespace) -> None:
    """Recommend the best variant so far, with intervals."""
    from steadyarm.cli.experiment_show import breakdown_text, verdict_text
    from steadyarm.wire.results import BreakdownAnswer, Recommendation

    with loaded(args) as experiment:
        if args.by is not None:
            found = experiment.recommend(args.level, args.anytime, by=args.by)
            show(args, BreakdownAnswer.of(found), breakdown_text(found, experiment.settings))
            return
        verdict = experiment.recommend(args.level, args.anytime)
        show(args, Recommendation.of(verdict), verdict_text(verdict, experiment.settings))


def _move(args: argparse.Namespace) -> None:
    with loaded(args) as experiment:
        getattr(experiment, _verb(args))(by=typed_by())
        show(args, _facts(experiment), f"{args.name} {MOVES[_verb(args)][1]}")


def _verb(args: argparse.Namespace) -> str:
    return str(args.command).rpartition(" ")[2]


for _name, (_text, _) in MOVES.items():
    command(f"experiment {_name}", NAME, text=_text)(_move)


@command(
    "experiment roll-out",
    NAME,
    ("variant [VARIANT]", "what to show; by default the recommended variant, if it is clear"),
    ("--share X = 1.0", "of all units that get it, such as 0.1; it may be raised step by step"),
    ("--stop", "stop the test, if it is still running"),
    ("--change", "units may lose what was rolled out to them before"),
    ("--reason TEXT", WHY, {"default": ""}),
)
def _roll_out(args: argparse.Namespace) -> None:
    """Show a variant to everybody, or to a share of all units.

    New and old units get it, outside of the test and at no budget. Others go on with what they saw.

    In three steps, each of which keeps those who have it:

      steadyarm experiment roll-out checkout "one page" --share 0.1 --stop
      steadyarm experiment roll-out checkout --share 0.5
      steadyarm experiment roll-out checkout

    Back to what units saw before:

      steadyarm experiment roll-out checkout --share 0 --change
    """
    with loaded(args) as experiment:
        done = experiment.roll_out(
            args.variant,
            args.share,
            stop=args.stop,
            change=args.change,
            by=typed_by(),
            reason=args.reason,
        )
        text = f"{args.name}: {done.variant} is rolled out to {percent(done.share)} of all units."
        outside = experiment.status().outside
        default = None if outside is None or outside.roll_outs[1:] else outside.default
        if done.share < 1 and default == done.variant:
            text += " It is also what all other new units see, since the test was decided for it."
        show(args, _facts(experiment), text)


@command("experiment export", NAME, ("file FILE", "FILE.csv or FILE.parquet"))
def _export(args: argparse.Namespace) -> None:
    """Write the log, and a description beside it; `steadyarm analyze` reads both."""
    with loaded(args) as experiment:
        path = experiment.export(args.file)
    beside = path.with_name(path.name + ".experiment.json")
    text = f"The log is in {path}, settings and segments in {beside}; analyze reads both."
    show(args, {"file": str(path), "description": str(beside)}, text)


@command("experiment replay", NAME)
def _replay(args: argparse.Namespace) -> None:
    """Compute a test anew from its log; status 1 if anything differs."""
    from steadyarm.inference.evidence import json_ready

    with loaded(args) as experiment:
        found = experiment.replay()
    show(args, {"agrees": found.agrees} | json_ready(found), found)
    if not found.agrees:
        raise SteadyArmError(f"the log of {args.name!r} does not lead to what is stored.")


@command("experiment health", NAME)
def _health(args: argparse.Namespace) -> None:
    """Check whether variants were assigned as planned, and whose rewards are missing."""
    with loaded(args) as experiment:
        report = experiment.health()
    show(args, report.to_dict(), report)


@command(
    "experiment drift",
    NAME,
    ("--periods N = 4", "number of equal shares of the test"),
    LEVEL,
)
def _drift(args: argparse.Namespace) -> None:
    """Report whether the world moved during the test."""
    from steadyarm.cli.experiment_show import drift_text

    with loaded(args) as experiment:
        report = experiment.drift(args.periods, args.level)
    show(args, report.to_dict(), drift_text(report))


# Corrections of what was stored wrongly


@command("experiment void", NAME, TARGET, REASON)
def _void(args: argparse.Namespace) -> None:
    """Remove a reward, so that the visit has none."""
    _change(args, args.target)


@command(
    "experiment exclude",
    NAME,
    ("--unit UNIT", "whose visits are left out"),
    ("--since TIME", "leave out what was assigned from then on, such as 2026-11-03T09:00Z"),
    ("--until TIME", "and before then; not later than now"),
    REASON,
)
def _exclude(args: argparse.Namespace) -> None:
    r"""Leave out all visits of a unit or of a period.

    A unit, or all visits that were assigned in a period of the past:

      steadyarm experiment exclude checkout --unit bot-7 --reason "a monitor of our own"
      steadyarm experiment exclude checkout --since 2026-11-03T09:00Z --until 2026-11-03T11:30Z \
          --reason "the shop was down"

    They count nowhere any more.
    """
    if (args.unit is None) == (args.since is None or args.until is None):
        raise InvalidInputError("give either --unit, or --since and --until.")
    since = None if args.since is None else read_time(args.since, "--since")
    until = None if args.until is None else read_time(args.until, "--until")
    _change(args, unit=args.unit, since=since, until=until)


def _change(args: argparse.Namespace, *given: Any, **more: Any) -> None:
    """Call what the experiment calls like the verb, and show what it changed."""
    with loaded(args) as live:
        change = getattr(live, _verb(args))
        _show_corrected(args, {args.name: change(*given, **more, **_why(args))})


@command(
    "experiment erase",
    ("words", "of the experiment, and whom to erase", {"nargs": "+", "metavar": "[NAME] UNIT"}),
    ("--everywhere", "in all experiments; then no NAME is given"),
    ("--reason TEXT", WHY, {"default": ""}),
)
def _erase(args: argparse.Namespace) -> None:
    """Erase the identity of a unit, on its request.

    The visits of the unit stay, under a random name, so that sums and replay stay right.

    In every experiment of the storage:

      steadyarm experiment erase --everywhere visitor-7

    Backups, exports and buffers of clients still have the name; see docs/guides/corrections.md.
    """
    if len(args.words) != 2 - args.everywhere:
        raise InvalidInputError(
            "give the name of the experiment and the unit; with --everywhere the unit alone."
        )
    unit = args.words[-1]
    done: dict[str, Corrected] = {}
    if not args.everywhere:
        args.name = args.words[0]
        with loaded(args) as live:
            done[args.name] = live.erase(unit, **_why(args))
    else:
        with opened(args) as storage:
            for record in storage.summaries():
                with suppress(UnknownAssignmentError):
                    done[record.name] = sa.Experiment(storage, record).erase(unit, **_why(args))
    if not done:
        raise UnknownAssignmentError("the unit has no assignment in any experiment of the storage.")
    _show_corrected(args, done)


def _why(args: argparse.Namespace) -> dict[str, str]:
    return {"reason": args.reason, "by": typed_by()}


def _show_corrected(args: argparse.Namespace, done: dict[str, Corrected]) -> None:
    facts = [
        {"experiment": name, "entry": each.entry, "assignments": each.assignments}
        for name, each in done.items()
    ]
    lines = [
        f"{name}: {counted(each.assignments, 'visit was', 'visits were')} corrected; entry "
        f"{each.entry} of the audit log."
        for name, each in done.items()
    ]
    show(args, {"corrections": facts}, "\n".join(lines))


@command(
    "report",
    NAME,
    ("--out FILE", "FILE.html (default: NAME.html)"),
    STORAGE,
    ("--no-replay", "do not recompute the whole test to check it"),
)
def report(args: argparse.Namespace) -> None:
    """Write one file about a live test, to be sent to others.

    It has the results so far, with pictures, method, assumptions, the fingerprint of the log and
    the check that computing the test anew gives the same.

    For example:

      steadyarm report checkout --out report.html     one file with everything inside

    The page can be printed. The appendix says how the result was found, what must be true for it,
    and how to check it.
    """
    # experiment names are no paths, but what is typed may be one
    path = args.out or Path(f"{Path(args.name).name}.html")
    sa.reports.check_path(path)
    with opened(args) as storage:
        experiment = sa.load_experiment(args.name, storage)
        page = sa.reports.experiment_report(experiment, replay=not args.no_replay)
    sa.reports.write_report(page, path)
    print(f"The report is in {path}.")
