"""The report on a live test: a Scorecard in words, tables and pictures, and how to check it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from steadyarm import __version__
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.files import toml_of
from steadyarm.inference import Counterfactuals
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import description_of
from steadyarm.live.replay import Replay
from steadyarm.live.scorecard import Scorecard, order_of
from steadyarm.live.scoring import scorecard_of
from steadyarm.live.transfer import csv_lines
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
    allocation_section,
    counterfactual_section,
    course_section,
    drift_section,
    effect_section,
    health_table,
    leaderboard_section,
)
from steadyarm.storages.records import to_datetime
from steadyarm.wording import counted, percent, when

# Short names of variants throughout a report.


def labelled(card: Scorecard) -> Scorecard:
    """The same scorecard with short names of its variants; the settings keep the whole ones."""
    labels = card.labels
    if card.settings.arms.large or labels == card.names:
        return card
    short = dict(zip(card.names, labels, strict=True))
    verdict, drift = card.verdict, card.drift
    if verdict is not None:
        verdict = replace(
            verdict,
            name=short[verdict.name],
            names=_all(short, verdict.names),
            plausible=_all(short, verdict.plausible),
        )
    if drift is not None:
        drift = replace(
            drift,
            names=_all(short, drift.names),
            best=short[drift.best],
            leaders=_all(short, drift.leaders),
        )
    return replace(
        card,
        verdict=verdict,
        course=None if card.course is None else replace(card.course, names=labels),
        shares=None if card.shares is None else replace(card.shares, names=labels),
        drift=drift,
    )


def _all(short: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(short[name] for name in names)


def _labelled_counterfactuals(other: Counterfactuals, card: Scorecard) -> Counterfactuals:
    if card.settings.arms.large:
        return other
    short = dict(zip(card.names, card.labels, strict=True))
    return replace(
        other,
        names=card.labels,
        best=short[other.best],
        raw=None if other.raw is None else replace(other.raw, leader=short[other.raw.leader]),
        early=tuple(replace(early, leader=short[early.leader]) for early in other.early),
        dropped=tuple(replace(drop, names=_all(short, drop.names)) for drop in other.dropped),
        winner=short[other.winner],
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


def _appendix(
    card: Scorecard, fingerprint: Fingerprint | None, replayed: Replay | None
) -> Iterator[Block]:
    """What somebody needs who wants to check the report."""
    settings = card.settings
    yield Heading("Appendix: method, assumptions, checks", appendix=True)
    yield Heading("How variants were chosen", 3)
    yield Items(policy_in_words(settings))
    yield Heading("Which rewards count", 3)
    yield Items(rewards_in_words(settings))
    yield Heading("Estimates and intervals", 3)
    if card.verdict is None:
        yield Paragraph(f"There are none yet: {card.obstacle}")
    else:
        yield Items((estimates_in_words(settings.policy), *intervals_in_words(card.verdict)))
    yield Heading("Settings", 3)
    text = toml_of({"name": card.name, **description_of(settings)}).strip()
    if len(text) > LONGEST:
        yield Paragraph(
            f"They take {counted(len(text), 'character')} and are not printed; the file that an "
            "export writes beside the log has them."
        )
    else:
        yield Paragraph(
            "With this file steadyarm experiment create makes the same test again. "
            f"SteadyArm {__version__}; times are in UTC."
        )
        yield Code(text, "toml")
    yield from _fingerprint(card, fingerprint)
    yield from _replay(card, replayed)


def _fingerprint(card: Scorecard, found: Fingerprint | None) -> Iterator[Block]:
    yield Heading("The log's fingerprint", 3)
    if found is None:
        yield Paragraph("It was left out of this report. These commands give it:")
    else:
        ends = (
            "It stays the same as long as no further reward is recorded."
            if card.ended
            else "The test has not ended, so it changes with every further visit and reward."
        )
        yield Paragraph(
            f"SHA-256 of the log as a CSV file, {counted(found.rows, 'row')}. Anybody with access "
            f"to the storage can check it with the commands below. {ends}"
        )
        yield Code(found.sha256, "text")
    file = f"{card.name}.csv"
    yield Code(f"steadyarm experiment export {card.name} {file}\nsha256sum {file}")


def _replay(card: Scorecard, found: Replay | None) -> Iterator[Block]:
    yield Heading("The replay check", 3)
    if found is None:
        yield Paragraph("It was left out of this report. This command makes it:")
    else:
        what = (
            f"{counted(found.assignments, 'assignment')}, {counted(found.rewards, 'reward')} and "
            f"{counted(found.segments, 'segment')} were computed anew from the log"
        )
        if found.agrees:
            yield Note(f"{what}; all agree to the bit.", "ok")
        else:
            yield Note(f"{what}, and they do not agree with what is stored:", "fail")
            yield Items(found.differences)
    yield Code(f"steadyarm experiment replay {card.name}")


HEALTH = {
    "ok": "Nothing suspicious was found.",
    "warn": "One of the checks found something unusual.",
    "fail": "Something is wrong; do not rely on the result before it is explained.",
}

MEANWHILE = (
    " What other methods would have concluded, the log's fingerprint and the replay check were "
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
    card : the scorecard, if there is one already
    replay : whether the whole test is computed anew and compared; reads the whole log
    fingerprint : whether the log's fingerprint is taken; reads the whole log, too
    """
    seen = scorecard_of(experiment) if card is None else card
    other: Counterfactuals | str
    try:
        other = experiment.counterfactuals()
    except (InvalidInputError, RewardsPendingError) as error:
        other = str(error)
    digest = fingerprint_of(csv_lines(experiment)) if fingerprint else None
    return document_of(seen, other, digest, experiment.replay() if replay else None)


def document_of(
    card: Scorecard,
    other: Counterfactuals | str,
    fingerprint: Fingerprint | None = None,
    replayed: Replay | None = None,
) -> Document:
    """The report on a scorecard; `other` may be the reason why there are no counterfactuals."""
    if isinstance(other, Counterfactuals):
        other = _labelled_counterfactuals(other, card)
    card = labelled(card)
    blocks: list[Block] = [Lead(card.headline), Facts(_facts(card)), *leaderboard_section(card)]
    if card.status.total_assigned:
        blocks += [
            *course_section(card),
            *allocation_section(card),
            *effect_section(card.effects),
            *_drift(card),
            *_health(card),
            *_corrections(card),
            *_counterfactuals(other, card),
        ]
    blocks += _appendix(card, fingerprint, replayed)
    foot = f"Written by SteadyArm {__version__} from what was stored at {when(card.seen)}."
    if not card.settled and (fingerprint or replayed or isinstance(other, Counterfactuals)):
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
    return "finished: all visits are assigned" if spent else card.status.state


def _drift(card: Scorecard) -> Iterator[Block]:
    yield Heading("Did the world move?")
    if card.drift is not None:
        order = charts.matched(order_of(card), card.labels, card.drift.names) or [0]
        yield from drift_section(card.drift, order, "visits")
    elif card.settings.policy.unbiased:
        yield Paragraph("There is nothing to compare yet.")
    else:
        why = in_the_way(card.settings.policy)
        yield Paragraph(f"{why}, so drift cannot be seen in what it measured.")


def _health(card: Scorecard) -> Iterator[Block]:
    yield Heading("Is the test healthy?")
    if card.health is None:
        yield Paragraph("Nothing was assigned yet, so there is nothing to check.")
        return
    yield Note(HEALTH[card.health.status], card.health.status)
    yield health_table(card.health)
    if (waiting := card.waiting) is not None:
        assigned, came, late = (
            int(each.sum()) for each in (waiting.assigned, waiting.rewarded, waiting.late)
        )
        refused = counted(late, "reward that came too late was", "rewards that came too late were")
        says = f"{came:,} of {counted(assigned, 'reward')} came"
        yield Paragraph(says + (f"; {refused} refused." if late else ", none of them too late."))
        yield Picture(charts.waiting(waiting))


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


def _counterfactuals(other: Counterfactuals | str, card: Scorecard) -> Iterator[Block]:
    yield Heading("What would other methods have concluded?")
    policy = card.settings.policy
    if isinstance(other, Counterfactuals):
        yield from counterfactual_section(other)
    elif not card.status.total_rewarded:
        yield Paragraph("No reward was recorded yet.")
    elif policy.unbiased:
        yield Paragraph(other)
    else:
        why = in_the_way(policy)
        yield Paragraph(f"{why}, so its rewards cannot be read in other ways without bias.")
