"""What operators change by hand: corrections, tokens, sessions, and the audit log of all that.

A wrong reward is voided, visits that should not count (a bot's, those of an outage) are excluded,
and a unit's identity is erased. Each change is an entry of the audit log, which keeps how every
assignment that it touched stood before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.storages.records import ExperimentState, LogRow, Target, in_words
from steadyarm.storages.series import REWARD
from steadyarm.validation import check_choice

Kind = Literal["void", "exclude", "erase"]
Scope = Literal["read", "write", "admin", "assign"]

ACTIONS: dict[Kind, str] = {  # the names of changes in the audit log
    "void": "reward.voided",
    "exclude": "visits.excluded",
    "erase": "unit.erased",
}
GIVEN = ("target", "unit", "since", "until")

# The moves between states that are allowed, with their names in the audit log.
MOVED: dict[tuple[ExperimentState, ExperimentState], str] = {
    ("draft", "running"): "experiment.started",
    ("paused", "running"): "experiment.resumed",
    ("running", "paused"): "experiment.paused",
    ("running", "stopped"): "experiment.stopped",
    ("paused", "stopped"): "experiment.stopped",
    ("draft", "archived"): "experiment.archived",
    ("stopped", "archived"): "experiment.archived",
}


# What every storage refuses, in the same words.


def moved(name: str, state: ExperimentState, to: ExperimentState) -> str:
    """The name of a move in the audit log; WrongStateError if it is not allowed."""
    if (state, to) not in MOVED:
        before = " or ".join(in_words(begin) for begin, end in MOVED if end == to) or "new"
        raise WrongStateError(
            f"the experiment {name!r} is {in_words(state)} and cannot become {in_words(to)}; only "
            f"one that is {before} can."
        )
    return MOVED[state, to]


def unknown_experiment(name: str, names: Iterable[str]) -> UnknownExperimentError:
    """The error for a name that no experiment has; it suggests similar names."""
    near = get_close_matches(name, list(names))
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return UnknownExperimentError(f"there is no experiment {name!r} in the storage{hint}")


def name_taken(name: str) -> ExperimentExistsError:
    """The error for the name of another experiment."""
    return ExperimentExistsError(
        f"there is an experiment {name!r} in the storage already; choose another name."
    )


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

    @property
    def action(self) -> str:
        """The name of the change in the audit log."""
        return ACTIONS[self.kind]

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
class Corrected:
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


def check_open(change: Change, name: str, state: ExperimentState, now: int) -> None:
    """Refuse a change that the experiment's state forbids, or that lies in the future."""
    if state == "archived" and change.kind != "erase":
        raise WrongStateError(
            f"the experiment {name!r} is archived and can no longer be corrected. The identity of "
            "a unit can still be erased."
        )
    if change.until is not None and change.until > now:
        raise InvalidInputError(
            "the period to exclude ends in the future; exclude what has passed, and pause the "
            "experiment if visits are bad right now."
        )


def as_observed(row: LogRow, corrections: Iterable[Correction]) -> LogRow:
    """An assignment as it stood when the policy observed its segment.

    corrections : of this assignment, in their order

    Examples
    --------
    >>> now = LogRow(0, "u", 1, 0.5, created=3, reward=None, rewarded=None)
    >>> as_observed(now, [Correction(9, 0, "void", 1.0, closed=True)]).reward
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


@dataclass(frozen=True)
class TokenRecord:
    """A token of the service; only its hash is stored.

    A token with the scope "assign" is a publishable key: it stands in pages that anybody may read,
    so it says for which experiments, from which pages and how often it may be used.

    Attributes
    ----------
    experiments : names of those that a publishable key is for
    origins : of the pages that may use it, such as "https://shop.example"; "none" for programs that
        are no browsers
    rate : requests in a minute that one address may send with it
    signing : secret with which a unit is signed, if requests have to prove theirs; kept as it is,
        because signatures are checked with it

    Examples
    --------
    >>> TokenRecord("web", "0a1b", "assign", 0, ("shop",), ("https://shop.example",), 120).detail
    {'name': 'web', 'scope': 'assign', 'experiments': ['shop'], 'origins': ['https://shop.example']}
    """

    name: str
    hash: str
    scope: Scope
    created: int
    experiments: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    rate: int | None = None
    signing: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        bounds = self.experiments, self.origins, self.rate
        if self.publishable and not all(bounds):
            raise InvalidInputError(
                f"the token {self.name!r} has the scope assign, so anybody may get to know it, and "
                "it needs the experiments that it is for, the origins of the pages that use it, "
                "and the requests per minute that an address may send."
            )
        if not self.publishable and (any(bounds) or self.signing is not None):
            raise InvalidInputError(
                f"the token {self.name!r} has the scope {self.scope}, which cannot be bounded by "
                "experiments, origins, a rate or signed units; only the scope assign is."
            )

    @property
    def publishable(self) -> bool:
        """Whether anybody may get to know it."""
        return self.scope == "assign"

    @property
    def detail(self) -> dict[str, Any]:
        """What the audit log says of it."""
        found: dict[str, Any] = {"name": self.name, "scope": self.scope}
        if self.publishable:
            found |= {"experiments": list(self.experiments), "origins": list(self.origins)}
        if self.signing is not None:
            found["signed_units"] = True
        return found


@dataclass(frozen=True)
class SessionRecord:
    """A person who has signed in to the dashboard.

    Attributes
    ----------
    id : hash of the id in the cookie
    token : hash of the token that was used to sign in
    expires : when it ends, unless it is ended before
    """

    id: str
    token: str
    created: int
    expires: int


@dataclass(frozen=True)
class Pruned:
    """What `Storage.prune` has removed, or would remove.

    Attributes
    ----------
    sessions : number of expired sessions
    experiments : names of deleted experiments
    """

    sessions: int
    experiments: tuple[str, ...]
