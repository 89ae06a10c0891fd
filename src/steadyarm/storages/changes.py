"""What operators change by hand, and the entries of the audit log about it.

A wrong reward is voided, visits that should not count (a bot's, those of an outage) are excluded,
and a unit's identity is erased. Each change is an entry of the audit log, which keeps how every
assignment that it touched stood before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import REWARD, LogRow, Target
from steadyarm.validation import check_choice

Kind = Literal["void", "exclude", "erase"]
ACTIONS: dict[Kind, str] = {  # the names of changes in the audit log
    "void": "reward.voided",
    "exclude": "visits.excluded",
    "erase": "unit.erased",
}
GIVEN = ("target", "unit", "since", "until")


@dataclass(frozen=True)
class Change:
    """A correction that is to be made, and why.

    Attributes
    ----------
    kind : "void" a reward, so that the assignment has none; "exclude" the assignments of a unit or
        of a period, which then count nowhere; "erase" the identity of a unit
    target : the assignment whose reward is voided
    unit : the unit that is excluded or erased
    since, until : the period that is excluded: assignments with since <= created < until
    reason : a sentence that stays in the audit log, so it must name no unit; optional for "erase"
    metric : which value of the assignment is voided; None for its reward

    Examples
    --------
    >>> Change("exclude", unit="bot 7", reason="an availability monitor").detail(touched=3)
    {'assignments': 3, 'reason': 'an availability monitor', 'what': 'a unit'}
    """

    kind: Kind
    target: Target | None = None
    unit: str | None = None
    since: int | None = None
    until: int | None = None
    reason: str = ""
    metric: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind", tuple(ACTIONS))
        if self.metric is not None and self.kind != "void":
            raise InvalidInputError(
                f"to {self.kind} concerns all values of an assignment, but the metric "
                f"{self.metric!r} is given; leave it out.",
                field="metric",
            )
        given = {name for name in GIVEN if getattr(self, name) is not None}
        needed = {"target"} if self.kind == "void" else {"unit"}
        if self.kind == "exclude" and given & {"since", "until"}:
            needed = {"since", "until"}
        if given != needed:
            wants = " and ".join(sorted(needed))
            raise InvalidInputError(
                f"to {self.kind}, {wants} must be given and nothing else; "
                f"given: {', '.join(sorted(given)) or 'nothing'}."
            )
        if not isinstance(self.reason, str) or not (self.reason.strip() or self.kind == "erase"):
            raise InvalidInputError(
                f"the reason is {self.reason!r}; expected a sentence that says why, for those who "
                "read the audit log."
            )
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidInputError("the period to exclude ends before it begins; swap its ends.")

    def detail(self, touched: int) -> dict[str, Any]:
        """The details for the audit log; they never name a unit.

        touched : number of assignments that were changed
        """
        detail: dict[str, Any] = {"assignments": touched}
        if self.reason:
            detail["reason"] = self.reason
        if self.kind == "exclude":
            detail["what"] = "a unit" if self.since is None else "a period"
        for name in ("since", "until", "metric"):
            if (value := getattr(self, name)) is not None:
                detail[name] = value
        return detail


@dataclass(frozen=True)
class CorrectionResult:
    """The result of a change.

    Attributes
    ----------
    entry : id of its entry in the audit log
    assignments : number of assignments that it changed
    """

    entry: int
    assignments: int


@dataclass(frozen=True)
class Correction:
    """What a change did to one assignment.

    Attributes
    ----------
    entry : id of the audit entry
    number : of the assignment
    kind : of the change
    before : the value before, as it counted; None where there was none. If assignments are excluded
        it is that of their reward
    closed : whether the policy had observed the segment before
    metric : of the value that was changed; "reward" for the reward, and for what concerns all
    """

    entry: int
    number: int
    kind: Kind
    before: float | None
    closed: bool
    metric: str = REWARD

    @property
    def late(self) -> bool:
        """Whether it changed the sums that the policy had observed."""
        return self.closed and self.kind != "erase" and self.metric == REWARD


@dataclass(frozen=True)
class AuditEntry:
    """One entry of the audit log: who did what, and when. Entries are never changed or deleted.

    Attributes
    ----------
    id : counts upwards in the order in which entries were stored; some numbers may be missing
    created : time of the entry
    author : over HTTP the name of the token, on the command line the name of the user of the
        operating system; empty if nobody was named
    action : what was done, its object first, such as "token.created"
    experiment : the name of the experiment; None for what concerns the whole storage
    detail : further facts, JSON-like; no units, since these are erased on request, and no secrets
    """

    id: int
    created: int
    author: str
    action: str
    experiment: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """The history of an experiment: entries of its audit log, and corrections."""

    entries: tuple[AuditEntry, ...] = ()
    corrections: tuple[Correction, ...] = ()


def undo_corrections(row: LogRow, corrections: Iterable[Correction]) -> LogRow:
    """An assignment as it stood when the policy observed its segment.

    corrections : of this assignment, in their order

    Examples
    --------
    >>> now = LogRow(0, "u", 1, 0.5, created=3, reward=None, rewarded=None)
    >>> undo_corrections(now, [Correction(9, 0, "void", 1.0, closed=True)]).reward
    1.0
    """
    for each in reversed([each for each in corrections if each.metric == REWARD]):
        if not each.closed:
            break
        if each.kind == "void":
            row = replace(row, reward=each.before)
        elif each.kind == "exclude":
            row = replace(row, excluded=None)
    return row
