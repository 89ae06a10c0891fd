"""Session: ask/tell for one live test, kept in memory and written as JSON.

The session lets the policy decide and keeps the books of what was handed out; the policy only
ever sees whole segments and their sums. Rewards may come late and in any order.
"""

from __future__ import annotations

import json
from threading import RLock
from typing import Any

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RewardsPendingError,
    UnknownAssignmentError,
)
from steadyarm.inference import Counterfactuals, DriftReport, Evidence, HealthReport
from steadyarm.live.decisions import as_seen, state_after
from steadyarm.live.ledger import Assignment, Books, OpenSegment, part_of, why_it_waits
from steadyarm.live.results import LiveResults
from steadyarm.live.verdict import Verdict
from steadyarm.policies import POLICIES, Policy, State, policy_from_dict
from steadyarm.segments import Direction
from steadyarm.validation import check_choice, finite_number, whole_number

__all__ = ["Assignment", "Session"]

FORMAT = 3


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

    Every assignment needs its reward, the zeros too. Where some never come, `forget` them, or
    `finish` the test: verdicts rest on the first visits, up to the first whose rewards may still
    come, because rewards that are late are not like those that are not.

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
        self._finished = False

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
            if self._finished:
                raise BudgetSpentError(
                    f"the session was finished after {self.asked} of {self.budget} assignments; "
                    "call recommend()."
                )
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
            sign = 1.0 if self.direction == "maximize" else -1.0
            self._observe_complete_segments(self._books.tell(number, sign * value))

    def forget(self, assignment: Assignment | int) -> None:
        """Say that the reward of an assignment will never come.

        It counts like the mean of the same variant's rewards around it. That is right if rewards
        go missing whatever they would have been; if they are missing because there was none, such
        as a click that did not happen, tell a 0 instead. `health` tests whether some variant
        loses more than others.
        """
        with self._lock:
            self._observe_complete_segments(self._books.forget(self._resolve(assignment)))

    def finish(self) -> None:
        """End the test: no more variants are assigned, and pending rewards will never come.

        They are forgotten, as by `forget`.
        """
        with self._lock:
            self._finished = True
            for number in self.pending:
                self._observe_complete_segments(self._books.forget(number))

    def recommend(
        self,
        level: float = 0.95,
        anytime: bool | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> Verdict:
        """The best variant on mature visits: the first ones, up to those that wait for rewards.

        Parameters
        ----------
        level : probability with which intervals hold, for all variants at once
        anytime : by default all looks hold together with probability `level`, however many there
            are: until the whole budget is assigned and no reward is pending intervals are those
            of a confidence sequence, which may spend a fifth of the error probability, so that
            one may look every day and stop when sure; then those of one look, with the rest of
            it. False asks for intervals of one single look, True for the sequence; each then has
            the whole error probability.
        reward_range : (least, largest) reward that can occur; if given, intervals that hold at all
            looks hold for tests of any size, else in large samples
        """
        return self.results().recommend(level, anytime, reward_range)

    def evidence(self) -> Evidence:
        """What intervals and drift reports are computed from: scores piece by piece."""
        return self.results().evidence()

    def drift(self, periods: int = 4, level: float = 0.95) -> DriftReport:
        """Estimates in equal shares of the test, and whether they move by more than noise."""
        return self.results().drift(periods, level)

    def counterfactuals(self, level: float = 0.95) -> Counterfactuals:
        """What raw means, an early look or elimination would have concluded."""
        return self.results().counterfactuals(level)

    def health(self) -> HealthReport:
        """Whether variants were assigned as planned, and whose rewards are missing.

        Rewards that may still come are not missing yet.
        """
        return self.results().health()

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
            "finished": self._finished,
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
            if (name := data["policy"].get("name")) not in POLICIES:
                raise InvalidInputError(
                    f"the session was run with {name!r}, a policy of your own; give it again: "
                    "Session.from_json(text, policy=…)."
                )
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
        session._finished = bool(data.get("finished", False))
        session._check_references()
        closed = sum(
            int(segment.rounds[0])
            for piece in session._books.closed
            for segment, _ in as_seen(policy, arms, [piece])
        )
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
        spare = self.budget - self.asked
        if current is not None:
            going_on = None if self.policy.waits else current.segment.continued(spare)
            if going_on is None:
                raise RewardsPendingError(self._what_is_missing())
            segment = going_on
        else:
            planned = self.policy.next_segment(self._state)
            if planned is None:
                raise BudgetSpentError(
                    f"{self.policy.name} has ended after {self.asked} of {self.budget} "
                    "assignments; call recommend()."
                )
            segment = planned.checked(self.arms.size)
        if self.policy.unbiased:
            segment = part_of(segment, self.budget)
        segment = segment.lasting(min(int(segment.rounds[0]), spare))
        self._books.start(segment, carried_on=current is not None)

    def _what_is_missing(self) -> str:
        numbers = [str(number) for number in self._books.waiting]
        some = ", ".join(numbers[:5]) + (", …" if len(numbers) > 5 else "")
        return (
            f"{why_it_waits(self.policy)}; rewards still missing: {len(numbers)} (of assignment "
            f"{some}). tell() them, or forget() those that will never come."
        )

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

    def _observe_complete_segments(self, changed: OpenSegment) -> None:
        """Hand segments with all rewards in to the policy; their successors are decided anew."""
        while complete := self._books.close_complete(changed):
            self._state = state_after(self.policy, self._state, complete)

    def results(self) -> LiveResults:
        """The test as it is now, to be judged while it goes on."""
        with self._lock:
            books = self._books
            return LiveResults(
                self.policy,
                self.arms,
                self.direction,
                self._state,
                books.pieces(),
                ended=self._finished or (self.asked >= self.budget and not books.waiting),
                spent=self.asked >= self.budget,
                least=books.least,
                largest=books.largest,
            )
