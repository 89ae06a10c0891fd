"""Judgement: all that a live test says of itself, wherever its books are kept.

A function of the policy's state and of the segments: it hands nothing out and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
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
    what_otherwise,
)
from steadyarm.ledger import OpenSegment
from steadyarm.policies import Policy, State
from steadyarm.segments import Direction
from steadyarm.validation import check_fraction
from steadyarm.verdict import Verdict, as_seen, check_range, evidence_of, verdict_of

__all__ = ["Judgement", "state_after"]


@dataclass(frozen=True, eq=False)
class Judgement:
    """One look at a live test.

    Attributes
    ----------
    policy, arms : as the test was started with
    direction : of the rewards; sums, `least` and `largest` are what the policy maximizes
    state : the policy's, after the pieces that it has observed
    pieces : all segments that were handed out from, in the order of their index
    ended : nothing more will be handed out, so that incomplete pieces are judged, too
    least, largest : of the rewards told; None if not known, or before the first
    """

    policy: Policy[Any]
    arms: ArmSet
    direction: Direction
    state: State
    pieces: tuple[OpenSegment, ...]
    ended: bool
    least: float | None = None
    largest: float | None = None

    @property
    def told(self) -> int:
        """Rewards told; those that were not and count as zero are none."""
        return sum(piece.told - piece.zeros for piece in self.pieces)

    @property
    def handed(self) -> int:
        """Variants handed out."""
        return sum(int(piece.assigned.sum()) for piece in self.pieces)

    def judged(self) -> list[OpenSegment]:
        """Complete pieces; all that brought rewards at the end, or if most are incomplete."""
        pieces = [piece for piece in self.pieces if piece.told]
        complete = [piece for piece in pieces if not piece.waiting]
        enough = 2 * sum(piece.told for piece in complete) >= sum(piece.told for piece in pieces)
        return complete if enough and not self.ended else pieces

    def recommend(
        self,
        level: float = 0.95,
        anytime: bool = False,
        reward_range: tuple[float, float] | None = None,
    ) -> Verdict:
        """The best variant on what has been told; `Session.recommend` says what is asked."""
        check_fraction(level, "level")
        if anytime and not self.policy.unbiased:
            raise InvalidInputError(
                f"{self.policy.name} leaves variants out, so no intervals hold at all looks; use "
                "anytime=False, or a policy such as Steady()."
            )
        if reward_range is not None and not anytime:
            raise InvalidInputError(
                "reward_range is used with anytime=True only; leave it out, or ask for intervals "
                "that hold at all looks."
            )
        if reward_range is not None:
            check_range(reward_range, self.least, self.largest, self.direction)
        told = self.told
        # A policy that ends without a single round recommends all the same.
        if not told and (
            any(piece.waiting for piece in self.pieces)
            or (not self.ended and self.policy.next_segment(self.state) is not None)
        ):
            raise RewardsPendingError(
                "no reward has been told yet, so there is nothing to recommend from; "
                "ask() for variants and tell() their rewards first."
            )
        return verdict_of(
            self.policy,
            self._state_so_far(),
            self.evidence() if self.policy.unbiased else None,
            self.direction,
            level,
            anytime,
            reward_range,
            rewards=told,
            missing=self.handed - told,
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
            raise RewardsPendingError("no reward has been told yet; tell() some first.")
        seen = as_seen(self.policy, self.arms, pieces)
        return evidence_of(self.policy, self.arms, seen, self.direction)

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise."""
        return drift_report(self.evidence(), periods, level)

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
        """Whether variants were handed out as planned, and whose rewards are missing."""
        if not self.pieces:
            raise RewardsPendingError("nothing was handed out yet; ask() first.")
        logged = [
            LoggedSegment(
                piece.segment, piece.assigned[None], np.array([piece.handed]), piece.stats.counts
            )
            for piece in self.pieces
        ]
        report = health_report(self.arms.names, logged)
        zeros = sum(piece.zeros for piece in self.pieces)
        if not zeros:
            return report
        # Successes alone may be told: then differences in what is missing are what is looked for.
        counted = Finding(
            "missing rewards",
            "ok",
            None,
            f"{zeros:,} of {self.handed:,} rewards were not told and count as zero, as declared; "
            "lost ones cannot be told from them.",
        )
        findings = tuple(counted if f.name == counted.name else f for f in report.findings)
        return replace(report, findings=findings)

    def _state_so_far(self) -> State:
        """The state with what open pieces have brought; policies that wait use whole ones."""
        if self.policy.waits and self.state.played[0]:
            return self.state
        fresh = [piece for piece in self.judged() if not piece.observed]
        return state_after(self.policy, self.state, fresh)


def state_after(policy: Policy[Any], state: State, pieces: Iterable[OpenSegment]) -> State:
    """The policy's state after further pieces; those without a reward leave it as it is."""
    for segment, stats in as_seen(policy, state.arms, pieces):
        state = policy.observe(state, segment, stats)
    return state
