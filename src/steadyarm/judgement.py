"""Judgement: all that a live test says of itself, wherever its books are kept.

A function of the policy's state and of the segments: it hands nothing out and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.inference import (
    DriftReport,
    Evidence,
    Finding,
    HealthReport,
    LoggedSegment,
    Otherwise,
    drift_report,
    health_report,
    lack_of_fit,
    what_otherwise,
)
from steadyarm.ledger import OpenSegment
from steadyarm.policies import Policy, State
from steadyarm.segments import Direction
from steadyarm.validation import check_fraction
from steadyarm.verdict import (
    Verdict,
    arms_judged,
    as_seen,
    check_range,
    evidence_of,
    verdict_of,
)

__all__ = ["Judgement", "level_of_looks", "state_after"]

ON_THE_WAY = 0.2  # of the error probability: what looks before the end may spend; the end the rest

EARLY = (
    "These intervals hold for one look at the end; before the end they hold only if this is the "
    "only look that is ever taken."
)


@dataclass(frozen=True, eq=False)
class Judgement:
    """One look at a live test.

    What is said rests on *mature* visits only: on the first segments, up to the first one of which
    a visit or a reward may still come. Pending rewards are not like those that are in (a slow
    variant's purchases come last), so segments are judged whole or not at all, and nothing pending
    counts as zero. The judged segments are a prefix of the test, which is what intervals that hold
    at all looks need: they hold after every segment at once, so it does not matter why a look
    stops at one of them.

    Attributes
    ----------
    policy, arms : as the test was started with
    direction : of the rewards; sums, `least` and `largest` are what the policy maximizes
    state : the policy's, after the pieces that it has observed
    pieces : all segments that variants were assigned from, in the order of their index
    ended : neither visits nor rewards will come any more, so that all pieces are judged
    spent : the whole budget was assigned, so that the end did not depend on what was seen
    least, largest : of the rewards; None if not known, or before the first
    caution : what to mind about the state; empty if nothing
    excluded : visits that were excluded, which the pieces leave out
    """

    policy: Policy[Any]
    arms: ArmSet
    direction: Direction
    state: State
    pieces: tuple[OpenSegment, ...]
    ended: bool
    spent: bool = True
    least: float | None = None
    largest: float | None = None
    caution: str = ""
    excluded: int = 0

    @cached_property
    def mature(self) -> tuple[OpenSegment, ...]:
        """The pieces that are judged.

        Policies that leave variants out have no intervals that hold at all looks; of these all
        pieces count that wait for no reward.
        """
        if self.ended:
            return self.pieces
        if not self.policy.unbiased:
            return tuple(piece for piece in self.pieces if not piece.waiting)
        complete = [piece.observed or piece.complete for piece in self.pieces]
        return self.pieces[: complete.index(False) if False in complete else None]

    def judged(self) -> list[OpenSegment]:
        """The pieces that are judged and brought rewards."""
        return [piece for piece in self.mature if piece.told]

    @property
    def final(self) -> bool:
        """Whether this is the one look at the end that was planned."""
        done = self.policy.waits and self.policy.next_segment(self.state) is None
        return (self.ended and self.spent) or done

    @property
    def handed(self) -> int:
        """Visits assigned so far."""
        return sum(int(piece.assigned.sum()) for piece in self.pieces)

    def recommend(
        self,
        level: float = 0.95,
        anytime: bool | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> Verdict:
        """The best variant on mature visits; `Session.recommend` says what is asked."""
        check_fraction(level, "level")
        if anytime and not self.policy.unbiased:
            raise InvalidInputError(
                f"{self.policy.name} leaves variants out, so no intervals hold at all looks; use "
                "anytime=False, or a policy such as Steady()."
            )
        watched = self.policy.unbiased and not self.final if anytime is None else anytime
        used = level
        if anytime is None and self.policy.unbiased:
            used = level_of_looks(level) if watched else _level_of_end(level)
        if reward_range is not None and anytime is False:
            raise InvalidInputError(
                "reward_range is used by intervals that hold at all looks only; leave it out, or "
                "leave anytime out."
            )
        if reward_range is not None:
            check_range(reward_range, self.least, self.largest, self.direction)
        self._check_enough(self.judged())
        mature = {piece.index for piece in self.mature}
        visits = sum(int(piece.assigned.sum()) for piece in self.mature)
        zeros = sum(piece.zeros for piece in self.mature)
        missing = sum(int(piece.missing.sum()) for piece in self.mature) + zeros
        verdict = verdict_of(
            self.policy,
            self._state_so_far(),
            self.evidence() if self.policy.unbiased else None,
            self.direction,
            used,
            watched,
            reward_range if watched else None,
            as_policy=not missing and all(p.index in mature for p in self.pieces if p.observed),
        )
        last = max((piece.last for piece in self.mature if piece.last is not None), default=None)
        return replace(
            verdict,
            level=level,
            rewards=visits - missing if self.policy.unbiased else verdict.rewards - zeros,
            missing=missing,
            judged=visits,
            waiting=self.handed - visits,
            pending=sum(piece.waiting for piece in self.pieces if piece.index not in mature),
            until=None if last is None else datetime.fromtimestamp(last / 1e6, UTC),
            unhealthy=self.health().unhealthy if self.pieces else "",
            caution=" ".join(filter(None, ("" if watched or self.final else EARLY, self.caution))),
        )

    def _check_enough(self, judged: Sequence[OpenSegment]) -> None:
        """Refuse to judge a test of which nothing is mature."""
        if judged:
            return
        # A policy that ends without a single round recommends all the same.
        if not self.pieces and self.policy.next_segment(self.state) is None:
            return
        if not self.pieces and self.excluded:
            raise RewardsPendingError(
                f"all {self.excluded:,} visits so far were excluded, so there is nothing to "
                "recommend from."
            )
        if self.ended:
            raise RewardsPendingError(
                "the test has ended without a single reward, so there is nothing to recommend from."
            )
        if not any(piece.told for piece in self.pieces):
            raise RewardsPendingError(
                "no reward has been reported yet, so there is nothing to recommend from; "
                "ask() for variants and tell() their rewards first."
            )
        first = next(piece for piece in self.pieces if not (piece.observed or piece.complete))
        if not first.waiting:
            raise RewardsPendingError(
                f"a verdict needs the first {int(first.segment.rounds[0]):,} visits; "
                f"{first.handed:,} have been assigned."
            )
        begun = sum(piece.handed for piece in self.pieces[: self.pieces.index(first)])
        which = f"the first {first.handed:,}"
        if begun:  # nothing came of earlier ones, which were given up
            which = f"{first.handed:,} from visit {begun + 1:,} on"
        raise RewardsPendingError(
            f"no visit can be judged yet: {first.waiting:,} of {which} still "
            "wait for their rewards. Report them, or say that they will never come: forget() or "
            "finish() in a session; a live experiment gives them up when its reward_window closes, "
            "or without one when it is stopped."
        )

    def evidence(self) -> Evidence:
        """What intervals and drift reports are computed from: scores piece by piece."""
        return self._evidence

    @cached_property
    def _evidence(self) -> Evidence:
        if not self.policy.unbiased:
            raise InvalidInputError(
                f"{self.policy.name} leaves variants out, so what it saw says nothing unbiased "
                "about them; use a policy such as Steady()."
            )
        pieces = self.judged()
        if not pieces:
            raise RewardsPendingError(
                "no visit can be judged yet: none of the first ones has all of its rewards."
            )
        seen = as_seen(self.policy, self.arms, pieces)
        # Whether rewards are clicks is told by those that came: filled-in ones are means.
        sign = 1.0 if self.direction == "maximize" else -1.0
        clicks = all(
            p.stats.squares is not None and np.array_equal(sign * p.stats.sums, p.stats.squares)
            for p in pieces
        )
        return evidence_of(self.policy, self.arms, seen, self.direction, binary=clicks)

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise."""
        return drift_report(self.evidence(), periods, level, self.state.budget, self.ended)

    def otherwise(self, level: float = 0.95) -> Otherwise:
        """What raw means, an early look or elimination would have concluded."""
        evidence, pieces = self.evidence(), self.judged()
        sign = 1.0 if self.direction == "maximize" else -1.0
        among = evidence.columns
        if among is None:
            counts = np.concatenate([piece.stats.counts for piece in pieces])
            sums = sign * np.concatenate([piece.stats.sums for piece in pieces])
            return what_otherwise(evidence, counts, sums, level=level)
        plays, rewards = np.zeros((2, among.size))
        for piece in pieces:
            played = piece.segment.arms
            at = slice(None) if played is None else np.searchsorted(among, played)
            plays[at] += piece.stats.counts[0]
            rewards[at] += sign * piece.stats.sums[0]
        return what_otherwise(evidence, plays, rewards, level=level, among=among)

    def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing.

        Rewards that may still come are not missing yet: those of mature visits are counted.
        """
        if not self.pieces and self.excluded:
            raise RewardsPendingError(f"all {self.excluded:,} visits so far were excluded.")
        if not self.pieces:
            raise RewardsPendingError("nothing has been assigned yet; ask() first.")
        report = health_report(
            self.arms.names,
            [_logged(piece) for piece in self.pieces],
            self._fit(),
            mature=[_logged(piece) for piece in self.mature],
        )
        if self.excluded:
            report = _with_excluded(report, self.excluded, self.handed + self.excluded)
        zeros = sum(piece.zeros for piece in self.mature)
        if not zeros:
            return report
        # Successes alone may be reported: then differences in what is missing are looked for.
        counted = Finding(
            "missing rewards",
            "ok",
            None,
            f"{zeros:,} of {sum(int(p.assigned.sum()) for p in self.mature):,} rewards did not "
            "come and count as zero, as declared; lost ones cannot be told from them.",
        )
        findings = tuple(counted if f.name == counted.name else f for f in report.findings)
        return replace(report, findings=findings)

    def _fit(self) -> list[Finding]:
        """Whether rewards follow the model that arms which share features are judged by."""
        turned = self.direction == "minimize"
        pieces = [
            (piece.segment, piece.stats.negated() if turned else piece.stats)
            for piece in self.judged()
        ]
        fit = lack_of_fit(arms_judged(self.policy, self.arms), pieces) if pieces else None
        return [] if fit is None else [fit.finding]

    def _state_so_far(self) -> State:
        """The state with what further mature pieces brought; policies that wait use whole ones."""
        early = self.policy.waits and self.state.played[0] > 0
        fresh = [
            piece for piece in self.judged() if not piece.observed and (piece.complete or not early)
        ]
        return state_after(self.policy, self.state, fresh)


def level_of_looks(level: float) -> float:
    """The level of intervals on the way, so that these and the end hold together at `level`."""
    return 1 - ON_THE_WAY * (1 - level)


def _level_of_end(level: float) -> float:
    """The level of the intervals at the end, so that they and all looks before hold together."""
    return 1 - (1 - ON_THE_WAY) * (1 - level)


def state_after(policy: Policy[Any], state: State, pieces: Iterable[OpenSegment]) -> State:
    """The policy's state after further pieces; those without a reward leave it as it is.

    Each is read by itself, so that the state does not depend on which pieces came together.
    """
    for piece in pieces:
        for segment, stats in as_seen(policy, state.arms, [piece]):
            state = policy.observe(state, segment, stats)
    return state


def _logged(piece: OpenSegment) -> LoggedSegment:
    """What was excluded is like lost rows: harmless as long as it does not depend on the arm."""
    excluded = int(piece.excluded.sum())
    segment = piece.segment.lasting(int(piece.segment.rounds[0]) + excluded)
    handed = np.array([piece.handed + excluded])
    return LoggedSegment(segment, piece.assigned[None], handed, piece.stats.counts)


def _with_excluded(report: HealthReport, excluded: int, handed: int) -> HealthReport:
    """The report with a finding about excluded visits, which are not lost."""
    found = Finding(
        "excluded visits",
        "ok",
        None,
        f"{excluded:,} of {handed:,} visits were excluded by hand and count nowhere.",
        "The corrections say why; excluding is fair only if it does not depend on the variant.",
    )
    kept = [f for f in report.findings if f.name != "lost rows"]
    return replace(report, findings=(kept[0], found, *kept[1:]))
