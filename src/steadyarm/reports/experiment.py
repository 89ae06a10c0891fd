"""The report on a live test: a Look in words, tables and pictures, and how to check it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from steadyarm import __version__
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.inference import DriftReport, Otherwise
from steadyarm.live.assignments import moment
from steadyarm.live.description import description_of, toml_of
from steadyarm.live.experiment import Experiment
from steadyarm.live.replay import Replay
from steadyarm.live.scorecard import Look, order_of
from steadyarm.live.scoring import look_at
from steadyarm.live.transfer import csv_lines
from steadyarm.live.verdict import Verdict
from steadyarm.plot import charts
from steadyarm.reports.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Items,
    Lead,
    Note,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.reports.method import (
    estimates_in_words,
    in_short,
    in_the_way,
    intervals_in_words,
    policy_in_words,
    rewards_in_words,
)
from steadyarm.reports.sections import (
    course_blocks,
    effect_blocks,
    health_table,
    leaderboard_blocks,
    otherwise_blocks,
    period_table,
    share_blocks,
)
from steadyarm.wording import counted, percent, when

__all__ = [
    "Fingerprint",
    "appendix",
    "document_of",
    "experiment_report",
    "fingerprint_of",
    "labelled",
    "labelled_otherwise",
]

# Short names of variants throughout a report.


def labelled(look: Look) -> Look:
    """The same look with the short names of its variants; the settings keep the whole ones."""
    labels = look.labels
    if look.settings.arms.large or labels == look.names:
        return look
    short = dict(zip(look.names, labels, strict=True))
    return replace(
        look,
        verdict=None if look.verdict is None else _verdict(look.verdict, short),
        course=None if look.course is None else replace(look.course, names=labels),
        shares=None if look.shares is None else replace(look.shares, names=labels),
        drift=None if look.drift is None else _drift(look.drift, short),
    )


def labelled_otherwise(other: Otherwise, look: Look) -> Otherwise:
    """What would have been concluded otherwise, with the same names."""
    if look.settings.arms.large:
        return other
    short = dict(zip(look.names, look.labels, strict=True))
    return replace(
        other,
        names=look.labels,
        best=short[other.best],
        raw=None if other.raw is None else replace(other.raw, leader=short[other.raw.leader]),
        early=tuple(replace(early, leader=short[early.leader]) for early in other.early),
        dropped=tuple(
            replace(drop, names=tuple(short[name] for name in drop.names)) for drop in other.dropped
        ),
        winner=short[other.winner],
    )


def _verdict(verdict: Verdict, short: Mapping[str, str]) -> Verdict:
    plausible = tuple(short[name] for name in verdict.plausible)
    names = tuple(short[name] for name in verdict.names)
    return replace(verdict, name=short[verdict.name], names=names, plausible=plausible)


def _drift(drift: DriftReport, short: Mapping[str, str]) -> DriftReport:
    return replace(
        drift,
        names=tuple(short[name] for name in drift.names),
        best=short[drift.best],
        leaders=tuple(short[name] for name in drift.leaders),
    )


# The appendix of a report on a live test: method, assumptions, settings, and how to check it.


LONGEST = 16_000  # characters of a description that is printed


@dataclass(frozen=True)
class Fingerprint:
    """SHA-256 of an exported log, and how many rows it has."""

    sha256: str
    rows: int


def fingerprint_of(lines: Iterable[str]) -> Fingerprint:
    r"""The fingerprint of a log, from the text of its CSV file, a part at a time.

    Examples
    --------
    >>> fingerprint_of(["unit,arm\r\n", "v1,A\r\nv2,B\r\n"]).rows
    2
    """
    digest, ends = hashlib.sha256(), 0
    for text in lines:
        digest.update(text.encode())
        ends += text.count("\r\n")
    return Fingerprint(digest.hexdigest(), ends - 1)


def appendix(look: Look, fingerprint: Fingerprint | None, replayed: Replay | None) -> list[Block]:
    """Everything that somebody needs who wants to check the report."""
    return [
        Heading("Appendix: method, assumptions, checks", appendix=True),
        *_method(look),
        *_settings(look),
        *_fingerprint(look, fingerprint),
        *_replay(look, replayed),
    ]


def _method(look: Look) -> list[Block]:
    settings = look.settings
    blocks: list[Block] = [
        Heading("How variants were chosen", 3),
        Items(policy_in_words(settings)),
        Heading("Which rewards count", 3),
        Items(rewards_in_words(settings)),
        Heading("Estimates and intervals", 3),
    ]
    if look.verdict is None:
        return [*blocks, Paragraph(f"There are none yet: {look.obstacle}")]
    estimates = estimates_in_words(settings.policy)
    return [*blocks, Items((estimates, *intervals_in_words(look.verdict)))]


def _settings(look: Look) -> list[Block]:
    text = toml_of(look.name, description_of(look.settings)).strip()
    head = Heading("Settings", 3)
    if len(text) > LONGEST:
        says = (
            f"They take {counted(len(text), 'character')} and are not printed; the file "
            "that an export writes beside the log has them."
        )
        return [head, Paragraph(says)]
    says = (
        f"With this file steadyarm experiment create makes the same test again. "
        f"SteadyArm {__version__}; times are in UTC."
    )
    return [head, Paragraph(says), Code(text, "toml")]


def _fingerprint(look: Look, found: Fingerprint | None) -> list[Block]:
    head = Heading("The log's fingerprint", 3)
    file = f"{look.name}.csv"
    commands = Code(f"steadyarm experiment export {look.name} {file}\nsha256sum {file}")
    if found is None:
        says = "It was left out of this report. These commands give it:"
        return [head, Paragraph(says), commands]
    ends = (
        "It stays the same as long as no reward is told any more."
        if look.ended
        else "The test has not ended, so it changes with every further visit and reward."
    )
    says = (
        f"SHA-256 of the log as a CSV file, {counted(found.rows, 'row')}. Anybody with access to "
        f"the storage can check it with the commands below. {ends}"
    )
    return [head, Paragraph(says), Code(found.sha256, "text"), commands]


def _replay(look: Look, found: Replay | None) -> list[Block]:
    head = Heading("The replay check", 3)
    command = Code(f"steadyarm experiment replay {look.name}")
    if found is None:
        return [head, Paragraph("It was left out of this report. This command makes it:"), command]
    what = (
        f"{counted(found.assignments, 'assignment')}, {counted(found.rewards, 'reward')} and "
        f"{counted(found.segments, 'segment')} were computed anew from the log"
    )
    if found.agrees:
        return [head, Note(f"{what}; all agree to the bit.", "ok"), command]
    says = f"{what}, and they do not agree with what is stored:"
    return [head, Note(says, "fail"), Items(found.differences), command]


HEALTH = {
    "ok": "Nothing suspicious was found.",
    "warn": "One of the checks found something unusual.",
    "fail": "Something is wrong; do not rely on the result before it is explained.",
}

MEANWHILE = (
    " What would have been concluded otherwise, the log's fingerprint and the replay check were "
    "read just after that, and may include visits and rewards that came in between."
)


def experiment_report(
    experiment: Experiment, look: Look | None = None, replay: bool = True, fingerprint: bool = True
) -> Document:
    """The report on an experiment as it stands.

    Parameters
    ----------
    look : if one was taken already
    replay : whether the whole test is computed anew and compared; reads the whole log
    fingerprint : whether the log's fingerprint is taken; reads the whole log, too
    """
    seen = look_at(experiment) if look is None else look
    other: Otherwise | str
    try:
        other = experiment.otherwise()
    except (InvalidInputError, RewardsPendingError) as error:
        other = str(error)
    return document_of(
        seen,
        other,
        fingerprint_of(csv_lines(experiment)) if fingerprint else None,
        experiment.replay() if replay else None,
    )


def document_of(
    look: Look,
    otherwise: Otherwise | str,
    fingerprint: Fingerprint | None = None,
    replayed: Replay | None = None,
) -> Document:
    """The report on what was seen; `otherwise` may be the reason why there is none."""
    if isinstance(otherwise, Otherwise):
        otherwise = labelled_otherwise(otherwise, look)
    look = labelled(look)
    blocks: list[Block] = [Lead(look.headline), Facts(_facts(look)), *leaderboard_blocks(look)]
    if look.status.handed:
        blocks += [
            *course_blocks(look),
            *share_blocks(look),
            *effect_blocks(look),
            *_experiment_drift(look),
            *_health(look),
            *_corrections(look),
            *_otherwise(otherwise, look),
        ]
    blocks += appendix(look, fingerprint, replayed)
    foot = f"Written by SteadyArm {__version__} from what was stored at {when(look.seen)}."
    if not look.settled and (fingerprint or replayed or isinstance(otherwise, Otherwise)):
        foot += MEANWHILE
    return Document(f"Test report: {look.name}", tuple(blocks), foot)


def _facts(look: Look) -> tuple[tuple[str, str], ...]:
    handed, budget = look.status.handed, look.status.budget
    facts = [
        ("State", _state(look)),
        ("Visits", f"{handed:,} of {budget:,} ({percent(handed / budget)})"),
        ("Variants", f"{look.size:,}"),
        ("Created", when(look.status.created)),
    ]
    if look.started is not None and look.last is not None:
        facts += [("First visit", when(look.started)), ("Last visit", when(look.last))]
    if look.expected_end is not None and not look.ended:
        facts.append(("Expected end", when(look.expected_end)))
    return (*facts, ("Policy", in_short(look.settings.policy)))


def _state(look: Look) -> str:
    spent = look.status.handed >= look.status.budget and look.status.state == "running"
    return "finished: all visits are handed out" if spent else look.status.state


def _experiment_drift(look: Look) -> list[Block]:
    head = Heading("Did the world move?")
    if look.drift is None:
        why = (
            "There is nothing to compare yet."
            if look.settings.policy.unbiased
            else f"{in_the_way(look.settings.policy)}, so drift cannot be seen in what it measured."
        )
        return [head, Paragraph(why)]
    blocks: list[Block] = [head, Paragraph(look.drift.verdict)]
    if len(look.drift.periods) > 1:
        blocks.append(Picture(charts.drift(look.drift)))
    order = charts.matched(order_of(look), look.labels, look.drift.names) or [0]
    return [*blocks, period_table(look.drift, order, "visits")]


def _health(look: Look) -> list[Block]:
    head = Heading("Is the test healthy?")
    if look.health is None:
        return [head, Paragraph("Nothing was handed out yet, so there is nothing to check.")]
    status = look.health.status
    blocks: list[Block] = [head, Note(HEALTH[status], status)]
    blocks.append(health_table(look.health, "What was checked"))
    waiting = look.waiting
    if waiting is not None:
        assigned, told, late = (
            int(each.sum()) for each in (waiting.assigned, waiting.told, waiting.late)
        )
        refused = counted(late, "reward that came too late was", "rewards that came too late were")
        says = f"{told:,} of {counted(assigned, 'reward')} came"
        says += f"; {refused} refused." if late else ", none of them too late."
        blocks += [Paragraph(says), Picture(charts.waiting(waiting))]
    return blocks


def _corrections(look: Look) -> list[Block]:
    """What was changed by hand, and why; nothing if nothing was."""
    if not look.corrections:
        return []
    rows = tuple(
        (
            when(moment(entry.created)),
            entry.action.replace(".", " "),
            f"{entry.detail.get('assignments', 0):,}",
            str(entry.detail.get("reason", "")),
        )
        for entry in look.corrections
    )
    says = "What the policy decided rests on what was known then; all numbers here follow."
    header = ("When", "What", "Visits", "Why")
    table = Table("What was corrected by hand", header, "llrl", rows)
    return [Heading("What was corrected?"), Paragraph(says), table]


def _otherwise(other: Otherwise | str, look: Look) -> list[Block]:
    head = Heading("What would have been concluded otherwise?")
    if isinstance(other, Otherwise):
        return [head, *otherwise_blocks(other)]
    if not look.status.told:
        return [head, Paragraph("No reward has been told yet.")]
    policy = look.settings.policy
    biased = f"{in_the_way(policy)}, so its rewards cannot be read in other ways without bias."
    return [head, Paragraph(other if policy.unbiased else biased)]
