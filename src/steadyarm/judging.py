"""What a live experiment concludes, and where it stands, from what is stored of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from steadyarm.answers import Status, moment
from steadyarm.decisions import first_state, is_over, piece_of, progress_of, state_of
from steadyarm.errors import RewardsPendingError
from steadyarm.inference import HealthReport, LoggedSegment, late_finding
from steadyarm.judgement import Judgement, state_after
from steadyarm.ledger import OpenSegment
from steadyarm.policies import State
from steadyarm.segments import Segment
from steadyarm.settings import Settings
from steadyarm.storages.records import DaySums, Lease, SegmentRecord, Snapshot, Tally

__all__ = ["health_of", "judge", "judge_days", "rewards_until", "status_of"]

OTHER_WAY = (
    "Rewards or visits were corrected after {policy} had left variants out; on what is known now "
    "it would have kept others, of which nothing more was seen. The verdict rests on what was "
    "known then."
)


def judge(settings: Settings, snapshot: Snapshot, now: int, strict: bool = True) -> Judgement:
    """One look at the whole test; with strict, missing="fail" refuses missing rewards."""
    ended, given_up = _standing(settings, snapshot, now)
    pieces = [
        _counted(settings, record, tally, given_up[record.index])
        for record, tally in snapshot.segments
        if tally.handed_out > tally.left_out
    ]
    return _judgement(settings, snapshot, pieces, ended, strict)


def _counted(
    settings: Settings, record: SegmentRecord, tally: Tally, given_up: bool
) -> OpenSegment:
    """A segment as it is judged: as if what was excluded had never been handed out."""
    if not tally.left_out:
        return piece_of(settings, record, tally, given_up)
    kept = record.segment.lasting(record.rounds - tally.left_out)
    piece = piece_of(settings, replace(record, segment=kept), tally.counted(), given_up)
    return replace(piece, excluded=np.array(tally.excluded, dtype=np.int64))


def judge_days(
    settings: Settings, snapshot: Snapshot, days: Iterable[DaySums], now: int, strict: bool = True
) -> tuple[Judgement, list[int]]:
    """The same of the mature segments, with a piece for what was assigned of one on one day.

    Also gives the day of each piece, by the piece's index.
    """
    whole = judge(settings, snapshot, now, strict)
    mature = {piece.index for piece in whole.mature}
    records = {record.index: record for record, _ in snapshot.segments if record.index in mature}
    parts = sorted(
        (part for part in days if part.segment in records and part.tally.counted().handed_out),
        key=lambda part: (part.day, part.segment),
    )
    pieces = []
    for index, part in enumerate(parts):
        record, handed = records[part.segment], part.tally.handed_out
        cut = replace(record, index=index, segment=record.segment.lasting(handed))
        pieces.append(_counted(settings, cut, part.tally, given_up=True))
    return replace(whole, pieces=tuple(pieces), ended=True), [part.day for part in parts]


def health_of(judgement: Judgement, snapshot: Snapshot, days: Iterable[DaySums]) -> HealthReport:
    """The health of a live test, with what storages know of rewards that came too late."""
    report = judgement.health()
    records = {record.index: record for record, _ in snapshot.segments}
    pieces = []
    for part in days:
        tally = part.tally.counted()
        if part.segment in records and (handed := tally.handed_out):
            assigned = np.array([tally.assigned])
            in_time = assigned - np.minimum(part.late, assigned)
            segment = records[part.segment].segment.lasting(handed)
            pieces.append(LoggedSegment(segment, assigned, np.array([handed]), in_time))
    if not pieces:
        return report
    late = late_finding(judgement.arms.names, pieces)
    return replace(report, findings=(*report.findings, late))


def rewards_until(settings: Settings, snapshot: Snapshot, now: int) -> int | None:
    """Until when a missing reward may still arrive: window and grace; None if none may.

    Without a window nobody knows, and where nothing may be missing no window counts.
    """
    patience = settings.patience
    if patience is None or settings.missing == "fail":
        return None
    ends = (
        tally.last + patience
        for record, tally in snapshot.segments
        if record.closed is None and tally.last is not None and tally.waiting
    )
    return max((end for end in ends if end >= now), default=None)


def status_of(settings: Settings, snapshot: Snapshot, leases: Iterable[Lease]) -> Status:
    """Where the test stands, in numbers."""
    arms, assigned, rewarded = _counts(settings, snapshot)
    return Status(
        name=snapshot.experiment.name,
        state=snapshot.experiment.state,
        created=moment(snapshot.experiment.created),
        budget=settings.budget,
        assigned=assigned,
        rewarded=rewarded,
        segments=len(snapshot.segments),
        observed=snapshot.experiment.observed,
        leased=sum(len(lease) for lease in leases),
        arms=arms,
        excluded=sum(tally.left_out for _, tally in snapshot.segments),
    )


def _counts(
    settings: Settings, snapshot: Snapshot
) -> tuple[tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]]:
    """Assignments and rewards of all variants, or of those of very many that were handed out."""
    assigned, rewarded = Counter[int](), Counter[int]()
    for record, tally in snapshot.segments:
        for column, count in enumerate(tally.assigned):
            if count:
                arm = record.segment.arm_at(column)
                assigned[arm] += count
                rewarded[arm] += tally.rewarded[column]
    large = settings.arms.large
    arms = tuple(sorted(assigned)) if large else tuple(range(settings.arms.size))
    counts = tuple(assigned[arm] for arm in arms), tuple(rewarded[arm] for arm in arms)
    return arms if large else None, *counts


def _standing(settings: Settings, snapshot: Snapshot, now: int) -> tuple[bool, dict[int, bool]]:
    """Whether neither visits nor rewards are to come, and of which segments rewards are given up.

    What is missing of a segment counts as the rule says once the segment is over, or the test has
    ended. Without a reward window only who stops the test knows that no reward is to come.
    """
    over = {
        record.index: record.closed is not None
        or is_over(settings, progress_of(record, tally), now)
        for record, tally in snapshot.segments
    }
    stopped = snapshot.experiment.state in ("stopped", "archived")
    waiting = any(tally.waiting for _, tally in snapshot.segments)
    ended = stopped or _is_spent(settings, snapshot)
    if waiting and settings.window is None and settings.missing != "fail":
        ended = stopped
    ended = ended and rewards_until(settings, snapshot, now) is None
    return ended, {index: done or ended for index, done in over.items()}


def _is_spent(settings: Settings, snapshot: Snapshot) -> bool:
    """Whether the whole budget was assigned."""
    return sum(tally.handed_out for _, tally in snapshot.segments) >= settings.budget


def _judgement(
    settings: Settings, snapshot: Snapshot, pieces: list[OpenSegment], ended: bool, strict: bool
) -> Judgement:
    if strict and settings.missing == "fail" and ended:
        _check_complete(pieces)
    state, caution = _corrected_state(settings, snapshot)
    return Judgement(
        settings.policy,
        settings.arms,
        settings.direction,
        state,
        tuple(pieces),
        ended,
        _is_spent(settings, snapshot),
        caution=caution,
        excluded=sum(tally.left_out for _, tally in snapshot.segments),
    )


def _corrected_state(settings: Settings, snapshot: Snapshot) -> tuple[State, str]:
    """The policy's state as the segments that it observed stand now; and what to mind about it.

    What a test decided on the way rests on what was known then, and its own state stays. Verdicts
    rest on what is known now. A policy that leaves variants out for good is the exception where
    it would have gone another way: nothing is known of the variants that it would have kept.
    """
    known = state_of(settings, snapshot.experiment.policy_state)
    changed = {record.index for record, tally in snapshot.segments if tally.left_out}
    changed |= set(snapshot.corrected)
    closed = sorted(
        (pair for pair in snapshot.segments if pair[0].closed is not None),
        key=lambda pair: pair[0].closed or 0,
    )
    if not any(record.index in changed for record, _ in closed):
        return known, ""
    states = [state_of(settings, first_state(settings))]
    for record, tally in closed:
        piece = [_counted(settings, record, tally, given_up=True)] if tally.counted().told else []
        states.append(state_after(settings.policy, states[-1], piece))
    if settings.policy.waits and not all(
        _would_play(settings, states[record.policy_version], record.segment)
        for record, _ in snapshot.segments
        if record.policy_version < len(states)
    ):
        return known, OTHER_WAY.format(policy=settings.policy.name)
    return states[-1], ""


def _would_play(settings: Settings, state: State, played: Segment) -> bool:
    """Whether the policy would play the same variants from that state."""
    planned = settings.policy.next_segment(state)
    if planned is None:
        return False
    planned = settings.mixed(planned.checked(settings.arms.size)).dense(settings.arms.size)
    played = played.dense(settings.arms.size)
    return np.array_equal(planned.weights > 0, played.weights > 0)


def _check_complete(pieces: list[OpenSegment]) -> None:
    if missing := sum(int(piece.missing.sum()) for piece in pieces):
        raise RewardsPendingError(
            f"{missing} rewards are missing, and the experiment was created with "
            'missing="fail"; report them. steadyarm experiment export lists which.'
        )
