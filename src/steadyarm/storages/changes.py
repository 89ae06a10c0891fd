"""Corrections: what may be changed of what was stored, and what is kept of each change.

A reward that was wrong is voided or corrected, visits that were none (a bot's, those of an outage)
are excluded, and a unit's identity is erased. Nothing is lost: each change is an entry of the audit
log, and says of every assignment that it touched how that stood before. The rules are the same in
every storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from steadyarm.errors import InvalidInputError, UnknownAssignmentError, WrongStateError
from steadyarm.storages.records import AuditEntry, ExperimentState, LogRow, Target, place_of
from steadyarm.validation import check_choice, finite_number, whole_number

__all__ = [
    "ACTIONS",
    "MOVED",
    "Change",
    "Corrected",
    "Correction",
    "Kind",
    "Trace",
    "as_handed",
    "before_and_after",
    "check_found",
    "check_open",
    "new_id",
]

Kind = Literal["void", "correct", "exclude", "include", "erase"]

ACTIONS: dict[Kind, str] = {  # as the audit log has them
    "void": "reward.voided",
    "correct": "reward.corrected",
    "exclude": "visits.excluded",
    "include": "visits.included",
    "erase": "unit.erased",
}
NEEDS: dict[Kind, tuple[str, ...]] = {
    "void": ("target",),
    "correct": ("target", "reward"),
    "exclude": (),  # a unit, or a period
    "include": ("entry",),
    "erase": ("unit",),
}
GIVEN = ("target", "reward", "unit", "since", "until", "entry")

# What the audit log calls a move from one state to another.
MOVED: dict[tuple[ExperimentState, ExperimentState], str] = {
    ("draft", "running"): "experiment.started",
    ("paused", "running"): "experiment.resumed",
    ("running", "paused"): "experiment.paused",
    ("running", "stopped"): "experiment.stopped",
    ("paused", "stopped"): "experiment.stopped",
    ("draft", "archived"): "experiment.archived",
    ("stopped", "archived"): "experiment.archived",
}


@dataclass(frozen=True)
class Change:
    """What is to be corrected, and why.

    Attributes
    ----------
    kind : "void" a reward, so that the assignment has none; "correct" it to another value;
        "exclude" the assignments of a unit or of a period, which then count nowhere; "include" them
        again; "erase" the identity of a unit
    target : whose reward is voided or corrected
    reward : the right value, for "correct"
    unit : who is excluded or erased
    since, until : the period that is excluded: assignments with since <= created < until
    entry : id of the audit entry that excluded what is to be included again
    reason : why; kept in the audit log for ever, so it names no unit. Needed but for "erase"

    Examples
    --------
    >>> Change("exclude", unit="bot 7", reason="an availability monitor").detail(touched=3)
    {'assignments': 3, 'reason': 'an availability monitor', 'what': 'a unit'}
    """

    kind: Kind
    target: Target | None = None
    reward: float | None = None
    unit: str | None = None
    since: int | None = None
    until: int | None = None
    entry: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind", tuple(ACTIONS))
        given = {name for name in GIVEN if getattr(self, name) is not None}
        needed = set(NEEDS[self.kind])
        if self.kind == "exclude":
            needed = {"since", "until"} if given & {"since", "until"} else {"unit"}
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
        if self.reward is not None:
            finite_number(self.reward, "the reward")
        if self.entry is not None:
            whole_number(self.entry, "entry", least=1)
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidInputError("the period to exclude ends before it begins; swap its ends.")

    @property
    def action(self) -> str:
        """As the audit log has it."""
        return ACTIONS[self.kind]

    def detail(self, touched: int) -> dict[str, Any]:
        """What the audit log tells beside the action; never a unit.

        touched : how many assignments it changed
        """
        told: dict[str, Any] = {"assignments": touched}
        if self.reason:
            told["reason"] = self.reason
        if self.kind == "exclude":
            told["what"] = "a unit" if self.since is None else "a period"
        for name in ("since", "until", "entry"):
            if (value := getattr(self, name)) is not None:
                told[name] = value
        return told


@dataclass(frozen=True)
class Corrected:
    """What a change did.

    Attributes
    ----------
    entry : its id in the audit log
    assignments : how many it touched
    """

    entry: int
    assignments: int


@dataclass(frozen=True)
class Correction:
    """What a change did to one assignment.

    Attributes
    ----------
    entry : of the audit log
    number : of the assignment
    kind : of the change
    before, after : the reward before and after it; None where there was none, or it did not count
    closed : whether the segment had been handed to the policy before
    metric : which of the unit's events was changed; there is one so far
    """

    entry: int
    number: int
    kind: Kind
    before: float | None
    after: float | None
    closed: bool
    metric: str = "reward"


@dataclass(frozen=True)
class Trace:
    """What an experiment brings along from another storage.

    Attributes
    ----------
    entries : of its audit log; they get new ids, in their order
    corrections : with ids of these entries
    """

    entries: tuple[AuditEntry, ...] = ()
    corrections: tuple[Correction, ...] = ()

    def renumbered(self, ids: Mapping[int, int]) -> tuple[Correction, ...]:
        """The corrections with the new ids of their entries."""
        return tuple(replace(each, entry=new_id(ids, each.entry)) for each in self.corrections)

    def segments(self) -> set[int]:
        """Indices of the segments that were corrected after they were handed to the policy."""
        return {place_of(c.number)[0] for c in self.corrections if c.closed and c.kind != "erase"}

    def detail(self, entry: AuditEntry, ids: Mapping[int, int]) -> dict[str, Any]:
        """What the audit log keeps of an entry that was made elsewhere, given all new ids.

        It says that it came with an import, for a file can claim anything.
        """
        told = dict(entry.detail) | {"imported": entry.id}
        if entry.action == ACTIONS["include"]:
            told["entry"] = new_id(ids, told.get("entry"))
        return told


def new_id(ids: Mapping[int, int], old: Any) -> int:
    """The new id of an entry that was imported."""
    if old not in ids:
        raise InvalidInputError(
            f"a correction belongs to entry {old!r} of the audit log, which is not there; the "
            "description was changed or cut short. Nothing was imported."
        )
    return ids[old]


def check_open(change: Change, name: str, state: ExperimentState, now: int) -> None:
    """Refuse what may not be changed in that state, or not yet."""
    if state == "archived" and change.kind != "erase":
        raise WrongStateError(
            f"the experiment {name!r} is archived; nothing of it is corrected any more. The "
            "identity of a unit can still be erased."
        )
    if change.until is not None and change.until > now:
        raise InvalidInputError(
            "the period to exclude ends in the future; exclude what has passed, and pause the "
            "experiment if visits are bad right now."
        )


def before_and_after(change: Change, row: LogRow | None) -> tuple[LogRow, float, float | None]:
    """The assignment whose reward is voided or corrected, with the old and the new value."""
    if row is None:
        raise UnknownAssignmentError(
            "there is no such assignment; give the id that ask() gave, or the unit if units keep "
            "their variant."
        )
    if row.reward is None:
        raise InvalidInputError(
            f"the assignment has no reward to {change.kind}; tell it, if it has come."
        )
    if row.reward == change.reward:
        raise InvalidInputError(f"the assignment has the reward {row.reward!r} already.")
    return row, row.reward, change.reward


def check_found(change: Change, touched: int, known: bool) -> None:
    """Refuse a change that touches nothing.

    known : whether the unit has assignments
    """
    if touched:
        return
    if change.kind == "include":
        raise InvalidInputError(
            f"entry {change.entry} excludes nothing of this experiment, or not any more; "
            "list the corrections to see which do."
        )
    if change.unit is not None and not known:
        raise UnknownAssignmentError("the unit has no assignment in this experiment.")
    if change.unit is not None:
        raise InvalidInputError("all assignments of the unit are excluded already.")
    raise InvalidInputError("no assignment of that period counts; there is nothing to exclude.")


def as_handed(row: LogRow, corrections: Iterable[Correction]) -> LogRow:
    """An assignment as it stood when its segment was handed to the policy.

    corrections : of this assignment, in their order

    Examples
    --------
    >>> now = LogRow(0, "u", 1, 0.5, created=3, reward=None, rewarded=None)
    >>> as_handed(now, [Correction(9, 0, "void", 1.0, None, closed=True)]).reward
    1.0
    """
    for each in reversed(list(corrections)):
        if not each.closed:
            break
        if each.kind in ("void", "correct"):
            row = replace(row, reward=each.before)
        elif each.kind in ("exclude", "include"):
            row = replace(row, excluded=each.entry if each.kind == "include" else None)
    return row
