"""What a live experiment concludes, and where it stands, from what is stored of it."""

from __future__ import annotations

from collections.abc import Iterable

from steadyarm.answers import Status, moment
from steadyarm.decisions import is_over, piece_of, progress_of, state_of
from steadyarm.errors import RewardsPendingError
from steadyarm.judgement import Judgement
from steadyarm.ledger import OpenSegment
from steadyarm.settings import Settings
from steadyarm.storages.records import Lease, Snapshot

__all__ = ["judge", "status_of"]


def judge(settings: Settings, snapshot: Snapshot, now: int, strict: bool = True) -> Judgement:
    """One look at the whole test; with strict, missing="fail" refuses missing rewards."""
    handed = sum(tally.handed_out for _, tally in snapshot.segments)
    ended = snapshot.experiment.state in ("stopped", "archived") or handed >= settings.budget
    pieces = _pieces(settings, snapshot, now, ended)
    if strict and settings.missing == "fail":
        pieces = _complete(pieces, ended)
    return Judgement(
        settings.policy,
        settings.arms,
        settings.direction,
        state_of(settings, snapshot.experiment.policy_state),
        tuple(pieces),
        ended,
    )


def status_of(settings: Settings, snapshot: Snapshot, leases: Iterable[Lease]) -> Status:
    """Where the test stands, in numbers."""
    tallies = [tally for _, tally in snapshot.segments]
    K = range(settings.arms.size)
    return Status(
        name=snapshot.experiment.name,
        state=snapshot.experiment.state,
        created=moment(snapshot.experiment.created),
        budget=settings.budget,
        assigned=tuple(sum(tally.assigned[k] for tally in tallies) for k in K),
        rewarded=tuple(sum(tally.rewarded[k] for tally in tallies) for k in K),
        segments=len(tallies),
        observed=snapshot.experiment.observed,
        leased=sum(len(lease) for lease in leases),
    )


def _pieces(settings: Settings, snapshot: Snapshot, now: int, ended: bool) -> list[OpenSegment]:
    """All segments for a verdict.

    What is missing of segments that are over counts as the rule says. Missing zeros count in the
    others, too, once the test has ended or too few are over: told rewards alone would mislead.
    """
    over = [
        record.closed is not None or is_over(settings, progress_of(record, tally), now)
        for record, tally in snapshot.segments
    ]
    sizes = [tally.handed_out for _, tally in snapshot.segments]
    few = 2 * sum(size for size, done in zip(sizes, over, strict=True) if done) < sum(sizes)
    early = settings.missing == "zero" and (ended or few)
    return [
        piece_of(settings, record, tally, done or early)
        for (record, tally), done in zip(snapshot.segments, over, strict=True)
        if tally.handed_out
    ]


def _complete(pieces: list[OpenSegment], ended: bool) -> list[OpenSegment]:
    missing = sum(piece.waiting for piece in pieces)
    complete = [piece for piece in pieces if not piece.waiting]
    if missing and (ended or not complete):
        raise RewardsPendingError(
            f"{missing} rewards are missing, and the experiment was created with "
            'missing="fail"; tell them. steadyarm experiment export lists which.'
        )
    return complete
