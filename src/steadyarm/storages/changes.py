"""What operators change by hand: corrections, tokens, sessions, and the audit log of all that.

A wrong reward is voided or corrected, visits that should not count (a bot's, those of an outage)
are excluded, and a unit's identity is erased. Each change is an entry of the audit log, which keeps
how every assignment that it touched stood before. The rules are the same in every storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    UnknownAssignmentError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.storages.records import ExperimentState, LogRow, Target, in_words, place_of
from steadyarm.storages.series import REWARD, Metrics
from steadyarm.validation import check_choice, finite_number, whole_number

Kind = Literal["void", "correct", "exclude", "include", "erase"]
Scope = Literal["read", "write", "admin", "assign"]

ACTIONS: dict[Kind, str] = {  # the names of changes in the audit log
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


def token_taken(name: str) -> InvalidInputError:
    """The error for the name of another token."""
    return InvalidInputError(f"there is a token {name!r} already; choose another name.")


def token_removed() -> InvalidInputError:
    """The error for a session whose token was removed."""
    return InvalidInputError("the token of the session was removed; use another one.")


@dataclass(frozen=True)
class Change:
    """A correction that is to be made, and why.

    Attributes
    ----------
    kind : "void" a reward, so that the assignment has none; "correct" it to another value;
        "exclude" the assignments of a unit or of a period, which then count nowhere; "include" them
        again; "erase" the identity of a unit
    target : the assignment whose reward is voided or corrected
    reward : the right value, for "correct"
    unit : the unit that is excluded or erased
    since, until : the period that is excluded: assignments with since <= created < until
    entry : id of the audit entry that excluded what is to be included again
    reason : a sentence that stays in the audit log, so it must name no unit; optional for "erase"
    metric : which value of the assignment is voided or corrected; None for its reward

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
    metric: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind", tuple(ACTIONS))
        if self.metric is not None and self.kind not in ("void", "correct"):
            raise InvalidInputError(
                f"to {self.kind} concerns all values of an assignment, but the metric "
                f"{self.metric!r} is given; leave it out.",
                field="metric",
            )
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
        for name in ("since", "until", "entry", "metric"):
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
    before, after : the value before and after, as it counts; None where there was none or it did
        not count. If assignments are excluded or included it is that of their reward
    closed : whether the policy had observed the segment before
    metric : of the value that was changed; "reward" for the reward, and for what concerns all
    """

    entry: int
    number: int
    kind: Kind
    before: float | None
    after: float | None
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
    """The history that an experiment brings along from another storage.

    Attributes
    ----------
    entries : of its audit log; they get new ids, in the same order
    corrections : with the ids of these entries
    """

    entries: tuple[AuditEntry, ...] = ()
    corrections: tuple[Correction, ...] = ()

    def renumbered(self, ids: Mapping[int, int]) -> tuple[Correction, ...]:
        """The corrections with the new ids of their entries."""
        return tuple(replace(each, entry=new_id(ids, each.entry)) for each in self.corrections)

    def segments(self) -> set[int]:
        """Indices of the segments that were corrected after they were closed."""
        return {place_of(each.number)[0] for each in self.corrections if each.late}

    def detail(self, entry: AuditEntry, ids: Mapping[int, int]) -> dict[str, Any]:
        """The details of an imported entry, with new ids.

        They say that the entry was imported, because a file can claim anything.
        """
        detail = dict(entry.detail) | {"imported": entry.id}
        if entry.action == ACTIONS["include"]:
            detail["entry"] = new_id(ids, detail.get("entry"))
        return detail


NO_TRACE = Trace()


def new_id(ids: Mapping[int, int], old: Any) -> int:
    """The new id of an entry that was imported."""
    if old not in ids:
        raise InvalidInputError(
            f"a correction belongs to entry {old!r} of the audit log, which is not there; the "
            "description was changed or cut short. Nothing was imported."
        )
    return ids[old]


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


def known_assignment(row: LogRow | None) -> LogRow:
    """The assignment whose value is voided or corrected; refused if there is none."""
    if row is None:
        raise UnknownAssignmentError(
            "there is no such assignment; give its id, or the unit if units keep their variant."
        )
    return row


def before_and_after(
    change: Change, row: LogRow, metrics: Metrics, entry: int = 0, closed: bool = False
) -> tuple[LogRow, Correction]:
    """An assignment after a value of it is voided or corrected, and the trace of that.

    entry, closed : as in `Correction`
    """
    rule = metrics.rule(change.metric)
    what, named = REWARD, REWARD
    if rule.steers and rule is not metrics.primary:
        raise InvalidInputError(
            f"{rule.name!r} is a covariate, which was known before the assignment and stays as it "
            "was given; exclude the visit if it is wrong.",
            field="metric",
        )
    if rule is not metrics.primary:
        what, named = f"value of {rule.name!r}", rule.name
    before = metrics.value(row, rule)
    if before is None:
        raise InvalidInputError(
            f"the assignment has no {what} to {change.kind}; report the {what} if there is one."
        )
    after = metrics.corrected(row, rule, change.reward)
    new = metrics.value(after, rule)
    if before == new:
        raise InvalidInputError(f"the assignment has the {what} {before!r} already.")
    return after, Correction(entry, row.number, change.kind, before, new, closed, named)


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


def as_observed(row: LogRow, corrections: Iterable[Correction]) -> LogRow:
    """An assignment as it stood when the policy observed its segment.

    corrections : of this assignment, in their order

    Examples
    --------
    >>> now = LogRow(0, "u", 1, 0.5, created=3, reward=None, rewarded=None)
    >>> as_observed(now, [Correction(9, 0, "void", 1.0, None, closed=True)]).reward
    1.0
    """
    for each in reversed([each for each in corrections if each.metric == REWARD]):
        if not each.closed:
            break
        if each.kind in ("void", "correct"):
            row = replace(row, reward=each.before)
        elif each.kind in ("exclude", "include"):
            row = replace(row, excluded=each.entry if each.kind == "include" else None)
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


def removable(name: str, kept: Iterable[TokenRecord], lock_out: bool) -> TokenRecord:
    """The token of that name; without `lock_out` the last one and the last admin are refused.

    Publishable keys do not count as others that are left: they let nobody in but visitors of pages.
    """
    named = {token.name: token for token in kept}
    token = named.pop(name, None)
    if token is None:
        raise InvalidInputError(f"there is no token {name!r}; list them to see which are.")
    others = [other for other in named.values() if token.publishable or not other.publishable]
    if lock_out or any(other.scope == "admin" for other in others):
        return token
    if not others:
        which, follows = "the last one", "nobody could use the service over HTTP"
    elif token.scope == "admin":
        which = "the last one with the scope admin"
        follows = "nobody could create or change experiments over HTTP"
    else:
        return token
    raise InvalidInputError(
        f"the token {name!r} is {which}; without it {follows} until somebody creates another one "
        "on a machine with access to the storage. Create another one with the scope admin first; "
        "or, if that is what you want, remove it with --lock-out (in Python, lock_out=True)."
    )


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
