"""The appendix of a report on a live test: method, assumptions, settings, and how to check it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from steadyarm import __version__
from steadyarm.description import description_of, toml_of
from steadyarm.looks.look import Look
from steadyarm.replay import Replay
from steadyarm.reports.document import Block, Code, Heading, Items, Note, Paragraph
from steadyarm.reports.method import (
    estimates_in_words,
    intervals_in_words,
    policy_in_words,
    rewards_in_words,
)
from steadyarm.wording import counted

__all__ = ["Fingerprint", "appendix", "fingerprint_of"]

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
