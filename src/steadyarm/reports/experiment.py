"""The report on a live test: a Look in words, tables and pictures, and how to check it."""

from __future__ import annotations

from steadyarm import __version__
from steadyarm.answers import moment
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.experiment import Experiment
from steadyarm.inference import Otherwise
from steadyarm.looks import look_at
from steadyarm.looks.look import Look
from steadyarm.looks.ranking import order_of
from steadyarm.plot import charts
from steadyarm.replay import Replay
from steadyarm.reports.appendix import Fingerprint, appendix, fingerprint_of
from steadyarm.reports.course import course_blocks, effect_blocks, share_blocks
from steadyarm.reports.document import (
    Block,
    Document,
    Facts,
    Heading,
    Lead,
    Note,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.reports.labels import labelled, labelled_otherwise
from steadyarm.reports.leaderboard import leaderboard_blocks
from steadyarm.reports.method import in_short, in_the_way
from steadyarm.reports.parts import health_table, otherwise_blocks, period_table
from steadyarm.transfer import csv_lines
from steadyarm.wording import counted, percent, when

__all__ = ["document_of", "experiment_report"]

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
            *_drift(look),
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


def _drift(look: Look) -> list[Block]:
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
