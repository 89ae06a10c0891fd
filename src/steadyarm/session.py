"""Session: ask/tell for one live test, kept in memory and written as JSON.

The session lets the policy decide and keeps the books of what was handed out; the policy only
ever sees whole segments and their sums. Rewards may come late and in any order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.books import Books
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RewardsPendingError,
    UnknownAssignmentError,
)
from steadyarm.estimators import fill_missing
from steadyarm.inference import (
    DriftReport,
    Evidence,
    HealthReport,
    LoggedSegment,
    Otherwise,
    drift_report,
    health_report,
    what_otherwise,
)
from steadyarm.ledger import OpenSegment
from steadyarm.policies import Policy, State, policy_from_dict
from steadyarm.policies.ips import IPSPolicy
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, check_fraction, finite_number, whole_number
from steadyarm.verdict import Verdict, evidence_of, verdict_of

__all__ = ["Assignment", "Session"]

FORMAT = 2
PIECES, LEAST_PART = 60, 10  # a live segment is cut into parts this short, to see drift


@dataclass(frozen=True)
class Assignment:
    """One variant handed out.

    Attributes
    ----------
    number : counts the assignments of the session from 0; give it back with the reward
    arm, name : the variant
    probability : with which it was drawn
    """

    number: int
    arm: int
    name: str
    probability: float


class Session:
    """One live test in memory: `ask` for a variant, `tell` its reward, `recommend`.

    Parameters
    ----------
    policy : how variants are chosen
    arms : the variants
    budget : how many assignments will be handed out in all
    seed : makes the whole test reproducible
    direction : "maximize" or "minimize" the reward

    Notes
    -----
    Any unit of reward will do for Steady. The paper's policies pay for every unit by which all
    rewards are shifted: for money, seconds or ratings give them ``control_variate=True``, or
    subtract a typical value before telling.

    Every assignment needs its reward, the zeros too. Where some never come, `forget` them; until
    then verdicts before the end of the test rest on the segments that are complete, as far as these
    are the larger part, because rewards that are late are not like those that are not.

    A session may be used from several threads.

    If rewards are slow, policies that weigh by inverse propensities go on with the current
    allocation; policies of epochs need all rewards of an epoch, and `ask` says which are missing.

    Examples
    --------
    >>> import steadyarm as sa
    >>> session = sa.Session(sa.P1RAGE(), sa.ArmSet.one_hot(["A", "B"]), budget=500, seed=3)
    >>> for _ in range(500):
    ...     a = session.ask()
    ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
    >>> session.recommend().name
    'B'
    """

    def __init__(
        self,
        policy: Policy[Any],
        arms: ArmSet,
        budget: int,
        seed: int = 0,
        direction: Direction = "maximize",
    ) -> None:
        if not isinstance(policy, Policy):
            raise InvalidInputError(
                f"policy is {policy!r}; expected an instance of a policy, such as P1RAGE()."
            )
        check_choice(direction, "direction", ("maximize", "minimize"))
        self._lock = RLock()
        self.policy = policy
        self.arms = arms
        self.seed = whole_number(seed, "seed")
        self.direction: Direction = direction
        self._state: State = policy.start(arms, budget, trials=1, seed=self.seed)
        self._books = Books(arms.size, self.budget)

    def __repr__(self) -> str:
        return (
            f"Session({self.policy.name}, {self.arms.size} variants: {self.asked} of "
            f"{self.budget} handed out, {len(self._books.waiting)} rewards pending)"
        )

    @property
    def budget(self) -> int:
        """How many assignments are handed out in all."""
        return self._state.budget

    @property
    def asked(self) -> int:
        """How many have been handed out."""
        return self._books.asked

    @property
    def pending(self) -> tuple[int, ...]:
        """Numbers of the assignments whose reward has not been told."""
        return tuple(self._books.waiting)

    def ask(self) -> Assignment:
        """The next variant to show."""
        with self._lock:
            if self.asked >= self.budget:
                raise BudgetSpentError(
                    f"all {self.budget} assignments of the budget have been handed out; "
                    "tell the rewards that are missing and call recommend()."
                )
            self._open_segment()
            number, arm, probability = self._books.hand_out(self.seed)
        return Assignment(number, arm, self.arms.names[arm], probability)

    def tell(self, assignment: Assignment | int, reward: float) -> None:
        """The reward of an assignment (or of its number); late and out of order is fine."""
        value = finite_number(reward, "the reward")
        with self._lock:
            number = self._resolve(assignment)
            self._books.tell(number, value if self.direction == "maximize" else -value)
            self._observe_complete_segments()

    def forget(self, assignment: Assignment | int) -> None:
        """Say that the reward of an assignment will never come.

        It counts like the mean of the same variant's rewards around it. That is right if rewards
        go missing whatever they would have been; if they are missing because there was none, such
        as a click that did not happen, tell a 0 instead. `health` tests whether some variant
        loses more than others.
        """
        with self._lock:
            self._books.forget(self._resolve(assignment))
            self._observe_complete_segments()

    def recommend(
        self,
        level: float = 0.95,
        anytime: bool = False,
        reward_range: tuple[float, float] | None = None,
    ) -> Verdict:
        """The best variant on what has been told so far, complete segments or not.

        Parameters
        ----------
        level : probability with which intervals hold, for all variants at once
        anytime : False if the test is judged once, when its budget is spent; True for intervals
            that hold at all looks at once, so that one may look every day and stop when sure
        reward_range : (least, largest) reward that can occur; if given, intervals of an anytime
            look hold for tests of any size, else in large samples
        """
        check_fraction(level, "level")
        self._check_range(reward_range, anytime)
        with self._lock:
            if not self._books.told and (
                self._books.waiting or self.policy.next_segment(self._state) is not None
            ):
                raise RewardsPendingError(
                    "no reward has been told yet, so there is nothing to recommend from; "
                    "ask() for variants and tell() their rewards first."
                )
            state = self._state_so_far()
            evidence = self.evidence() if self.policy.unbiased else None
            told, handed = self._books.told, self.asked
        return verdict_of(
            self.policy,
            state,
            evidence,
            self.direction,
            level,
            anytime,
            reward_range,
            rewards=told,
            missing=handed - told,
        )

    def evidence(self) -> Evidence:
        """What intervals and drift reports are computed from: scores piece by piece."""
        if not self.policy.unbiased:
            raise InvalidInputError(
                f"{self.policy.name} leaves variants out, so what it saw says nothing unbiased "
                "about them; use a policy such as Steady()."
            )
        with self._lock:
            pieces = self._pieces_to_judge()
            if not pieces:
                raise RewardsPendingError("no reward has been told yet; tell() some first.")
            return evidence_of(self.policy, self.arms, self._filled(pieces), self.direction)

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise."""
        return drift_report(self.evidence(), periods, level)

    def otherwise(self, level: float = 0.95) -> Otherwise:
        """What raw means, an early look or elimination would have concluded."""
        sign = 1.0 if self.direction == "maximize" else -1.0
        with self._lock:
            evidence, pieces = self.evidence(), self._pieces_to_judge()
            counts = np.concatenate([piece.stats.counts for piece in pieces])
            sums = sign * np.concatenate([piece.stats.sums for piece in pieces])
        return what_otherwise(evidence, counts, sums, level=level)

    def health(self) -> HealthReport:
        """Whether variants were handed out as planned, and whose rewards are missing.

        Rewards that may still come count as missing too: look again when they have come.
        """
        with self._lock:
            pieces = [*self._books.closed, *self._books.open.values()]
            missing = self._books.missing()
            logged = [
                LoggedSegment(
                    piece.segment,
                    piece.stats.counts + missing.get(piece.index, 0),
                    np.array([piece.handed]),
                    piece.stats.counts.copy(),
                )
                for piece in sorted(pieces, key=lambda piece: piece.index)
                if piece.handed
            ]
        if not logged:
            raise RewardsPendingError("nothing was handed out yet; ask() first.")
        return health_report(self.arms.names, logged)

    def to_json(self) -> str:
        """The whole session as text; `from_json` goes on exactly where it stood."""
        with self._lock:
            return json.dumps(self._to_data())

    def _to_data(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "policy": self.policy.to_dict(),
            "arms": self.arms.to_dict(),
            "seed": self.seed,
            "direction": self.direction,
            "state": self._state.to_dict(),
            "books": self._books.to_dict(),
        }

    @classmethod
    def from_json(cls, text: str, policy: Policy[Any] | None = None) -> Session:
        """The session that `to_json` wrote; a policy of your own is given again."""
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, TypeError) as error:
            raise InvalidInputError(f"this is not the JSON of a session: {error}.") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            given = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise InvalidInputError(
                f"this is not a session of format {FORMAT} but {given!r}; it was written by "
                "another version of SteadyArm or is something else."
            )
        try:
            return cls._from_data(data, policy)
        except InvalidInputError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"this JSON of a session is incomplete or damaged: {error!r}."
            ) from None

    @classmethod
    def _from_data(cls, data: dict[str, Any], policy: Policy[Any] | None) -> Session:
        if policy is None:
            policy = policy_from_dict(data["policy"])
        elif json.loads(json.dumps(policy.to_dict())) != data["policy"]:
            raise InvalidInputError(
                f"the session was run with {data['policy']}, but the policy given is "
                f"{policy.to_dict()}; give the one it was run with."
            )
        arms = ArmSet.from_dict(data["arms"])
        budget = data["state"]["budget"]
        session = cls(policy, arms, budget, data["seed"], data["direction"])
        state = policy.state_type.from_dict(data["state"], arms)
        if not session._state.resembles(state):
            raise InvalidInputError(
                "this JSON of a session is damaged: its state does not fit its policy and arms."
            )
        session._state = state
        session._books = Books.from_dict(data["books"], arms.size, budget)
        session._check_references()
        closed = sum(int(s.rounds[0]) for s, _ in session._filled(session._books.closed))
        if int(state.played[0]) != closed:
            raise ValueError(f"the policy has seen {state.played[0]} rounds, segments say {closed}")
        return session

    def _check_references(self) -> None:
        """After reading: segments carry a reference if and only if the policy uses one."""
        expected = self.policy.next_segment(self.policy.start(self.arms, self.budget))
        planned = None if expected is None else expected.reference
        for opened in [*self._books.open.values(), *self._books.closed]:
            reference = opened.segment.reference
            if (reference is None) != (planned is None) or (
                reference is not None
                and planned is not None
                and (reference.shape != planned.shape or not np.isfinite(reference).all())
            ):
                raise ValueError(f"the reference of segment {opened.index} does not fit its policy")

    def _open_segment(self) -> None:
        """Make sure that there is a segment to hand out from."""
        current = self._books.current
        if current is not None and not current.exhausted:
            return
        if current is not None and current.superseded:
            current = None
        if current is not None and self.policy.waits:
            numbers = [str(number) for number in self._books.waiting]
            some = ", ".join(numbers[:5]) + (", …" if len(numbers) > 5 else "")
            raise RewardsPendingError(
                f"{self.policy.name} decides only when all rewards of an epoch are known; rewards "
                f"still missing: {len(numbers)} (of assignment {some}). tell() them, or forget() "
                "those that will never come."
            )
        if current is not None:
            # Rewards are slow: go on with the same allocation until they have come.
            segment = current.segment.lasting(self.budget - self.asked)
        else:
            planned = self.policy.next_segment(self._state)
            if planned is None:
                raise BudgetSpentError(
                    f"{self.policy.name} has ended after {self.asked} of {self.budget} "
                    "assignments; call recommend()."
                )
            segment = planned.checked(self.arms.size)
        self._books.start(self._part_of(segment), carried_on=current is not None)

    def _part_of(self, segment: Segment) -> Segment:
        """A long segment is played in parts of whole blocks, whose sums show drift."""
        if not self.policy.unbiased or segment.order == "shuffled":
            return segment
        block = segment.block if segment.order == "blocks" else 1
        most = max(1, round(max(LEAST_PART, self.budget / PIECES) / block))
        blocks = -(-int(segment.rounds[0]) // block)
        parts = -(-blocks // most)
        return segment.lasting(min(-(-blocks // parts) * block, int(segment.rounds[0])))

    def _resolve(self, assignment: Assignment | int) -> int:
        number = assignment.number if isinstance(assignment, Assignment) else assignment
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise InvalidInputError(
                f"the assignment is {assignment!r}; give what ask() returned, or its number."
            )
        arm = self._books.arm_of(int(number))
        if isinstance(assignment, Assignment) and assignment.arm != arm:
            raise UnknownAssignmentError(
                f"assignment {number} of this session showed {self.arms.names[arm]!r}, not "
                f"{assignment.name!r}; this one belongs to another session."
            )
        return int(number)

    def _observe_complete_segments(self) -> None:
        """Hand segments with all rewards in to the policy; their successors are decided anew."""
        while complete := self._books.close_complete():
            for opened in complete:
                if opened.told:
                    self._state = self._after(self._state, opened)

    def _pieces_to_judge(self) -> list[OpenSegment]:
        """Complete segments; all that brought rewards at the end, or if most are incomplete."""
        pieces = self._books.pieces()
        complete = [piece for piece in pieces if not piece.waiting]
        enough = 2 * sum(piece.told for piece in complete) >= self._books.told
        return complete if enough and self.asked < self.budget else pieces

    def _state_so_far(self) -> State:
        """The state with what open segments have brought; policies that wait use whole ones."""
        state = self._state
        if not self.policy.waits or not state.played[0]:
            judged = {piece.index for piece in self._pieces_to_judge()}
            for opened in self._books.open.values():
                if opened.told and opened.index in judged:
                    state = self._after(state, opened)
        return state

    def _after(self, state: State, opened: OpenSegment) -> State:
        ((segment, stats),) = self._filled([opened])
        after: State = self.policy.observe(state, segment, stats)
        return after

    def _filled(self, pieces: Sequence[OpenSegment]) -> list[tuple[Segment, SegmentStats]]:
        """Segments as the policy sees them: missing rewards filled in, or left out."""
        if not (self.policy.unbiased and isinstance(self.policy, IPSPolicy)):
            return [(piece.segment.lasting(piece.told), piece.stats) for piece in pieces]
        X, missing = self.policy.features(self.arms), self._books.missing()
        none = np.zeros((1, self.arms.size), dtype=np.int64)
        return [
            fill_missing(X, piece.segment, piece.stats, missing.get(piece.index, none))
            for piece in pieces
        ]

    def _check_range(self, reward_range: tuple[float, float] | None, anytime: bool) -> None:
        if anytime and not self.policy.unbiased:
            raise InvalidInputError(
                f"{self.policy.name} leaves variants out, so no intervals hold at all looks; use "
                "anytime=False, or a policy such as Steady()."
            )
        if reward_range is None:
            return
        if not anytime:
            raise InvalidInputError(
                "reward_range is used with anytime=True only; leave it out, or ask for intervals "
                "that hold at all looks."
            )
        books, sign = self._books, 1.0 if self.direction == "maximize" else -1.0
        if books.least is None or books.largest is None:
            return
        seen = sorted((sign * books.least, sign * books.largest))
        low, high = (finite_number(end, "an end of reward_range") for end in reward_range)
        if seen[0] < low or seen[1] > high:
            raise InvalidInputError(
                f"reward_range is ({low:g}, {high:g}), but rewards from {seen[0]:g} to "
                f"{seen[1]:g} were told; give the range of what can occur."
            )
