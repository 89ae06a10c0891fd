"""`steadyarm experiment` and `report`: live tests, from creation to verdict."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli import traffic
from steadyarm.cli.main import (
    FORMAT,
    LEVEL,
    STORAGE,
    WIDTH,
    Option,
    command,
    group,
    load_experiment,
    open_storage,
    read_time,
    show,
    table,
    user_name,
)
from steadyarm.errors import (
    InvalidInputError,
    SteadyArmError,
    UnknownAssignmentError,
    UnknownExperimentError,
)
from steadyarm.wording import counted, percent, reach, read_toml, span, when

if TYPE_CHECKING:
    from steadyarm.live.settings import Settings
    from steadyarm.storages.records import CorrectionResult

ABOUT = """Create a live test, assign variants, report rewards, see the verdict.

A live test is stored in a database. Any number of processes assign variants and report rewards.

A whole test, from a file test.toml:

  name = "checkout"
  arms = ["standard", "one page", "guest first"]  # or a table [arms], as for steadyarm plan
  budget = 20_000                             # visits; steadyarm plan computes how many you need
  policy = "steady"
  reward_window = "2d"                        # a reward that happens later does not count
  reward_grace = "1d"                         # it may arrive this much later; by default the window
  missing = "zero"                            # no purchase is a reward of 0
  control = "standard"                        # what others are compared with; { standard = 0.2 }
                                              # also gives it a fifth of all visits
  stop = "when sure"                          # the test stops itself when it is decided
  looks = "weekly"                            # interim analyses: weekly, daily or a number

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
futility, values, bulk. All are explained in docs/run/live.md.
"""
MOVES = {  # what a verb does, and the state after it
    "start": ("Start assigning variants.", "is running and assigns variants."),
    "pause": ("Pause assigning variants.", "is paused. It still accepts rewards."),
    "resume": ("Resume after a pause.", "is running and assigns variants."),
    "stop": ("Stop assigning variants.", "is stopped. It accepts rewards of earlier visits."),
    "archive": (
        "Stop accepting visits and rewards.",
        "is archived. It accepts no visits and no rewards; its results stay.",
    ),
}
MISSING = {
    "zero": "a missing reward counts as zero",
    "drop": "a missing reward counts as the mean of its variant",
    "fail": "no verdict while a reward is missing",
}

NAME = ("name NAME", "name of the experiment")
WHY = "reason for the audit log; it must not name a unit"
REASON: Option = ("--reason TEXT", WHY, {"required": True})

group("experiment", ABOUT, STORAGE, FORMAT)


@command(
    "experiment create",
    ("file FILE.toml", "settings of the test"),
    ("--name NAME", "name of the experiment; replaces the name in the file"),
    ("--draft", "create it without starting it"),
)
def _create(args: argparse.Namespace) -> None:
    """Create a test from a TOML file.

    An example of such a file is in steadyarm experiment --help.
    """
    from steadyarm.live.lifecycle import create_from_description

    settings = read_toml(args.file)
    own_name = settings.pop("name", None)
    name = own_name if args.name is None else args.name
    if name is None:
        raise InvalidInputError(
            f'{args.file} has no name; add name = "…" at its top, or give --name.'
        )
    # Errors come before there is a database.
    warnings = create_from_description(name, settings, "memory").settings.cautions()
    with open_storage(args, new=True) as storage:
        experiment = create_from_description(
            name, settings, storage, start=not args.draft, by=user_name()
        )
        facts = _facts(experiment) | {"warnings": warnings}
        show(args, facts, "\n\nNote: ".join([_experiment_text(experiment), *warnings]))


@command("experiment list")
def _list(args: argparse.Namespace) -> None:
    """List all tests."""
    from steadyarm.wire.responses import ExperimentList

    try:
        with open_storage(args) as storage:
            listed = ExperimentList.of(storage.summaries())
    except UnknownExperimentError:  # no tables, so none
        listed = ExperimentList([])
    text = "There are no experiments yet; create one with steadyarm experiment create."
    if listed.experiments:
        rows = [
            (e.name, e.state, when(e.created), e.policy, f"{e.arms}", f"{e.budget:,}")
            for e in listed.experiments
        ]
        text = table(("name", "state", "created", "policy", "variants", "budget"), rows, "<<<<>>")
    show(args, listed, text)


@command("experiment show", NAME)
def _show(args: argparse.Namespace) -> None:
    """Show the state of a test."""
    with load_experiment(args) as experiment:
        as_json = args.format == "json"
        show(args, _facts(experiment), "" if as_json else _experiment_text(experiment))


def _facts(experiment: sa.Experiment) -> dict[str, Any]:
    """The experiment as a service answers."""
    from msgspec import to_builtins

    from steadyarm.wire.responses import ExperimentAnswer

    facts: dict[str, Any] = to_builtins(ExperimentAnswer.of(experiment))
    return facts


command(
    "experiment ask",
    NAME,
    ("units [UNIT ...]", "units that get a variant; - reads standard input"),
    ("--known NAME=VALUE ...", "attribute or covariate, such as device=mobile"),
)(traffic.ask)
command(
    "experiment tell",
    NAME,
    (
        "rewards",
        "unit or assignment and its reward, or values of metrics such as revenue=35; - reads "
        "standard input",
        {"nargs": "+", "metavar": "UNIT|ID REWARD"},
    ),
    (
        "--event KEY",
        "key of the event, such as an order number; required by metrics with several events of "
        "a unit",
    ),
    ("--at TIME", "when the rewards happened, such as 2025-01-31T12:00:00Z (default: now)"),
)(traffic.tell)


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
    ("--by ATTRIBUTE", "show results by the levels of an attribute instead"),
    LEVEL,
)
def _recommend(args: argparse.Namespace) -> None:
    """Recommend the best variant so far, with intervals."""
    from steadyarm.wire.responses import BreakdownAnswer, Recommendation

    with load_experiment(args) as experiment:
        settings = experiment.settings
        if args.by is not None:
            breakdown = experiment.recommend(args.level, args.anytime, by=args.by)
            show(args, BreakdownAnswer.of(breakdown), _breakdown_text(breakdown, settings))
        else:
            verdict = experiment.recommend(args.level, args.anytime)
            show(args, Recommendation.of(verdict), _verdict_text(verdict, settings))


def _move(args: argparse.Namespace) -> None:
    verb = args.command.split()[-1]
    with load_experiment(args) as experiment:
        getattr(experiment, verb)(by=user_name())
        show(args, _facts(experiment), f"{args.name} {MOVES[verb][1]}")


for _verb, (_text, _) in MOVES.items():
    command(f"experiment {_verb}", NAME, text=_text)(_move)


@command("experiment reopen", NAME, REASON)
def _reopen(args: argparse.Namespace) -> None:
    """Go on after a stop that was a mistake.

    A test that stopped itself does so again at a later look. Refused after a roll-out.
    """
    with load_experiment(args) as experiment:
        experiment.reopen(**_author(args))
        show(args, _facts(experiment), f"{args.name} {MOVES['resume'][1]}")


@command(
    "experiment roll-out",
    NAME,
    (
        "variant [VARIANT]",
        "variant to show (default: the recommended one, if it is clear)",
    ),
    ("--share X = 1.0", "share of all units that get it, such as 0.1; you can raise it later"),
    ("--stop", "stop the test, if it is still running"),
    ("--change", "allow that units lose the variant of an earlier roll-out"),
    ("--reason TEXT", WHY, {"default": ""}),
)
def _roll_out(args: argparse.Namespace) -> None:
    """Show one variant to all units, or to a share of them.

    New and known units get it, outside the test; this spends no budget. Other units keep their
    variant.

    You can raise the share in steps. Units that have the variant keep it:

      steadyarm experiment roll-out checkout "one page" --share 0.1 --stop
      steadyarm experiment roll-out checkout --share 0.5
      steadyarm experiment roll-out checkout

    Undo a roll-out:

      steadyarm experiment roll-out checkout --share 0 --change
    """
    with load_experiment(args) as experiment:
        done = experiment.roll_out(
            args.variant, args.share, stop=args.stop, change=args.change, **_author(args)
        )
        text = f"{args.name}: {done.variant} is rolled out to {percent(done.share)} of all units."
        show(args, _facts(experiment), text)


@command("experiment export", NAME, ("file FILE", "FILE.csv or FILE.parquet"))
def _export(args: argparse.Namespace) -> None:
    """Write the log, and a description beside it; `steadyarm analyze` reads both."""
    with load_experiment(args) as experiment:
        path = experiment.export(args.file)
    description = path.with_name(path.name + ".experiment.json")
    text = f"The log is in {path}, settings and segments in {description}; analyze reads both."
    show(args, {"file": path, "description": description}, text)


@command("experiment replay", NAME)
def _replay(args: argparse.Namespace) -> None:
    """Compute a test again from its log; exit with status 1 if anything differs."""
    from steadyarm.inference.evidence import json_ready

    with load_experiment(args) as experiment:
        replay = experiment.replay()
    show(args, {"agrees": replay.agrees} | json_ready(replay), replay)
    if not replay.agrees:
        raise SteadyArmError(f"the log of {args.name!r} does not agree with the stored test.")


@command("experiment health", NAME)
def _health(args: argparse.Namespace) -> None:
    """Check assignments, missing rewards and tracking."""
    with load_experiment(args) as experiment:
        report = experiment.health()
    show(args, report.to_dict(), report)


@command("experiment drift", NAME, ("--periods N = 4", "equal periods of the test"), LEVEL)
def _drift(args: argparse.Namespace) -> None:
    """Report how rewards changed during the test."""
    with load_experiment(args) as experiment:
        report = experiment.drift(args.periods, args.level)
    show(args, report.to_dict(), report)


# Corrections of what was stored wrongly


@command(
    "experiment void",
    NAME,
    ("target", "unit, or id of the assignment", {"metavar": "UNIT|ID"}),
    REASON,
)
def _void(args: argparse.Namespace) -> None:
    """Remove a reward, so that the visit has none."""
    with load_experiment(args) as experiment:
        _show_corrected(args, {args.name: experiment.void(args.target, **_author(args))})


@command(
    "experiment exclude",
    NAME,
    ("--unit UNIT", "leave out the visits of this unit"),
    ("--since TIME", "leave out visits from this time on, such as 2026-11-03T09:00Z"),
    ("--until TIME", "leave out visits before this time, which is not in the future"),
    REASON,
)
def _exclude(args: argparse.Namespace) -> None:
    r"""Leave out all visits of a unit or of a period.

    Name a unit or a period of the past:

      steadyarm experiment exclude checkout --unit bot-7 --reason "a monitor of our own"
      steadyarm experiment exclude checkout --since 2026-11-03T09:00Z --until 2026-11-03T11:30Z \
          --reason "the shop was down"

    Excluded visits count in no result.
    """
    if (args.unit is None) == (args.since is None or args.until is None):
        raise InvalidInputError("give either --unit, or --since and --until.")
    since = None if args.since is None else read_time(args.since, "--since")
    until = None if args.until is None else read_time(args.until, "--until")
    with load_experiment(args) as experiment:
        done = experiment.exclude(unit=args.unit, since=since, until=until, **_author(args))
        _show_corrected(args, {args.name: done})


@command(
    "experiment erase",
    (
        "words",
        "experiment, and unit to erase",
        {"nargs": "+", "metavar": "[NAME] UNIT"},
    ),
    ("--everywhere", "erase the unit in all experiments; leave NAME out"),
    ("--reason TEXT", WHY, {"default": ""}),
)
def _erase(args: argparse.Namespace) -> None:
    """Erase the identity of a unit, on its request.

    The visits of the unit stay, under a random name. Sums and replay do not change.

    In every experiment of the storage:

      steadyarm experiment erase --everywhere visitor-7

    Backups, exports and buffers of clients still have the name; see docs/run/corrections.md.
    """
    if len(args.words) != 2 - args.everywhere:
        raise InvalidInputError(
            "give the experiment and the unit, or only the unit with --everywhere."
        )
    *names, unit = args.words
    with open_storage(args) as storage:
        if names:
            experiment = sa.load_experiment(names[0], storage)
            done = {names[0]: experiment.erase(unit, **_author(args))}
        else:
            done = {}
            for record in storage.summaries():
                with suppress(UnknownAssignmentError):
                    done[record.name] = sa.Experiment(storage, record).erase(unit, **_author(args))
    if not done:
        raise UnknownAssignmentError("the unit has no assignment in any experiment of the storage.")
    _show_corrected(args, done)


def _author(args: argparse.Namespace) -> dict[str, str]:
    return {"reason": args.reason, "by": user_name()}


def _show_corrected(args: argparse.Namespace, done: dict[str, CorrectionResult]) -> None:
    facts = [
        {"experiment": name, "entry": change.entry, "assignments": change.assignments}
        for name, change in done.items()
    ]
    lines = [
        f"{name}: {counted(change.assignments, 'visit was', 'visits were')} corrected; entry "
        f"{change.entry} of the audit log."
        for name, change in done.items()
    ]
    show(args, {"corrections": facts}, "\n".join(lines))


@command(
    "report",
    NAME,
    ("--out FILE", "FILE.html (default: NAME.html)"),
    STORAGE,
    ("--no-replay", "do not check the test by replay"),
)
def report(args: argparse.Namespace) -> None:
    """Write a report of a live test as one file that you can send.

    The report has results, charts, method, assumptions, the fingerprint of the log and the replay
    check. You can print it.

    For example:

      steadyarm report checkout --out report.html
    """
    # experiment names are no paths, but what is typed may be one
    path = args.out or Path(f"{Path(args.name).name}.html")
    sa.reports.check_path(path)
    with open_storage(args) as storage:
        experiment = sa.load_experiment(args.name, storage)
        page = sa.reports.experiment_report(experiment, replay=not args.no_replay)
    sa.reports.write_report(page, path)
    print(f"The report is in {path}.")


# What is printed for people


def _experiment_text(experiment: sa.Experiment) -> str:
    """The state of an experiment, with a line for every variant."""
    from steadyarm.live.after_test import outside_texts

    status, settings = experiment.status(), experiment.settings
    assigned, rewarded = status.total_assigned, status.total_rewarded
    pending = assigned - rewarded - status.excluded
    excluded = f", {status.excluded:,} excluded" if status.excluded else ""
    lines = [
        f"{status.name}: {status.state}, created {when(status.created)}",
        *_decision(experiment),
        f"{settings.policy.name} on {settings.arms.size:,} variants, to {settings.direction} the "
        f"reward; seed {settings.seed}",
        f"{assigned:,} of {status.budget:,} visits assigned ({100 * assigned // status.budget} %), "
        f"{counted(rewarded, 'reward')} recorded, {pending:,} pending or missing{excluded}",
        f"{counted(status.segments, 'segment')} opened, {status.observed} observed by the policy",
        *_rules(settings),
        *outside_texts(status.outside),
        "",
    ]
    arms = range(len(status.assigned)) if status.arms is None else status.arms
    rows = [
        (settings.arms.names[k], f"{assigned:,}", f"{rewarded:,}", _describe_shares(settings, k))
        for k, assigned, rewarded in zip(arms, status.assigned, status.rewarded, strict=True)
    ]
    lines.append(table(("variant", "assigned", "rewarded", ""), rows, "<>><"))
    if status.arms is not None:
        played = sum(count > 0 for count in status.assigned)
        lines.append(f"{played:,} of {settings.arms.size:,} variants were assigned so far")
    return "\n".join(lines)


def _decision(experiment: sa.Experiment) -> Iterator[str]:
    """Describe the decision, if there are enough rewards for one."""
    try:
        verdict = experiment.recommend()
    except sa.RewardsPendingError:
        return
    yield verdict.decision.text
    if verdict.stopping is not None:
        yield verdict.stopping.text


def _rules(settings: Settings) -> Iterator[str]:
    """Covariates, looks, and which rewards count."""
    if settings.covariates:
        yield f"covariates: {', '.join(settings.covariates)}"
    if settings.stop is not None:
        does = "stops itself when sure" if settings.stop == "when sure" else "says when to stop"
        futility = settings.futility
        futile = "" if futility is None else f", futility {settings.format_value(futility)}"
        yield f"{does}: {settings.looks} looks, spending {settings.spending}{futile}"
    counting = "whenever they come"
    if settings.reward_window is not None:
        counting = f"for {span(settings.reward_window)}"
    if settings.reward_grace:
        counting += f" (and may arrive {span(settings.reward_grace)} later)"
    sticky = "units keep their variant" if settings.sticky == "unit" else "every request is drawn"
    yield f"rewards count {counting}, {MISSING[settings.missing]}; {sticky}"


def _describe_shares(settings: Settings, arm: int) -> str:
    name = settings.arms.names[arm]
    share, floor = settings.control_share, settings.min_share.get(name)
    words = [f"at least {floor:g}"] if floor is not None else []
    if name == settings.control:
        words.insert(0, "control" if share is None else f"control, always {share:g}")
    return ", ".join(words)


def _verdict_text(verdict: sa.Verdict, settings: Settings) -> str:
    """The verdict, and the variants from the best to the worst."""
    from steadyarm.live.estimates import lift_text, metric_cells, metric_obstacles
    from steadyarm.live.verdict import adjusted_text

    sign = 1 if settings.direction == "maximize" else -1
    head, rows = ["variant", "estimate", f"{percent(verdict.level)}, all at once", "behind by"], []
    if verdict.raw is not None:
        head.insert(2, "unadjusted")
    if verdict.control is not None:
        head.insert(-1, "against control")
    for k in (-sign * verdict.estimates).argsort(kind="stable").tolist():  # unknown ones last
        name = settings.arms.names[k if verdict.shown is None else int(verdict.shown[k])]
        low, high = verdict.intervals[k].tolist()
        row = [name, settings.format_value(verdict.estimates[k])]
        if verdict.raw is not None:
            row.append(settings.format_value(verdict.raw[k]))
        row.append(reach(low, high, shown=settings.format_value, unknown=verdict.no_interval))
        if verdict.control is not None:
            row.append(lift_text(verdict, k, settings.primary.difference_unit))
        row.append("" if k == verdict.row else settings.format_value(verdict.gaps[k]))
        rows.append([*row, "*" if name in verdict.plausible else ""])
    align = "<" + ">" * (len(head) - 1) + "<"
    lines = [f"{verdict.decision.text}\n", f"{verdict}\n", table([*head, ""], rows, align)]
    lines.append("* may be the best")
    if adjusted := adjusted_text(verdict, settings.covariates):
        lines.append(adjusted)
    if verdict.shown is not None:
        lines.append(
            f"The best {len(rows)} of {verdict.variants:,} variants; {verdict.possible:,} of all "
            "may be the best."
        )
    if verdict.missing:
        one, many = "reward of a judged visit is", "rewards of judged visits are"
        have = counted(verdict.missing, one, many)
        lines.append(f"\n{have} missing: {MISSING[settings.missing]}.")
    if verdict.metrics:
        head = ["metric", "variant", "value", "control", "difference", "guardrail"]
        lines += ["\n" + table(head, metric_cells(verdict), "<<>>><"), *metric_obstacles(verdict)]
    return "\n".join((*lines, f"\nAssumptions: {verdict.assumption}"))


def _breakdown_text(breakdown: sa.Breakdown, settings: Settings) -> str:
    """The levels of an attribute below each other, and what it means."""
    head = (breakdown.attribute, "visits", "variant", "estimate", f"against {breakdown.against}")
    rows = breakdown.rows(settings.format_value, settings.primary.difference_unit)
    lines = [textwrap.fill(breakdown.summary, WIDTH), "", table(head, rows, "<><>>")]
    if breakdown.unknown:
        lines.append(f"{counted(breakdown.unknown, 'visit')} of an unknown {breakdown.attribute}")
    return "\n".join(lines)
