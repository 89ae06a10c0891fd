"""What follows from the books of a live experiment: which segments end, which one opens.

Pure functions of a snapshot and the time: any process may decide, and the storage takes the first
decision. Replaying the log comes to the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.errors import BudgetSpentError, InvalidInputError, RewardsPendingError
from steadyarm.estimators import fill_missing
from steadyarm.live.ledger import OpenSegment, part_of, why_it_waits
from steadyarm.live.settings import Settings
from steadyarm.policies import Policy, State
from steadyarm.policies.ips import IPSPolicy
from steadyarm.segments import Segment, SegmentStats, drawn_together
from steadyarm.storages.draws import KEPT
from steadyarm.storages.records import (
    POSITIONS,
    Decision,
    Progress,
    SegmentRecord,
    Snapshot,
    Tally,
)

__all__ = [
    "as_seen",
    "decide",
    "first_state",
    "is_over",
    "next_segment",
    "observed",
    "piece_of",
    "progress_of",
    "state_after",
    "state_of",
]


def first_state(settings: Settings, servable: bool = False) -> dict[str, Any]:
    """What is stored of the policy before the first segment.

    servable : refuse a budget that no storage can hand out
    """
    start = settings.policy.start(settings.arms, settings.budget, trials=1, seed=settings.seed)
    if servable:
        _check_servable(settings, settings.policy.next_segment(start))
    return {"state": start.to_dict(), "rounds": 0}


def _check_servable(settings: Settings, first: Segment | None) -> None:
    policy, budget = settings.policy.name, settings.budget
    if budget > POSITIONS:
        raise InvalidInputError(
            f"budget is {budget:,}; expected at most {POSITIONS:,}, since a segment may be as long "
            "as the budget and its positions are counted in 32 bits. Run several tests one after "
            "the other instead."
        )
    if first is None or first.trials != 1:
        return
    together = drawn_together(first)
    most = KEPT // np.min_scalar_type(first.columns - 1).itemsize
    if together > most:
        raise InvalidInputError(
            f"budget is {budget:,}, of which {policy} puts {together:,} assignments into one "
            f"random order, which is drawn as a whole and kept in memory; at most {most:,} can be. "
            "Choose a smaller budget, or a policy with shorter blocks, such as Steady()."
        )


def state_of(settings: Settings, stored: Any) -> State:
    """The policy's state as it was stored."""
    state: State = settings.policy.state_type.from_dict(stored["state"], settings.arms)
    return state


def is_over(settings: Settings, part: Progress, now: int) -> bool:
    """Whether all of a segment's rewards are in, or given up because none may arrive any more."""
    if part.assigned < part.rounds or part.last is None:
        return False
    if part.told == part.assigned:
        return True
    patience = settings.patience
    return patience is not None and settings.missing != "fail" and now > part.last + patience


def progress_of(record: SegmentRecord, tally: Tally) -> Progress:
    """How far a segment is."""
    done = tally.told + tally.left_out
    return Progress(record.index, record.rounds, tally.handed_out, done, tally.last)


def piece_of(
    settings: Settings, record: SegmentRecord, tally: Tally, given_up: bool
) -> OpenSegment:
    """The segment as a policy reads it; if `given_up`, what is missing counts as the rule says.

    Of assignments that were excluded no reward is expected, and none is made up.
    """
    stats = tally.stats()
    assigned = np.array(tally.assigned, dtype=np.int64)
    forgotten, zeros = np.array(tally.excluded, dtype=np.int64), 0
    if given_up and settings.missing == "zero":
        stats = replace(stats, counts=(assigned - forgotten)[None])
        zeros = tally.waiting
    elif given_up:
        forgotten = assigned - stats.counts[0]
    return OpenSegment(
        index=record.index,
        segment=record.segment,
        stats=stats if settings.direction == "maximize" else stats.negated(),
        carried_on=record.carried_on,
        superseded=record.superseded,
        handed=tally.handed_out,
        assigned=assigned,
        forgotten=forgotten,
        zeros=zeros,
        last=tally.last,
        observed=record.closed is not None,
    )


def observed(settings: Settings, state: State, record: SegmentRecord, tally: Tally) -> State:
    """The policy's state after a segment that is over."""
    piece = piece_of(settings, record, tally, given_up=True)
    return state_after(settings.policy, state, [piece])


def decide(settings: Settings, snapshot: Snapshot, now: int, need: bool) -> Decision | None:
    """What to do now, if anything.

    Segments that are over are handed to the policy. One that only carried on then makes way at the
    end of its block, which is a decision of its own: where the block ends is known once it is
    stored. If positions are needed and there are none, a segment opens.
    """
    stored = snapshot.experiment.policy_state
    state, rounds = state_of(settings, stored), int(stored["rounds"])
    closed: list[tuple[int, Tally]] = []
    left: list[SegmentRecord] = []
    for record, tally in snapshot.segments:
        if record.closed is not None:
            continue
        if is_over(settings, progress_of(record, tally), now):
            state = observed(settings, state, record, tally)
            rounds += record.rounds
            closed.append((record.index, tally))
        else:
            left.append(record)
    after = {"state": state.to_dict(), "rounds": rounds}
    current = snapshot.segments[-1][0] if snapshot.segments else None
    if current is not None and current not in left:
        current = None
    if closed and current is not None and current.carried_on and not current.superseded:
        return Decision(after, tuple(closed), supersede=current.index)
    opened = None
    if need and (current is None or current.handed >= current.rounds):
        spare = settings.budget - rounds - sum(record.rounds for record in left)
        segment, carried_on = next_segment(settings, state, current, spare)
        opened = SegmentRecord(
            index=snapshot.segments[-1][0].index + 1 if snapshot.segments else 0,
            segment=segment,
            carried_on=carried_on,
            superseded=False,
            policy_version=snapshot.experiment.observed + len(closed),
            opened=now,
        )
    if not closed and opened is None:
        return None
    return Decision(after, tuple(closed), opened=opened)


def next_segment(
    settings: Settings, state: State, current: SegmentRecord | None, spare: int
) -> tuple[Segment, bool]:
    """The segment that opens after `current`, and whether it carries on with its allocation.

    current : the last segment if it is not over; None if it is, or if there is none
    spare : what is left of the budget
    """
    policy = settings.policy
    if spare <= 0:
        raise BudgetSpentError(
            f"all {settings.budget} assignments of the budget have been handed out; tell the "
            "rewards that are missing and ask for the recommendation."
        )
    if current is not None and not current.superseded:
        going_on = None if policy.waits else current.segment.continued(spare)
        if going_on is None:
            raise RewardsPendingError(
                f"{why_it_waits(policy)}; some are still missing. Tell them, or use a policy that "
                "need not wait, such as Steady()."
            )
        segment = going_on
    else:
        planned = policy.next_segment(state)
        if planned is None:
            raise BudgetSpentError(
                f"{policy.name} has ended with {spare} of {settings.budget} assignments to spare; "
                "ask for the recommendation."
            )
        segment = settings.mixed(planned.checked(settings.arms.size))
    if policy.unbiased:
        segment = part_of(segment, settings.budget)
    carried_on = current is not None and not current.superseded
    return segment.lasting(min(int(segment.rounds[0]), spare)), carried_on


def state_after(policy: Policy[Any], state: State, pieces: Iterable[OpenSegment]) -> State:
    """The policy's state after further pieces; those without a reward leave it as it is.

    Each is read by itself, so that the state does not depend on which pieces came together.
    """
    for piece in pieces:
        for segment, stats in as_seen(policy, state.arms, [piece]):
            state = policy.observe(state, segment, stats)
    return state


def as_seen(
    policy: Policy[Any], arms: ArmSet, pieces: Iterable[OpenSegment]
) -> list[tuple[Segment, SegmentStats]]:
    """Consecutive segments as the policy's estimator reads them, missing rewards filled in.

    Segments without a single reward are left out.
    """
    rewarded = [piece for piece in pieces if piece.told]
    if not isinstance(policy, IPSPolicy):
        return [(piece.segment.lasting(piece.told), piece.stats) for piece in rewarded]
    found = []
    last, X = None, np.empty((0, 0))
    for piece in rewarded:
        played = piece.segment.arms
        if last is None or played is not last[0]:
            last, X = (played,), policy.features(arms, played)
        segment = piece.segment.in_blocks()  # a part of a shuffled one is no shuffled one
        found.append((X, segment, piece.stats, piece.missing[None]))
    return fill_missing(found) if found else []
