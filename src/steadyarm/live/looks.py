"""Looks at a live test that may stop early: when they are taken, and what was found at each.

Which visits a look rests on follows from how many were assigned and when, never from rewards, so
that every process and every replay finds the same looks. What a look decides is in `stopping.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil
from typing import Any

from steadyarm.inference.boundaries import FIRST_LOOK
from steadyarm.live.decisions import SegmentLedger
from steadyarm.live.settings import MOST_LOOKS, Settings
from steadyarm.storages.changes import AuditEntry
from steadyarm.storages.records import ExperimentHead

ITSELF = "the test itself"  # who stopped it, in the audit log
DAY = 86_400_000_000  # microseconds
WEEK = 7 * DAY


@dataclass(frozen=True)
class Look:
    """One look at a test.

    Attributes
    ----------
    number : of the planned looks, from 1; daily and weekly ones are counted as they are taken
    pieces : how many segments it rests on, from the first one on
    visits : assignments in these
    last : when the last of them was made, in microseconds since 1970; None without a clock
    """

    number: int
    pieces: int
    visits: int
    last: int | None


@dataclass(frozen=True)
class Stopped:
    """That a test stopped itself.

    Attributes
    ----------
    look : number of the look that decided it
    segment : index of the last segment that this look rests on
    reason : what it found, in a sentence
    when : microseconds since 1970; None without a clock
    guardrails : index of the last segment that each guardrail was judged on, by its name
    """

    look: int
    segment: int
    reason: str
    when: int | None = None
    guardrails: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and texts, as the audit log and the JSON of sessions keep them."""
        found = {"look": self.look, "segment": self.segment, "reason": self.reason}
        return found | ({"guardrails": dict(self.guardrails)} if self.guardrails else {})

    def of_metric(self, name: str) -> Stopped:
        """The same with the last segment that a further metric rests on, as at the stop."""
        return replace(self, segment=self.guardrails.get(name, self.segment))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], when: int | None = None) -> Stopped:
        """What `to_dict` wrote."""
        look, segment, reason = int(data["look"]), int(data["segment"]), str(data["reason"])
        return cls(look, segment, reason, when, data.get("guardrails", {}))


@dataclass(frozen=True)
class LookResult:
    """What was found at one look.

    Attributes
    ----------
    number : of the look, from 1
    visits, share : that it rests on, and as a share of the budget
    when : the last of these visits was assigned; None without a clock
    boundary : standard errors that decide; infinite if the look was too early to decide anything
    reached : standard errors that were seen, of what was nearest to its boundary: the lead of the
        best variant over the nearest other one or, with a control, over that
    """

    number: int
    visits: int
    share: float
    when: datetime | None
    boundary: float
    reached: float


@dataclass(frozen=True)
class StopReport:
    """How far a test is that may stop early.

    Attributes
    ----------
    rule : "when sure" if the test stops itself, "recommend" if it only says so
    spending : how the error probability is spent
    planned : number of looks; None if they are taken daily or weekly
    looks : what was found at the looks so far
    recommended : whether the last of them decides, so that the test should be stopped; False at
        its end, and while a guardrail forbids what was decided
    stopped : whether the test stopped itself
    when : it did; None if it did not, or has no clock
    reason : what the last look found, in a sentence; empty if it decides nothing
    ahead : what the next look rests on, in a sentence; empty if none follows
    """

    rule: str
    spending: str
    planned: int | None
    looks: tuple[LookResult, ...] = ()
    recommended: bool = False
    stopped: bool = False
    when: datetime | None = None
    reason: str = ""
    ahead: str = ""

    @property
    def text(self) -> str:
        """The same in a sentence."""
        of = "" if self.planned is None else f" of {self.planned}"
        if not self.looks:
            first = "The first look" if self.planned is None else f"The first{of} looks"
            return f"{first} is still to come. {self.ahead}".rstrip()
        at = f"look {self.looks[-1].number}{of}"
        if self.stopped:
            day = "" if self.when is None else f" on {self.when:%A %d %b %Y}"
            return f"Stopped{day} at {at}: {self.reason}"
        if self.recommended:
            return f"Stop now, says {at}: {self.reason}"
        if self.reason:
            return f"{at.capitalize()} decided: {self.reason}"
        return f"{at.capitalize()} decided nothing. {self.ahead}".rstrip()


def looks_taken(settings: Settings, pieces: Sequence[SegmentLedger], over: bool) -> list[Look]:
    """The looks at a test that have been taken; none before a twentieth of the budget.

    A look is taken at the end of the first segment that reaches the next share of the budget, or
    the next midnight or whole week since the first assignment; at most one in every sixtieth of
    the budget.

    Parameters
    ----------
    pieces : ledgers of the segments that can be judged, a prefix of the test
    over : whether the test has been played to its end, which is a look, too
    """
    found: list[Look] = []
    visits, passed, last = 0, 0, None
    began = next((piece.opened for piece in pieces if piece.opened is not None), None)
    for count, piece in enumerate(pieces, start=1):
        visits += piece.used + int(piece.excluded.sum())
        if piece.last is not None:
            last = piece.last if last is None else max(last, piece.last)
        reached = _reached(settings, visits, began, last)
        if reached <= passed:
            continue
        passed = reached
        before = found[-1].visits if found else 0
        near = (visits - before) * MOST_LOOKS < settings.budget
        if visits >= FIRST_LOOK * settings.budget and not near:
            number = reached if isinstance(settings.looks, int) else len(found) + 1
            found.append(Look(number, count, visits, last))
    if over and pieces and not (found and found[-1].pieces == len(pieces)):
        number = settings.looks if isinstance(settings.looks, int) else len(found) + 1
        found.append(Look(number, len(pieces), visits, last))
    return found


def next_look(
    settings: Settings, looks: Sequence[Look], pieces: Sequence[SegmentLedger]
) -> tuple[int, int | None] | None:
    """About how many visits the next look rests on, and until when; None if that is not known.

    Visits until a time are those of the pace so far.

    pieces : as for `looks_taken`
    """
    first = ceil(FIRST_LOOK * settings.budget)
    if isinstance(settings.looks, int):
        number = looks[-1].number + 1 if looks else 1
        return min(
            max(ceil(number * settings.budget / settings.looks), first), settings.budget
        ), None
    times = [piece.opened for piece in pieces[:1]] + [piece.last for piece in pieces]
    known = [time for time in times if time is not None]
    if not known or max(known) == known[0]:
        return None
    began, last = known[0], max(known)
    seen = began if not looks or looks[-1].last is None else looks[-1].last
    until = (seen // DAY + 1) * DAY
    if settings.looks == "weekly":
        until = began + ((seen - began) // WEEK + 1) * WEEK
    pace = sum(piece.used for piece in pieces) / (last - began)
    return min(max(round(pace * (until - began)), first), settings.budget), until


def _reached(settings: Settings, visits: int, began: int | None, last: int | None) -> int:
    """How many looks are due after so many visits."""
    if isinstance(settings.looks, int):
        return visits * settings.looks // settings.budget
    if began is None or last is None:
        return 0
    if settings.looks == "daily":
        return last // DAY - began // DAY
    return (last - began) // WEEK


def stopped_in(
    history: Callable[[str], Iterable[AuditEntry]], settings: Settings, head: ExperimentHead
) -> Stopped | None:
    """That an experiment stopped itself, from its audit log; None if it did not.

    history : reads the entries about the experiment of a name, such as `Storage.history`
    """
    if settings.stop != "when sure" or head.state not in ("stopped", "archived"):
        return None
    entries = [each for each in history(head.name) if each.action == "experiment.stopped"]
    if not entries or "look" not in entries[-1].detail:
        return None
    return Stopped.from_dict(entries[-1].detail, entries[-1].created)
