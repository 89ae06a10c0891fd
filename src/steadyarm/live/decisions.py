"""Decisions: which segments of a live test end, and which one opens next.

Everything here is a pure function of ledgers, or of a snapshot and the time. Any process may
decide, and the storage accepts the first decision; a replay of the log reaches the same ones. The
order of a decision: the policy observes complete segments; a segment that only carried on must end
with its block; a segment opens if positions are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.errors import BudgetSpentError, InvalidInputError, RewardsPendingError
from steadyarm.estimators import fill_missing
from steadyarm.live.ledger import SegmentLedger, ledger_of
from steadyarm.live.settings import Settings
from steadyarm.policies import Policy, State
from steadyarm.policies.ips import IPSPolicy
from steadyarm.segments import CACHED, Segment, SegmentStats, drawn_together
from steadyarm.storages.records import (
    POSITIONS,
    Decision,
    Progress,
    SegmentRecord,
    Snapshot,
    Tally,
)

PIECES, LEAST_PART = 60, 10  # a live segment is cut into parts this short, to see drift


@dataclass(frozen=True, eq=False)
class Transition:
    """What follows from the ledgers of a test.

    Attributes
    ----------
    state : the policy's, after the segments in `closed`
    closed : segments that the policy has now observed, in the order of their opening
    superseded : the segment that must end with its block; None for none
    opened : the segment to open; None for none
    carried_on : whether it goes on with the current allocation
    """

    state: State
    closed: tuple[SegmentLedger, ...]
    superseded: SegmentLedger | None = None
    opened: Segment | None = None
    carried_on: bool = False


def transition(
    settings: Settings,
    state: State,
    ledgers: Iterable[SegmentLedger],
    current: SegmentLedger | None,
    spare: int,
    need: bool,
) -> Transition | None:
    """What to do now; None if there is nothing to do.

    ledgers : of all segments that the policy has not observed, in the order of their opening
    current : the one that was opened last; None if the policy has observed it
    spare : rounds of the budget that belong to no segment yet
    need : a position is needed, and `current` has none left
    """
    closed = tuple(ledger for ledger in ledgers if ledger.complete)
    state = state_after(settings.policy, state, closed)
    if current in closed:
        current = None
    if closed and current is not None and current.carried_on and not current.superseded:
        return Transition(state, closed, superseded=current)
    if not need:
        return Transition(state, closed) if closed else None
    carrying = None if current is None or current.superseded else current.segment
    opened = next_segment(settings, state, carrying, spare)
    return Transition(state, closed, opened=opened, carried_on=carrying is not None)


def next_segment(settings: Settings, state: State, carrying: Segment | None, spare: int) -> Segment:
    """The segment that opens next.

    carrying : the last segment, if its rewards are still missing: its allocation is carried on
    spare : what is left of the budget
    """
    policy, budget = settings.policy, settings.budget
    if spare <= 0:
        raise BudgetSpentError(
            f"all {budget} assignments of the budget have been made; report the rewards that are "
            "missing and ask for the recommendation."
        )
    if carrying is not None:
        going_on = None if policy.waits else carrying.continued(spare)
        if going_on is None:
            raise RewardsPendingError(
                f"{why_it_waits(policy)}; some are still missing. Report them, or use a policy "
                "that need not wait, such as Steady."
            )
        segment = going_on
    else:
        planned = policy.next_segment(state)
        if planned is None:
            raise BudgetSpentError(
                f"{policy.name} has ended after {budget - spare} of {budget} assignments; ask for "
                "the recommendation."
            )
        segment = settings.mixed(planned.checked(settings.arms.size))
    if policy.unbiased:
        segment = _part_of(segment, budget)
    return segment.lasting(min(int(segment.rounds[0]), spare))


def _part_of(segment: Segment, budget: int) -> Segment:
    """The first of equal parts of a long segment, in whole blocks: their sums show drift.

    A shuffled segment stays whole, since its parts would not have its exact numbers of plays.
    """
    if segment.order == "shuffled":
        return segment
    block = segment.block if segment.order == "blocks" else 1
    most = max(1, round(max(LEAST_PART, budget / PIECES) / block))
    blocks = -(-int(segment.rounds[0]) // block)
    parts = -(-blocks // most)
    return segment.lasting(min(-(-blocks // parts) * block, int(segment.rounds[0])))


def why_it_waits(policy: Policy[Any]) -> str:
    """Why no further arm can be assigned before the missing rewards are known."""
    if policy.waits:
        return f"{policy.name} decides only when all rewards of an epoch are known"
    return (
        f"{policy.name} plays each variant a fixed number of times, and its plan has been assigned "
        "as a whole; whether anything follows depends on its rewards"
    )


def state_after(policy: Policy[Any], state: State, ledgers: Iterable[SegmentLedger]) -> State:
    """The policy's state after further segments; those without a reward leave it as it is.

    Each is read by itself, so that the state does not depend on which of them came together.
    """
    for ledger in ledgers:
        for segment, stats in as_seen(policy, state.arms, [ledger]):
            state = policy.observe(state, segment, stats)
    return state


def as_seen(
    policy: Policy[Any], arms: ArmSet, ledgers: Iterable[SegmentLedger]
) -> list[tuple[Segment, SegmentStats]]:
    """Consecutive segments as the policy's estimator reads them, missing rewards filled in.

    Segments without a single reward are left out.
    """
    rewarded = [ledger for ledger in ledgers if ledger.recorded]
    if not isinstance(policy, IPSPolicy):
        return [(ledger.segment.lasting(ledger.recorded), ledger.stats) for ledger in rewarded]
    found = []
    last, X = None, np.empty((0, 0))
    for ledger in rewarded:
        played = ledger.segment.arms
        if last is None or played is not last[0]:
            last, X = (played,), policy.features(arms, played)
        segment = ledger.segment.in_blocks()  # a part of a shuffled one is no shuffled one
        found.append((X, segment, ledger.stats, ledger.missing[None]))
    return fill_missing(found) if found else []


# Experiments in a storage


def first_state(settings: Settings) -> dict[str, Any]:
    """What is stored of the policy before the first segment."""
    start = settings.policy.start(settings.arms, settings.budget, trials=1, seed=settings.seed)
    return {"state": start.to_dict(), "rounds": 0}


def check_servable(settings: Settings, state: State) -> None:
    """Refuse a budget whose positions no storage can draw; `state` is the policy's first."""
    policy, budget = settings.policy, settings.budget
    if budget > POSITIONS:
        raise InvalidInputError(
            f"budget is {budget:,}; expected at most {POSITIONS:,}, since a segment may be as long "
            "as the budget and its positions are counted in 32 bits. Run several tests one after "
            "the other instead."
        )
    first = policy.next_segment(state)
    if first is None or first.trials != 1:
        return
    together = drawn_together(first)
    most = CACHED // np.min_scalar_type(first.columns - 1).itemsize
    if together > most:
        raise InvalidInputError(
            f"budget is {budget:,}, of which {policy.name} puts {together:,} assignments into one "
            f"random order, which is drawn as a whole and kept in memory; at most {most:,} can be. "
            "Choose a smaller budget, or a policy with shorter blocks, such as Steady."
        )


def stored_state(settings: Settings, stored: Any) -> State:
    """The policy's state as it was stored."""
    state: State = settings.policy.state_type.from_dict(stored["state"], settings.arms)
    return state


def progress_of(record: SegmentRecord, tally: Tally) -> Progress:
    """How far a segment is."""
    done = tally.total_rewarded + tally.total_excluded
    return Progress(record.index, record.rounds, tally.total_assigned, done, tally.last)


def is_over(settings: Settings, part: Progress, now: int) -> bool:
    """Whether all of a segment's rewards are in, or given up because none may arrive any more."""
    if part.assigned < part.rounds or part.last is None:
        return False
    if part.done == part.assigned:
        return True
    patience = settings.patience
    return patience is not None and settings.missing != "fail" and now > part.last + patience


def decide(settings: Settings, snapshot: Snapshot, now: int, need: bool) -> Decision | None:
    """What to store now, if anything; see `transition`.

    A segment that is superseded is a decision of its own: where its block ends is known only once
    the decision is stored.
    """
    stored, pairs = snapshot.experiment.policy_state, snapshot.segments
    ledgers: Sequence[SegmentLedger] = [
        ledger_of(settings, record, tally, is_over(settings, progress_of(record, tally), now))
        for record, tally in pairs
        if record.closed is None
    ]
    current = ledgers[-1] if pairs and pairs[-1][0].closed is None else None
    rounds = int(stored["rounds"])
    spare = settings.budget - rounds - sum(ledger.rounds for ledger in ledgers)
    found = transition(settings, stored_state(settings, stored), ledgers, current, spare, need)
    if found is None:
        return None
    tallies = {record.index: tally for record, tally in pairs}
    opened = None
    if found.opened is not None:
        opened = SegmentRecord(
            index=pairs[-1][0].index + 1 if pairs else 0,
            segment=found.opened,
            carried_on=found.carried_on,
            superseded=False,
            policy_version=snapshot.experiment.observed + len(found.closed),
            opened=now,
        )
    rounds += sum(ledger.rounds for ledger in found.closed)
    return Decision(
        {"state": found.state.to_dict(), "rounds": rounds},
        tuple((ledger.index, tallies[ledger.index]) for ledger in found.closed),
        supersede=None if found.superseded is None else found.superseded.index,
        opened=opened,
    )
