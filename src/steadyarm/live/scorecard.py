"""Scorecard: a test at one moment, as plain values for pages, reports and plots, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import DriftReport, HealthReport
from steadyarm.live.breakdowns import Breakdown
from steadyarm.live.results import Status
from steadyarm.live.settings import Settings
from steadyarm.live.verdict import Comparison, Decision, Verdict, compare_with_control
from steadyarm.storages.changes import AuditEntry
from steadyarm.wording import counted, labels_of, listed, number, span

__all__ = [
    *("Course", "Effect", "Effects", "Interaction", "Light", "Scorecard", "Shares", "Standing"),
    *("Waiting", "announcement", "headline", "order_of", "rewards_in_words", "standing_of"),
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Light = Literal["ok", "warn", "fail", "none"]


@dataclass(frozen=True, eq=False)
class Course:
    """How estimates went: after each of J pieces, from the whole test up to there.

    Attributes
    ----------
    names : of the K variants; of a large set those on a short list
    times : when each piece ended; None for a test that has no clock
    rounds : (J,) assignments judged up to there
    estimates, low, high : (J, K) with intervals that hold at all times at once; infinite ends
        where too little is known
    leaders : (J,) index of the variant with the best estimate
    plausible : (J, K) whether a variant could not be ruled out as the best
    level : of the intervals
    size : number of variants of a large set; 0 if all are here
    others : (J,) further variants that could not be ruled out; None if they were not counted
    """

    names: Sequence[str]
    times: tuple[datetime, ...] | None
    rounds: Integers
    estimates: Floats
    low: Floats
    high: Floats
    leaders: Integers
    plausible: Booleans
    level: float
    size: int = 0
    others: Integers | None = None

    @property
    def variants(self) -> int:
        """How many variants there are."""
        return self.size or len(self.names)

    @property
    def possible(self) -> Integers:
        """(J,) how many could not be ruled out, as far as they were counted."""
        here = self.plausible.sum(axis=1)
        return np.asarray(here if self.others is None else here + self.others)


@dataclass(frozen=True, eq=False)
class Shares:
    """How variants were assigned in each of J pieces.

    Attributes
    ----------
    names : of the K variants; of a large set those assigned most often, and all others as one
    starts, ends : when the first and the last visit of each piece came; None without a clock
    rounds : (J,) visits of each piece
    planned : (J, K) shares with which they were drawn
    given : (J, K) how often each was assigned
    turns : (J,) whether the policy changed its mind when the piece began
    rest : of how many variants the last column is the sum; 0 if each has its own
    """

    names: Sequence[str]
    starts: tuple[datetime, ...] | None
    ends: tuple[datetime, ...] | None
    rounds: Integers
    planned: Floats
    given: Integers
    turns: Booleans
    rest: int = 0

    @property
    def single(self) -> int:
        """How many columns are of one variant."""
        return len(self.names) - (self.rest > 0)

    @property
    def variants(self) -> int:
        """How many variants were assigned, or may have been."""
        return self.single + self.rest


@dataclass(frozen=True)
class Effect:
    """What one level of a factor does, on average over all others; or one item of bundles.

    Attributes
    ----------
    factor, level : their names; of bundles "item" and the item's name
    mean : reward with this level, or of all bundles with this item
    difference : from the average over the factor's levels, or from the mean of all bundles without
        the item
    low, high : ends of its interval
    """

    factor: str
    level: str
    mean: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Interaction:
    """Two factors together.

    Attributes
    ----------
    means, errors : (levels of the first, levels of the second) mean reward and standard error
    strength : the largest departure from the sum of both main effects
    p_value : probability of so much if the factors do not interact
    """

    first: str
    second: str
    means: Floats
    errors: Floats
    strength: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Effects:
    """What the parts do that variants are made of: levels of factors, or items of bundles.

    Attributes
    ----------
    factors : with their levels; of bundles one called "item"
    main : one for each level, in this order; of bundles from the best item to the worst
    pairs : interactions of factors, from the clearest on; none of bundles
    level : of the intervals, which hold for all of `main` at once
    kind : "items" for a test of bundles
    chosen : items of the recommended bundle, if that is known
    """

    factors: Mapping[str, tuple[str, ...]]
    main: tuple[Effect, ...]
    pairs: tuple[Interaction, ...]
    level: float
    kind: Literal["factors", "items"] = "factors"
    chosen: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Waiting:
    """Rewards by the day (UTC) of their assignment.

    Attributes
    ----------
    days : D of them
    assigned, rewarded : (D,) visits of that day, and how many of them have a reward
    late : (D,) rewards that came too late and were refused
    hours : (D,) mean time from a variant to its reward; nan where none came
    """

    days: tuple[date, ...]
    assigned: Integers
    rewarded: Integers
    late: Integers
    hours: Floats


class Sections(Protocol):
    """Computes the sections of a scorecard that not every reader needs."""

    def course(self) -> Course | None: ...

    def shares(self) -> Shares | None: ...

    def effects(self) -> Effects | None: ...

    def people(self) -> tuple[Breakdown, ...]: ...


@dataclass(frozen=True, eq=False)
class Scorecard:
    """A live test at one moment.

    Attributes
    ----------
    name : of the test
    seen : that moment
    settings, status : what it was created with, and where it stands
    started, last : when the first and the last visit came; None before the first
    expected_end : when the budget will be spent at the present pace; None if that is not known
    policy_ended : whether the policy has chosen, however much of the budget is left
    rewards_until : up to when rewards may still come; None if none is waited for
    headline : the verdict in a few plain sentences, without markup
    announcement : what of it is worth saying aloud when it changes; without numbers of visits
    verdict : None if there is none yet; `obstacle` then says why, in one sentence
    drift : by day (`by_day`) if the test has lasted for at least two, else by equal shares; None
        if there is nothing to compare
    by_day : whether the periods of `drift` are days (UTC), with labels such as 2026-11-15
    health : None before the first visit
    waiting : None before the first visit
    shown : (m,) variants of a large set that are shown, in rising order; None for all. What has a
        row for each variant, such as `names` and the verdict, then has one for each of these
    planned : (m,) shares with which those shown are assigned now; None if that is not known
    corrections : entries of the audit log that corrected rewards or visits, oldest first
    needs_stop : all visits were assigned, rewards are missing and have no window: stopping the test
        says that none will come any more
    sections : computes `course`, `shares`, `effects` and `people` when they are read first
    """

    name: str
    seen: datetime
    settings: Settings
    status: Status
    started: datetime | None
    last: datetime | None
    expected_end: datetime | None
    policy_ended: bool
    rewards_until: datetime | None
    headline: str
    announcement: str
    verdict: Verdict | None
    obstacle: str
    drift: DriftReport | None
    by_day: bool
    health: HealthReport | None
    waiting: Waiting | None
    shown: Integers | None = None
    planned: Floats | None = None
    needs_stop: bool = False
    corrections: tuple[AuditEntry, ...] = ()
    sections: Sections | None = None

    @cached_property
    def course(self) -> Course | None:
        """None if the policy's estimates are not unbiased, or before the first reward."""
        return None if self.sections is None else self.sections.course()

    @cached_property
    def shares(self) -> Shares | None:
        """None before the first visit."""
        return None if self.sections is None else self.sections.shares()

    @cached_property
    def effects(self) -> Effects | None:
        """None if the test is neither factorial nor of bundles."""
        return None if self.sections is None else self.sections.effects()

    @cached_property
    def people(self) -> tuple[Breakdown, ...]:
        """Results by level of every attribute of units; empty without a verdict."""
        return () if self.sections is None else self.sections.people()

    def changed(self, **parts: Any) -> Scorecard:
        """The same scorecard with other values of fields or sections."""
        given = {field.name for field in fields(self)} & parts.keys()
        card = replace(self, **{name: parts[name] for name in given})
        vars(card).update({name: parts[name] for name in parts.keys() - given})
        return card

    @property
    def light(self) -> Light:
        """The health in one word."""
        return "none" if self.health is None else self.health.status

    @property
    def size(self) -> int:
        """Number of variants, shown or not."""
        return self.settings.arms.size

    @property
    def names(self) -> Sequence[str]:
        """Of the variants that are shown."""
        names = self.settings.arms.names
        return names if self.shown is None else tuple(names[k] for k in self.shown.tolist())

    @property
    def labels(self) -> tuple[str, ...]:
        """Short names of the variants that are shown, for people."""
        return tuple(self.names) if self.settings.arms.large else labels_of(self.names)

    @property
    def assigned(self) -> tuple[int, ...]:
        """How often each of these was assigned."""
        return _of_those(self.status.assigned, self.status.arms, self.shown)

    @property
    def rewarded(self) -> tuple[int, ...]:
        """How many rewards came for each of these."""
        return _of_those(self.status.rewarded, self.status.arms, self.shown)

    @property
    def ended(self) -> bool:
        """Whether no more variants will be assigned."""
        spent = self.status.total_assigned >= self.status.budget
        return spent or self.policy_ended or self.status.state in ("stopped", "archived")

    @property
    def settled(self) -> bool:
        """Whether it has ended, and no reward is waited for: the verdict is final."""
        return self.ended and self.rewards_until is None and not self.needs_stop

    @property
    def decision(self) -> Decision:
        """What to do, in a word and in a sentence with short names of the variants."""
        if self.verdict is None:
            if self.light == "fail":
                return Decision("unhealthy", "Not healthy: do not decide.")
            if self.settled:
                return Decision("unclear", "No clear winner: there is nothing to judge by.")
            text = (
                "Not decided yet: rewards may still come." if self.ended else "Too early to decide."
            )
            return Decision("running", text)
        decision, text = self.verdict.decision, self.verdict.decision.text
        if not self.settings.arms.large:
            pairs = zip(self.names, self.labels, strict=True)
            for name, label in sorted(pairs, key=lambda pair: -len(pair[0])):
                text = text if name == label else text.replace(name, label)
        return replace(decision, text=text)


def _of_those(
    counts: tuple[int, ...], arms: tuple[int, ...] | None, shown: Integers | None
) -> tuple[int, ...]:
    """Counts of the variants shown, from those of the arms that were assigned."""
    if shown is None:
        return counts
    found = dict(zip(range(len(counts)) if arms is None else arms, counts, strict=True))
    return tuple(found.get(k, 0) for k in shown.tolist())


Standing = Literal["best", "leads", "ahead", "open", "maybe", "out", "dropped", "unknown"]


def order_of(card: Scorecard) -> list[int]:
    """Variants from the best to the worst: the recommended one, then by their estimates.

    Variants are given as rows: of a large set those that are shown have one. Those without an
    estimate come last; without a verdict variants stay as they were given.
    """
    if card.verdict is None:
        return list(range(len(card.names)))
    sign = 1.0 if card.settings.direction == "maximize" else -1.0
    order = np.argsort(-sign * card.verdict.estimates, kind="stable").tolist()  # nan goes last
    order.remove(card.verdict.row)  # first even where its estimate is not
    return [card.verdict.row, *order]


def standing_of(card: Scorecard, k: int) -> Standing:
    """Where a variant stands.

    best : recommended at the end, with all others that were measured ruled out
    leads : recommended while the test runs, or rewards of its last visits may still come
    ahead : recommended at the end, but others are not ruled out
    open, maybe : not ruled out, while variants are assigned and after the last visit
    out : ruled out
    dropped : the policy stopped measuring it
    unknown : there is no verdict
    """
    verdict = card.verdict
    if verdict is None:
        return "unknown"
    # Reports call variants by their short names.
    names = card.names if verdict.name == card.names[verdict.row] else card.labels
    if k == verdict.row:
        if not card.settled:
            return "leads"
        others = {names[j] for j in range(len(names)) if j != k and not _dropped(card, verdict, j)}
        alone = bool(others) and others.isdisjoint(verdict.plausible) and not verdict.others
        good = card.light != "fail" and not verdict.caution
        return "best" if alone and good else "ahead"
    if _dropped(card, verdict, k):
        return "dropped"
    if names[k] not in verdict.plausible:
        return "out"
    return "maybe" if card.ended else "open"


def _dropped(card: Scorecard, verdict: Verdict, k: int) -> bool:
    """Whether a variant has no estimate; one that is still assigned merely has no reward yet."""
    planned = card.planned is not None and bool(card.planned[k] > 0)
    return bool(np.isnan(verdict.estimates[k])) and not planned


# The verdict in plain sentences, for people who have never heard of best-arm identification

FEW = 3  # names that are listed


def headline(card: Scorecard) -> str:
    """How far, who leads, how sure that is, and what is unusual, in a few sentences.

    Where a health check fails nobody leads: the sentences say what to look at instead.
    """
    status, K = card.status, card.size
    if status.state == "draft":
        return f"Not started yet: {K:,} variants, {status.budget:,} visits."
    if not card.status.total_assigned:
        return (
            "Ended before the first visit."
            if card.ended
            else f"Waiting for the first of {status.budget:,} visits to {K:,} variants."
        )
    if unhealthy := _unhealthy(card):
        return f"{_progress(card)}: {unhealthy}"
    stop = "Stop the test when no more rewards will come: then all are judged."
    if card.verdict is None:
        return f"{_progress(card)}: {card.obstacle}{f' {stop}' if card.needs_stop else ''}"
    looks = card.verdict.stopping
    sentences = [
        f"{_progress(card)}, {_standing(card, card.verdict)}",
        _guarded(card.verdict),
        "" if looks is None or (looks.reason and not looks.recommended) else looks.text,
        card.verdict.reach,
    ]
    if card.ended and card.rewards_until is not None:
        until = f"{card.rewards_until.day} {card.rewards_until:%b, %H:%M}"
        sentences.append(f"Rewards may still come until {until} UTC.")
    if card.needs_stop:
        sentences.append(stop)
    if card.drift is not None:
        sentences.append(_drifted(card.drift, card.by_day))
    return " ".join(sentence for sentence in sentences if sentence)


MISSING = {
    "zero": "A reward that never came counts as zero.",
    "drop": "A reward that never came counts as the mean of its variant's rewards around it; that "
    "is right if rewards are lost regardless of their value.",
    "fail": "There is no verdict while a reward is missing.",
}


def rewards_in_words(settings: Settings) -> tuple[str, ...]:
    """Which rewards count, and as what."""
    good = "Larger" if settings.direction == "maximize" else "Smaller"
    window = "Rewards count whenever they come."
    if settings.reward_window is not None:
        grace = settings.reward_grace
        arriving = f"and arrive at most {span(grace)} after that" if grace else "and arrive by then"
        window = (
            f"Rewards count if they happen within {span(settings.reward_window)} {arriving}; later "
            "ones are refused."
        )
    if settings.reward_window is not None and settings.missing == "fail":
        window = (
            f"Rewards are expected within {span(settings.reward_window)}; later ones count, too."
        )
    ends = (
        "No range of possible rewards was declared."
        if settings.reward_range is None
        else f"Rewards lie between {number(settings.reward_range[0])} and "
        f"{number(settings.reward_range[1])}; others are refused."
    )
    return (f"{good} rewards are better.", window, MISSING[settings.missing], ends)


def announcement(card: Scorecard) -> str:
    """What is worth saying aloud when it changes: who leads, how sure that is, failing checks."""
    if unhealthy := _unhealthy(card):
        return unhealthy
    return "" if card.verdict is None else _standing(card, card.verdict, amounts=False)


def since(report: DriftReport, moved: Floats) -> date:
    """The day from which on values of days differ most from those before.

    moved : (P,) the values; the best split of their weighted squares
    """
    weights = report.rounds.astype(np.float64)
    sums, counts = np.cumsum(weights * moved), np.cumsum(weights)
    before, n = sums[:-1] / counts[:-1], counts[:-1]
    m = counts[-1] - n
    after = (sums[-1] - sums[:-1]) / m
    split = int(np.argmax(n * m * (after - before) ** 2))
    return date.fromisoformat(report.periods[split + 1])


def _guarded(verdict: Verdict) -> str:
    """Which guardrails the recommended variant breaks, if any."""
    broken = [
        one.name
        for one in verdict.metrics
        if one.metric.role == "guardrail" and verdict.name in one.broken
    ]
    return f"But {listed(broken)} got worse by more than is allowed." if broken else ""


def _progress(card: Scorecard) -> str:
    status = card.status
    if card.status.total_assigned >= status.budget or card.policy_ended:
        return f"After all {card.status.total_assigned:,} visits"
    so_far = f"after {card.status.total_assigned:,} of {status.budget:,} visits"
    word = {"paused": "Paused ", "stopped": "Stopped ", "archived": "Stopped "}
    return f"{word[status.state]}{so_far}" if status.state in word else so_far.capitalize()


def _standing(card: Scorecard, verdict: Verdict, amounts: bool = True) -> str:
    """Who leads or beats the control, by which amounts if they are wanted, and how sure that is."""
    labels, K = dict(zip(card.names, card.labels, strict=True)), card.size
    name = labels[verdict.name]
    final = card.settled and not verdict.caution
    unknown = not np.isfinite(verdict.intervals[verdict.row]).all()
    if unknown and not np.isfinite(verdict.gap_intervals).all():
        few = "that is too little to tell" if card.ended else "it is too early to tell"
        return f"{name} is ahead, but {few} which is best."
    if not verdict.anytime and not final:
        return f"{name} leads; how sure that is can be said only at the end."
    known = np.isfinite(verdict.estimates)
    dropped = {one for one, there in zip(card.names, known, strict=True) if not there}
    others = [one for one in verdict.plausible if one != verdict.name and one not in dropped]
    gone = f" {counted(len(dropped), 'was', 'were')} dropped on the way." if dropped else ""
    unit = card.settings.primary.difference_unit
    against = compare_with_control(verdict, card.settings.direction, unit)
    if against is not None and verdict.shown is None:
        return _against_control(card.labels, verdict, against, amounts) + gone
    rivals = [labels[one] for one in others]
    said = _sure(name, rivals, verdict.others, K - len(dropped), final, card.ended) + gone
    if gone:
        said = said.replace("is the best;", "is the best of those measured to the end;")
    if against is not None and against.better[verdict.row]:
        by = f" by {against.amount(verdict.row)}" if amounts else ""
        said += f" It beats {verdict.control}{by}."
    return said


def _against_control(
    labels: Sequence[str], verdict: Verdict, against: Comparison, amounts: bool
) -> str:
    """Who beats the control and by how much, who is worse, and who does not differ clearly."""

    def by(k: int) -> str:
        return f" by {against.amount(k)}" if amounts else ""

    control, known = labels[against.control], ~np.isnan(verdict.estimates)
    groups = [against.better & known, against.worse & known, against.unclear & known]
    better, worse, unclear = (np.flatnonzero(group).tolist() for group in groups)
    if better:
        best = max(better, key=lambda k: float(against.lifts[k]))
        lead = verdict.row if verdict.row in better else best
        better.remove(lead)
        said = [f"{labels[lead]} beats {control}{by(lead)}"]
    elif verdict.row in unclear:
        unclear.remove(verdict.row)
        ahead = f"{labels[verdict.row]} is ahead of {control}{by(verdict.row)}"
        said = [f"{ahead}, which is not clear"]
    elif unclear:
        said = [f"{control} has the best estimate"]
    else:
        return f"no other variant beats {control}."
    left = len(better) + len(worse) + len(unclear)
    for group, one, many in (
        (better, "beats it, too", "beat it, too"),
        (worse, "is worse", "are worse"),
        (
            unclear,
            f"does not differ clearly from {control}",
            f"do not differ clearly from {control}",
        ),
    ):
        if group:
            which = _some([labels[k] for k in group], len(group) == left)
            said.append(f"{which} {one if len(group) == 1 else many}")
            left -= len(group)
    return f"{'; '.join(said)}."


def _some(names: Sequence[str], rest: bool) -> str:
    """Some variants by name; by number if they are many, or several and all the rest."""
    if rest and len(names) > 1:
        words = {2: "two", 3: "three", 4: "four", 5: "five"}
        return f"the other {words.get(len(names), f'{len(names):,}')}"
    return listed(names) if len(names) <= FEW else f"{len(names):,} variants"


def _sure(name: str, others: list[str], more: int, K: int, final: bool, ended: bool) -> str:
    """Who leads, and who of the K that were measured to the end may be as good.

    more : how many of these are not among the others that have names
    final : whether no reward may come any more; ended : whether no visit may
    """
    if not others and not more:
        rest = "the other one is" if K == 2 else f"the other {K - 1:,} are"
        if K == 1:
            return f"{name} is left."
        return (
            f"{name} is the best; {rest} ruled out."
            if final
            else f"{name} leads, and {rest} ruled out already."
        )
    ahead = "has the best estimate" if final else "leads"
    if len(others) + more == K - 1 and K > 2:
        no = "no other is ruled out" if ended else "it is too early to rule out any other"
        return f"{name} {ahead}, but {no}."
    if len(others) + more <= FEW and not more:
        verb = "may be as good" if ended else "can still win"
        return f"{name} {ahead}; {listed(others)} {verb}."
    verb = "may be the best" if ended else "can still win"
    return f"{name} {ahead}; {len(others) + more + 1:,} of {K:,} variants {verb}."


def _unhealthy(card: Scorecard) -> str:
    """That nothing must be decided yet, and what to look at, if a health check fails."""
    findings = () if card.health is None else card.health.findings
    failing = [f"{one.explanation} {one.advice}" for one in findings if one.status == "fail"]
    return f"not healthy, do not decide yet. {' '.join(failing)}".strip() if failing else ""


def _drifted(report: DriftReport, by_day: bool) -> str:
    if report.gaps_move:
        k = int(np.argmin(report.arm_p_values))
        moved = report.estimates[:, k] - report.averages
        return (
            f"Differences between variants have changed{_when(report, moved, by_day)}; the verdict "
            "is about the average over the whole test."
        )
    if report.level_moves:
        moved = report.averages
        return (
            f"Rewards have drifted{_when(report, moved, by_day)}, for all variants alike; the "
            "comparison is not affected."
        )
    return ""


def _when(report: DriftReport, moved: Floats, by_day: bool) -> str:
    if not by_day or not np.isfinite(moved).all():
        return " over time"
    day = since(report, moved)
    return f", most clearly since {day:%A} {day.day} {day:%b}"
