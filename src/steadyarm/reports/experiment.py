"""The report on a live test: a Scorecard in words, tables and pictures, and how to check it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from steadyarm import __version__
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.inference import Counterfactuals, DriftReport
from steadyarm.live.assignments import to_datetime
from steadyarm.live.description import description_of, toml_of
from steadyarm.live.experiment import Experiment
from steadyarm.live.replay import Replay
from steadyarm.live.scorecard import Scorecard, order_of
from steadyarm.live.scoring import scorecard_of
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

# Short names of variants throughout a report.


def labelled(card: Scorecard) -> Scorecard:
    """The same look with the short names of its variants; the settings keep the whole ones."""
    labels = card.labels
    if card.settings.arms.large or labels == card.names:
        return card
    short = dict(zip(card.names, labels, strict=True))
    return replace(
        card,
        verdict=None if card.verdict is None else _verdict(card.verdict, short),
        course=None if card.course is None else replace(card.course, names=labels),
        shares=None if card.shares is None else replace(card.shares, names=labels),
        drift=None if card.drift is None else _drift(card.drift, short),
    )


def labelled_otherwise(other: Counterfactuals, card: Scorecard) -> Counterfactuals:
    """What would have been concluded otherwise, with the same names."""
    if card.settings.arms.large:
        return other
    short = dict(zip(card.names, card.labels, strict=True))
    return replace(
        other,
        names=card.labels,
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


def appendix(
    card: Scorecard, fingerprint: Fingerprint | None, replayed: Replay | None
) -> list[Block]:
    """Everything that somebody needs who wants to check the report."""
    return [
        Heading("Appendix: method, assumptions, checks", appendix=True),
        *_method(card),
        *_settings(card),
        *_fingerprint(card, fingerprint),
        *_replay(card, replayed),
    ]


def _method(card: Scorecard) -> list[Block]:
    settings = card.settings
    blocks: list[Block] = [
        Heading("How variants were chosen", 3),
        Items(policy_in_words(settings)),
        Heading("Which rewards count", 3),
        Items(rewards_in_words(settings)),
        Heading("Estimates and intervals", 3),
    ]
    if card.verdict is None:
        return [*blocks, Paragraph(f"There are none yet: {card.obstacle}")]
    estimates = estimates_in_words(settings.policy)
    return [*blocks, Items((estimates, *intervals_in_words(card.verdict)))]


def _settings(card: Scorecard) -> list[Block]:
    text = toml_of(card.name, description_of(card.settings)).strip()
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


def _fingerprint(card: Scorecard, found: Fingerprint | None) -> list[Block]:
    head = Heading("The log's fingerprint", 3)
    file = f"{card.name}.csv"
    commands = Code(f"steadyarm experiment export {card.name} {file}\nsha256sum {file}")
    if found is None:
        says = "It was left out of this report. These commands give it:"
        return [head, Paragraph(says), commands]
    ends = (
        "It stays the same as long as no reward is told any more."
        if card.ended
        else "The test has not ended, so it changes with every further visit and reward."
    )
    says = (
        f"SHA-256 of the log as a CSV file, {counted(found.rows, 'row')}. Anybody with access to "
        f"the storage can check it with the commands below. {ends}"
    )
    return [head, Paragraph(says), Code(found.sha256, "text"), commands]


def _replay(card: Scorecard, found: Replay | None) -> list[Block]:
    head = Heading("The replay check", 3)
    command = Code(f"steadyarm experiment replay {card.name}")
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
    experiment: Experiment,
    card: Scorecard | None = None,
    replay: bool = True,
    fingerprint: bool = True,
) -> Document:
    """The report on an experiment as it stands.

    Parameters
    ----------
    look : if one was taken already
    replay : whether the whole test is computed anew and compared; reads the whole log
    fingerprint : whether the log's fingerprint is taken; reads the whole log, too
    """
    seen = scorecard_of(experiment) if card is None else card
    other: Counterfactuals | str
    try:
        other = experiment.counterfactuals()
    except (InvalidInputError, RewardsPendingError) as error:
        other = str(error)
    return document_of(
        seen,
        other,
        fingerprint_of(csv_lines(experiment)) if fingerprint else None,
        experiment.replay() if replay else None,
    )


def document_of(
    card: Scorecard,
    otherwise: Counterfactuals | str,
    fingerprint: Fingerprint | None = None,
    replayed: Replay | None = None,
) -> Document:
    """The report on what was seen; `otherwise` may be the reason why there is none."""
    if isinstance(otherwise, Counterfactuals):
        otherwise = labelled_otherwise(otherwise, card)
    card = labelled(card)
    blocks: list[Block] = [
        Lead(card.headline),
        Facts(_facts(card)),
        *leaderboard_blocks(card),
    ]
    if card.status.total_assigned:
        blocks += [
            *course_blocks(card),
            *share_blocks(card),
            *effect_blocks(card),
            *_experiment_drift(card),
            *_health(card),
            *_corrections(card),
            *_otherwise(otherwise, card),
        ]
    blocks += appendix(card, fingerprint, replayed)
    foot = f"Written by SteadyArm {__version__} from what was stored at {when(card.seen)}."
    if not card.settled and (fingerprint or replayed or isinstance(otherwise, Counterfactuals)):
        foot += MEANWHILE
    return Document(f"Test report: {card.name}", tuple(blocks), foot)


def _facts(card: Scorecard) -> tuple[tuple[str, str], ...]:
    handed, budget = card.status.total_assigned, card.status.budget
    facts = [
        ("State", _state(card)),
        ("Visits", f"{handed:,} of {budget:,} ({percent(handed / budget)})"),
        ("Variants", f"{card.size:,}"),
        ("Created", when(card.status.created)),
    ]
    if card.started is not None and card.last is not None:
        facts += [("First visit", when(card.started)), ("Last visit", when(card.last))]
    if card.expected_end is not None and not card.ended:
        facts.append(("Expected end", when(card.expected_end)))
    return (*facts, ("Policy", in_short(card.settings.policy)))


def _state(card: Scorecard) -> str:
    spent = card.status.total_assigned >= card.status.budget and card.status.state == "running"
    return "finished: all visits are handed out" if spent else card.status.state


def _experiment_drift(card: Scorecard) -> list[Block]:
    head = Heading("Did the world move?")
    if card.drift is None:
        why = (
            "There is nothing to compare yet."
            if card.settings.policy.unbiased
            else f"{in_the_way(card.settings.policy)}, so drift cannot be seen in what it measured."
        )
        return [head, Paragraph(why)]
    blocks: list[Block] = [head, Paragraph(card.drift.verdict)]
    if len(card.drift.periods) > 1:
        blocks.append(Picture(charts.drift(card.drift)))
    order = charts.matched(order_of(card), card.labels, card.drift.names) or [0]
    return [*blocks, period_table(card.drift, order, "visits")]


def _health(card: Scorecard) -> list[Block]:
    head = Heading("Is the test healthy?")
    if card.health is None:
        return [head, Paragraph("Nothing was handed out yet, so there is nothing to check.")]
    status = card.health.status
    blocks: list[Block] = [head, Note(HEALTH[status], status)]
    blocks.append(health_table(card.health, "What was checked"))
    waiting = card.waiting
    if waiting is not None:
        assigned, told, late = (
            int(each.sum()) for each in (waiting.assigned, waiting.told, waiting.late)
        )
        refused = counted(late, "reward that came too late was", "rewards that came too late were")
        says = f"{told:,} of {counted(assigned, 'reward')} came"
        says += f"; {refused} refused." if late else ", none of them too late."
        blocks += [Paragraph(says), Picture(charts.waiting(waiting))]
    return blocks


def _corrections(card: Scorecard) -> list[Block]:
    """What was changed by hand, and why; nothing if nothing was."""
    if not card.corrections:
        return []
    rows = tuple(
        (
            when(to_datetime(entry.created)),
            entry.action.replace(".", " "),
            f"{entry.detail.get('assignments', 0):,}",
            str(entry.detail.get("reason", "")),
        )
        for entry in card.corrections
    )
    says = "What the policy decided rests on what was known then; all numbers here follow."
    header = ("When", "What", "Visits", "Why")
    table = Table("What was corrected by hand", header, "llrl", rows)
    return [Heading("What was corrected?"), Paragraph(says), table]


def _otherwise(other: Counterfactuals | str, card: Scorecard) -> list[Block]:
    head = Heading("What would have been concluded otherwise?")
    if isinstance(other, Counterfactuals):
        return [head, *otherwise_blocks(other)]
    if not card.status.total_rewarded:
        return [head, Paragraph("No reward has been told yet.")]
    policy = card.settings.policy
    biased = f"{in_the_way(policy)}, so its rewards cannot be read in other ways without bias."
    return [head, Paragraph(other if policy.unbiased else biased)]
