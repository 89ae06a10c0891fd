"""Decisions: ledgers of the segments of a live test, which of them end, and which one opens next.

Decisions, verdicts and pages all read ledgers. A `Session` adds to its own ledgers; `build_ledger`
computes those of an `Experiment` from the sums in its storage.

Decisions are pure functions of ledgers, or of a snapshot and the time. Any process may
decide, and the storage accepts the first decision; a replay of the log reaches the same ones. The
order of a decision: the policy observes complete segments; a segment that only carried on must end
with its block; a segment opens if positions are needed.

While rewards of earlier segments are missing, the next allocation rests on a temporary state: the
policy's own, updated with the rewards that have come so far (`early_sums`). If a policy cannot use
them, or hardly any reward has come, the current allocation goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.covariates import Moments, Slopes, adjust_stats, level_variance
from steadyarm.designs.rounding import Allocation, exact_allocation
from steadyarm.errors import BudgetSpentError, InvalidInputError, RewardsPendingError
from steadyarm.estimators import fill_missing, rewards_so_far
from steadyarm.live.settings import Settings
from steadyarm.live.units import moments_in
from steadyarm.policies import Policy, State
from steadyarm.policies.ips import IPSPolicy, IPSState
from steadyarm.segments import (
    CACHED,
    Segment,
    SegmentStats,
    columns_between,
    count_drawn_together,
)
from steadyarm.storages.records import (
    POSITIONS,
    Decision,
    EarlySums,
    Progress,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Tally,
)

BUFFER = 1024  # positions drawn ahead at a time

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(eq=False)
class SegmentLedger:
    """One segment of a live test: its assignments and the sums of its rewards.

    Numbers by arm have the segment's columns, m of them.

    Attributes
    ----------
    index : the index of the segment in its test
    stats : sums of the recorded rewards, as the policy maximizes them
    carried_on : opened with an old allocation, because rewards of earlier segments were missing
    superseded : carried on, and they have come; it ends with its block
    observed : the policy has observed its sums
    used : positions assigned so far
    assigned : (m,) how often each arm was assigned
    forgotten : (m,) of these, how many rewards will never come
    excluded : (m,) excluded assignments, which no other number counts
    zeros : recorded rewards that never came: with missing="zero" each of these counts as a zero
    unsettled : further events may still change recorded rewards
    last : time of the last assignment, in microseconds since 1970; None without a clock
    moments : sums of the units' covariates, with rewards as in `stats`; None without covariates
    opened : when the segment was opened, likewise
    level : if rewards are adjusted for covariates, the variance of what these say of all arms alike
    """

    index: int
    segment: Segment
    stats: SegmentStats
    carried_on: bool = False
    superseded: bool = False
    observed: bool = False
    used: int = 0
    assigned: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    forgotten: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    excluded: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    zeros: int = 0
    last: int | None = None
    opened: int | None = None
    unsettled: bool = False
    moments: Moments | None = None
    level: float = 0.0
    _ahead: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)

    def __post_init__(self) -> None:
        for name in ("assigned", "forgotten", "excluded"):
            if not len(getattr(self, name)):
                setattr(self, name, np.zeros(self.stats.counts.shape[1], dtype=np.int64))

    @property
    def rounds(self) -> int:
        """Positions of the segment."""
        return int(self.segment.rounds[0])

    @property
    def recorded(self) -> int:
        """Rewards recorded."""
        return int(self.stats.counts.sum())

    @property
    def missing(self) -> Counts:
        """(m,) assignments without a reward, whether it may still come or not."""
        without: Counts = self.assigned - self.stats.counts[0]
        return without

    @property
    def waiting(self) -> int:
        """Assignments whose reward may still come."""
        return int((self.missing - self.forgotten).sum())

    @property
    def exhausted(self) -> bool:
        """Whether every position was assigned."""
        return self.used >= self.rounds

    @property
    def complete(self) -> bool:
        """Whether every position was assigned, and no reward may come any more."""
        return self.exhausted and not self.waiting and not self.unsettled

    def assign(self, seed: int, z: Floats | None = None) -> tuple[int, float]:
        """Assign the next position: its arm, and the probability with which it was drawn.

        z : covariates of the unit, if the test has any
        """
        buffer = self.rounds if self.segment.order == "shuffled" else BUFFER
        position = self.used % buffer
        if position == 0 or not len(self._ahead):
            first = self.used - position
            last = min(first + buffer, self.rounds)
            self._ahead = columns_between(self.segment, seed, self.index, first, last)
        column = int(self._ahead[position])
        self.used += 1
        self.assigned[column] += 1
        if self.moments is not None and z is not None:
            self.moments.assign(column, z)
        return self.segment.arm_at(column), float(self.segment.weights[0, column])

    def record(self, arm: int, reward: float, z: Floats | None = None) -> None:
        """Count a reward; z are the covariates of its unit, if the test has any."""
        assert self.stats.squares is not None
        column = self.segment.column_of(arm)
        self.stats.counts[0, column] += 1
        self.stats.sums[0, column] += reward
        self.stats.squares[0, column] += reward * reward
        if self.moments is not None and z is not None:
            self.moments.record(column, z, reward)

    def forget(self, arm: int) -> None:
        """Count a reward that will never come."""
        self.forgotten[self.segment.column_of(arm)] += 1

    def supersede(self) -> None:
        """Let the segment end with its block, so that a new allocation can follow."""
        self.segment = self.segment.cut_after(self.used)
        self.superseded = True

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only."""
        assert self.stats.squares is not None
        return {
            "index": self.index,
            **self.segment.to_dict(),
            "carried_on": self.carried_on,
            "superseded": self.superseded,
            "used": self.used,
            "assigned": self.assigned.tolist(),
            "forgotten": self.forgotten.tolist(),
            "counts": self.stats.counts[0].tolist(),
            "sums": self.stats.sums[0].tolist(),
            "squares": self.stats.squares[0].tolist(),
            **({} if self.moments is None else {"moments": self.moments.to_dict()}),
        }

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], arms: int, observed: bool = False, covariates: int = 0
    ) -> Self:
        """The ledger that `to_dict` wrote of a test with so many arms.

        covariates : the covariates of its units, "known" included; 0 if the test has none
        """
        counts, assigned, forgotten = (
            np.array(data[name], dtype=np.int64) for name in ("counts", "assigned", "forgotten")
        )
        sums, squares = (np.array(data[name], dtype=np.float64) for name in ("sums", "squares"))
        segment, moments = Segment.from_dict(data).check(arms), None
        if covariates:
            moments = Moments.from_dict(data["moments"], segment.columns, covariates)
        return cls(
            data["index"],
            segment,
            SegmentStats(counts[None], sums[None], squares[None]),
            carried_on=data["carried_on"],
            superseded=data["superseded"],
            observed=observed,
            used=data["used"],
            assigned=assigned,
            forgotten=forgotten,
            moments=moments,
        )


def build_ledger(
    settings: Settings,
    record: SegmentRecord,
    tally: Tally,
    given_up: bool,
    series: Iterable[SeriesSums] = (),
) -> SegmentLedger:
    """The ledger of a stored segment.

    No reward is expected of excluded assignments, and none is filled in for them.

    given_up : no reward may come any more, so that missing ones count as `Settings.missing` says
    series : sums of covariates of the same visits, if there are covariates
    """
    stats = tally.stats()
    assigned = np.array(tally.assigned, dtype=np.int64)
    forgotten, zeros = np.array(tally.excluded, dtype=np.int64), 0
    if given_up and settings.missing == "zero":
        stats = replace(stats, counts=(assigned - forgotten)[None])
        zeros = tally.waiting
    elif given_up:
        forgotten = assigned - stats.counts[0]
    moments = None
    if settings.covariates:
        moments = moments_in(settings.covariates, settings.missing, series, tally, given_up)
    if settings.direction == "minimize":
        stats, moments = stats.negate(), None if moments is None else moments.negate()
    return SegmentLedger(
        index=record.index,
        segment=record.segment,
        stats=stats,
        carried_on=record.carried_on,
        superseded=record.superseded,
        observed=record.closed is not None,
        used=tally.total_assigned,
        assigned=assigned,
        forgotten=forgotten,
        zeros=zeros,
        last=tally.last,
        opened=record.opened,
        unsettled=settings.keyed and not given_up,
        moments=moments,
    )


# Decisions

FEWEST = 2  # rewards so far of each variant, on average, from which an allocation rests on them
MOST_EARLY = 20_000  # numbers that are stored with a segment whose allocation rests on them


@dataclass(frozen=True, eq=False)
class Transition:
    """The decision that follows from the ledgers of a test.

    Attributes
    ----------
    state : the policy's, after the segments in `closed`
    closed : segments that the policy has now observed, in the order of their opening
    superseded : the segment that must end with its block; None for none
    opened : the segment to open; None for none
    carried_on : whether it goes on with the current allocation
    early : rewards so far of incomplete segments, if `opened` rests on them
    slopes : the slopes of the covariates, after the segments in `closed`; None without covariates
    """

    state: State
    closed: tuple[SegmentLedger, ...]
    superseded: SegmentLedger | None = None
    opened: Segment | None = None
    carried_on: bool = False
    early: tuple[EarlySums, ...] | None = None
    slopes: Slopes | None = None


def transition(
    settings: Settings,
    state: State,
    ledgers: Iterable[SegmentLedger],
    current: SegmentLedger | None,
    spare: int,
    need: bool,
    slopes: Slopes | None = None,
    follow: bool = False,
) -> Transition | None:
    """Compute the decision to make now; None if there is none.

    ledgers : of all segments that the policy has not observed, in the order of their opening
    current : the one that was opened last; None if the policy has observed it
    spare : rounds of the budget that belong to no segment yet
    need : a position is needed, and `current` has none left
    slopes : of the covariates, from the segments that the policy has observed; None for none
    follow : whether the next segment opens as soon as all others are closed
    """
    ledgers = tuple(ledgers)
    closed = tuple(ledger for ledger in ledgers if ledger.complete)
    seen, slopes = adjust_ledgers(closed, slopes)
    state = state_after(settings.policy, state, seen)
    if current in closed:
        current = None
    if closed and current is not None and current.carried_on and not current.superseded:
        return Transition(state, closed, superseded=current, slopes=slopes)
    only_closed = Transition(state, closed, slopes=slopes) if closed else None
    if not need:
        if only_closed is None or not follow or len(closed) < len(ledgers):
            return only_closed
        try:
            return replace(only_closed, opened=next_segment(settings, state, None, spare))
        except BudgetSpentError:
            return only_closed
    waiting = [ledger for ledger in ledgers if ledger not in closed]
    early = early_sums(settings, waiting) if spare > 0 else None
    if early is not None:
        segments = {ledger.index: ledger.segment for ledger in waiting}
        scratch = state_with(settings, state, segments, early)
        opened = next_segment(settings, state, None, spare, scratch)
        return Transition(state, closed, opened=opened, early=early, slopes=slopes)
    carrying = None if current is None or current.superseded else current.segment
    opened = next_segment(settings, state, carrying, spare)
    return Transition(state, closed, opened=opened, carried_on=carrying is not None, slopes=slopes)


def next_segment(
    settings: Settings,
    state: State,
    carrying: Segment | None,
    spare: int,
    scratch: State | None = None,
) -> Segment:
    """The segment that opens next.

    carrying : the last segment, if its rewards are still missing: its allocation is carried on
    spare : what is left of the budget
    scratch : the state with rewards so far, if the allocation rests on them, too. The segment is
        then a sixtieth of the budget long, even if the policy decides after every round.
    """
    policy, budget = settings.policy, settings.budget
    if spare <= 0:
        raise BudgetSpentError(
            f"all {budget} assignments of the budget have been made; report missing rewards and "
            "read the recommendation."
        )
    if carrying is not None:
        going_on = None if policy.waits else carrying.continue_blocks(spare)
        if going_on is None:
            raise RewardsPendingError(
                f"{why_it_waits(policy)}; some are still missing. Report them, or use a policy "
                "that does not wait, such as Steady."
            )
        segment = going_on
    else:
        planned = policy.next_segment(state)
        if planned is None:
            raise BudgetSpentError(
                f"{policy.name} has ended after {budget - spare} of {budget} assignments; read "
                "the recommendation."
            )
        if scratch is not None:
            planned = early_segment(policy, state, scratch, planned)
        segment = settings.mix_shares(planned.check(settings.arms.size))
    if scratch is not None:
        segment = segment.lasting(segment.part_length(budget))
    elif policy.unbiased:
        segment = next(segment.parts(budget))
    return segment.lasting(min(int(segment.rounds[0]), spare))


def early_sums(
    settings: Settings, waiting: Sequence[SegmentLedger]
) -> tuple[EarlySums, ...] | None:
    """Rewards so far of segments that wait for more, for the next allocation.

    All variants of a segment were assigned at the same times, so that their rewards so far have
    the same ages, and scores by inverse propensities compare them fairly. What has not come yet
    counts as zero where that is what a missing reward counts as, else not at all. None if the
    policy cannot use it (its estimate must weigh by propensities, of a set of arms that is not
    large), or if too few rewards have come. They are not adjusted for covariates.

    waiting : the segments in the order of their opening
    """
    if not isinstance(settings.policy, IPSPolicy) or settings.policy.plays_few(settings.arms):
        return None
    zero, known, rewards, most = settings.missing == "zero", list[EarlySums](), 0, 0
    for ledger in waiting:
        counts = ledger.assigned - ledger.forgotten if zero else ledger.stats.counts[0]
        played = int(np.count_nonzero(ledger.segment.weights))
        if counts.sum() < played:
            continue  # too few to compare variants
        assert ledger.stats.squares is not None
        sums, squares = ledger.stats.sums[0].tolist(), ledger.stats.squares[0].tolist()
        known.append(EarlySums(ledger.index, *map(tuple, (counts.tolist(), sums, squares))))
        rewards, most = rewards + ledger.recorded, max(most, played)
    numbers = sum(3 * len(sums.counts) for sums in known)
    return tuple(known) if FEWEST * most <= rewards and 0 < numbers <= MOST_EARLY else None


def state_with(
    settings: Settings, state: State, segments: Mapping[int, Segment], early: Iterable[EarlySums]
) -> State:
    """The policy's state, and rewards so far of segments that wait for others; see `early_sums`.

    segments : those of `early`, by index
    """
    policy = settings.policy
    for sums in early:
        assert isinstance(policy, IPSPolicy)
        assert isinstance(state, IPSState)
        segment = segments[sums.segment]
        X = policy.features(settings.arms, segment.arms)
        stats = SegmentStats(*(np.array([numbers]) for numbers in sums[1:]))
        state = policy.observe(state, *rewards_so_far(X, segment, stats, state.theta))
    return state


def early_segment(policy: Policy[Any], state: State, scratch: State, planned: Segment) -> Segment:
    """The segment that follows from complete segments and from rewards so far together.

    A variant whose rewards take longer than those of others looks worse at first than it is.
    Therefore the allocation of complete segments keeps a part: half of the share that segments
    still waiting have in all rounds. So rewards so far can at most halve a variant's share while
    nothing is complete, and decide alone once hardly any are missing.

    state : the state of complete segments; scratch : with rewards so far; both may be batches
    planned : what follows from `state` alone. Its reference stays, which predicts whole rewards
    """
    early = policy.next_segment(scratch)
    if early is None or early.columns != planned.columns or not isinstance(policy, IPSPolicy):
        return planned
    share = 0.5 + 0.5 * (state.played / np.maximum(scratch.played, 1))[:, None]
    weights = share * early.weights + (1 - share) * planned.weights
    if planned.order == "blocks":
        X = policy.features(state.arms)
        weights = exact_allocation(X, Allocation(weights), planned.block).weights
    return replace(planned, weights=weights)


def why_it_waits(policy: Policy[Any]) -> str:
    """Why no further arm can be assigned before the missing rewards are known."""
    if policy.waits:
        return f"{policy.name} decides only when all rewards of an epoch are known"
    return (
        f"{policy.name} plays each variant a fixed number of times, and its plan has been assigned "
        "as a whole; whether anything follows depends on its rewards"
    )


def adjust_ledgers(
    ledgers: Iterable[SegmentLedger], slopes: Slopes | None
) -> tuple[list[SegmentLedger], Slopes | None]:
    """Ledgers whose rewards are adjusted for covariates, and what slopes are fitted from next.

    Each is adjusted with slopes from those before it and from what `slopes` remembers. Ledgers
    without covariates, or without a reward, stay as they are.

    slopes : None if the test has no covariates
    """
    results = []
    for ledger in ledgers:
        seen, moments = ledger, ledger.moments
        if slopes is not None and moments is not None and ledger.recorded:
            beta = slopes.fit(moments)
            stats, level = adjust_stats(ledger.stats, moments, beta), level_variance(moments, beta)
            seen = replace(ledger, stats=stats, level=float(level[0]))
            slopes = slopes.after(ledger.stats, moments)
        results.append(seen)
    return results, slopes


def state_after(policy: Policy[Any], state: State, ledgers: Iterable[SegmentLedger]) -> State:
    """The policy's state after further segments; those without a reward leave it as it is.

    Each is read by itself, so that the state does not depend on which of them came together. If
    the test has covariates, ledgers are those that `adjust_ledgers` returns.
    """
    for ledger in ledgers:
        for segment, stats in fill_in_missing(policy, state.arms, [ledger]):
            state = policy.observe(state, segment, stats)
    return state


def fill_in_missing(
    policy: Policy[Any], arms: ArmSet, ledgers: Iterable[SegmentLedger]
) -> list[tuple[Segment, SegmentStats]]:
    """Consecutive segments as the policy's estimator reads them, missing rewards filled in.

    Segments without a single reward are left out.
    """
    rewarded = [ledger for ledger in ledgers if ledger.recorded]
    if not isinstance(policy, IPSPolicy):
        return [(ledger.segment.lasting(ledger.recorded), ledger.stats) for ledger in rewarded]
    pieces = []
    last, X = None, np.empty((0, 0))
    for ledger in rewarded:
        played = ledger.segment.arms
        if last is None or played is not last[0]:
            last, X = (played,), policy.features(arms, played)
        segment = ledger.segment.in_blocks()  # a part of a shuffled one is no shuffled one
        pieces.append((X, segment, ledger.stats, ledger.missing[None]))
    return fill_missing(pieces) if pieces else []


# Experiments in a storage


def first_state(settings: Settings) -> dict[str, Any]:
    """The policy's state before the first segment, as it is stored."""
    start = settings.policy.start(settings.arms, settings.budget, trials=1, seed=settings.seed)
    slopes = first_slopes(settings)
    return {
        "state": start.to_dict(),
        "rounds": 0,
        **({} if slopes is None else {"slopes": slopes.to_dict()}),
    }


def check_servable(settings: Settings, state: State) -> None:
    """Refuse a budget whose positions no storage can draw; `state` is the policy's first."""
    policy, budget = settings.policy, settings.budget
    if budget > POSITIONS:
        raise InvalidInputError(
            f"budget is {budget:,}; expected at most {POSITIONS:,}. Run several tests one after "
            "the other instead."
        )
    first = policy.next_segment(state)
    if first is None or first.trials != 1:
        return
    together = count_drawn_together(first)
    most = CACHED // np.min_scalar_type(first.columns - 1).itemsize
    if together > most:
        raise InvalidInputError(
            f"budget is {budget:,}, of which {policy.name} assigns {together:,} in one random "
            f"order that is kept in memory; expected at most {most:,}. Choose a smaller budget, "
            "or a policy with shorter blocks, such as Steady."
        )


def load_state(settings: Settings, stored: Any) -> State:
    """The policy's state as it was stored."""
    state: State = settings.policy.state_type.from_dict(stored["state"], settings.arms)
    return state


def first_slopes(settings: Settings) -> Slopes | None:
    """The slopes before the first segment, as they are stored; None without covariates."""
    return Slopes.none(1, 1 + len(settings.covariates)) if settings.covariates else None


def load_slopes(settings: Settings, stored: Any) -> Slopes | None:
    """The sums from which slopes are fitted, as they were stored; None without covariates."""
    if not settings.covariates:
        return None
    return Slopes.from_dict(stored["slopes"], 1 + len(settings.covariates))


def progress_of(record: SegmentRecord, tally: Tally) -> Progress:
    """The progress of a segment."""
    done = tally.total_rewarded + tally.total_excluded
    return Progress(record.index, record.rounds, tally.total_assigned, done, tally.last)


def is_over(settings: Settings, part: Progress, now: int) -> bool:
    """Whether all of a segment's rewards are in, or given up because none may arrive any more."""
    if part.assigned < part.rounds or part.last is None:
        return False
    if part.done == part.assigned and not settings.keyed:
        return True
    patience = settings.patience
    return patience is not None and settings.missing != "fail" and now > part.last + patience


def decide(settings: Settings, snapshot: Snapshot, now: int, need: bool) -> Decision | None:
    """Compute the decision to store now, if any; see `transition`.

    The decision that closes the last segment of a running experiment also opens the next one.

    A segment that is superseded is a decision of its own: where its block ends is known only once
    the decision is stored.
    """
    stored, pairs = snapshot.experiment.policy_state, snapshot.segments
    series = snapshot.series_by_segment()
    ledgers: Sequence[SegmentLedger] = [
        build_ledger(
            settings,
            record,
            tally,
            is_over(settings, progress_of(record, tally), now),
            series.get(record.index, ()),
        )
        for record, tally in pairs
        if record.closed is None
    ]
    current = ledgers[-1] if pairs and pairs[-1][0].closed is None else None
    rounds = int(stored["rounds"])
    spare = settings.budget - rounds - sum(ledger.rounds for ledger in ledgers)
    state, slopes = load_state(settings, stored), load_slopes(settings, stored)
    head = snapshot.experiment
    follow = head.state == "running" and head.outside is None
    following = transition(settings, state, ledgers, current, spare, need, slopes, follow)
    if following is None:
        return None
    tallies = {record.index: tally for record, tally in pairs}
    opened = None
    if following.opened is not None:
        opened = SegmentRecord(
            index=pairs[-1][0].index + 1 if pairs else 0,
            segment=following.opened,
            carried_on=following.carried_on,
            superseded=False,
            policy_version=snapshot.experiment.observed + len(following.closed),
            opened=now,
            early=following.early,
        )
    rounds += sum(ledger.rounds for ledger in following.closed)
    after: dict[str, Any] = {"state": following.state.to_dict(), "rounds": rounds}
    if following.slopes is not None:
        after["slopes"] = following.slopes.to_dict()
    return Decision(
        after,
        tuple((ledger.index, tallies[ledger.index]) for ledger in following.closed),
        supersede=None if following.superseded is None else following.superseded.index,
        opened=opened,
        series=snapshot.series,
    )
