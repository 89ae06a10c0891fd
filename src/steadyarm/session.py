"""Session: ask/tell for one live test, kept in memory and written as JSON.

The session owns the clock and the bookkeeping of assignments; the policy only ever sees whole
segments and their sums. Rewards may come late and in any order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from steadyarm.arms import ArmSet
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RepeatedRewardError,
    RewardsPendingError,
    UnknownAssignmentError,
)
from steadyarm.ledger import OpenSegment
from steadyarm.policies import Policy, State, policy_from_dict
from steadyarm.segments import Direction, SegmentStats
from steadyarm.validation import check_choice, check_fraction, finite_number, whole_number

__all__ = ["Assignment", "Session", "Verdict"]

FORMAT = 1


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


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a session concludes so far.

    Attributes
    ----------
    arm, name : the recommended variant
    estimates : (K,) estimated time-averaged reward of every variant; nan for those that a policy
        of epochs (Peace, OD-LinBAI, Sequential-Halving) dropped and did not measure again
    standard_errors : (K,) of the estimates, from the spread of the rewards; nan where too little
        is known. While all rewards are equal there is no spread, and they are 0.
    intervals : (K, 2) intervals that hold for all variants at once with probability `level`,
        in large samples: normal, with variances estimated from the rewards. For policies that
        weigh by inverse propensities they allow for adaptivity and drift (and are too wide for
        those that draw in blocks); for all others they assume that nothing drifts.
    level : that probability
    rewards : number of rewards the test has used so far. Policies of epochs use an epoch's
        rewards when all of them are in, and estimate from the last epoch alone.
    """

    arm: int
    name: str
    estimates: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    intervals: NDArray[np.float64]
    level: float
    rewards: int


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
    Rewards should scatter around zero: those policies that weigh by inverse propensities pay for
    every unit by which all rewards are shifted. For money, seconds or ratings subtract a typical
    value before telling; estimates are then differences from it.

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
        self._asked = 0
        self._opened = 0
        self._current: OpenSegment | None = None
        self._open: dict[int, OpenSegment] = {}
        self._waiting: dict[int, tuple[int, int]] = {}  # number -> (segment index, arm)

    @property
    def budget(self) -> int:
        """How many assignments are handed out in all."""
        return self._state.budget

    @property
    def asked(self) -> int:
        """How many have been handed out."""
        return self._asked

    @property
    def pending(self) -> tuple[int, ...]:
        """Numbers of the assignments whose reward has not been told."""
        return tuple(self._waiting)

    def ask(self) -> Assignment:
        """The next variant to show."""
        with self._lock:
            if self._asked >= self.budget:
                raise BudgetSpentError(
                    f"all {self.budget} assignments of the budget have been handed out; "
                    "tell the rewards that are missing and call recommend()."
                )
            current = self._segment_to_ask()
            arm = current.next_arm(self.seed)
            number = self._asked
            self._asked += 1
            self._waiting[number] = (current.index, arm)
            probability = float(current.segment.weights[0, arm])
        return Assignment(number, arm, self.arms.names[arm], probability)

    def tell(self, assignment: Assignment | int, reward: float) -> None:
        """The reward of an assignment (or of its number); late and out of order is fine."""
        value = finite_number(reward, "the reward")
        with self._lock:
            index, arm = self._resolve(assignment)
            self._open[index].add(arm, value if self.direction == "maximize" else -value)
            self._close_complete_segments()

    def forget(self, assignment: Assignment | int) -> None:
        """Say that the reward of an assignment will never come.

        It is left out as if it had never been handed out, but stays spent from the budget. That
        is right if rewards go missing by chance; if one variant loses more, tell a 0 instead.
        """
        with self._lock:
            index, _ = self._resolve(assignment)
            self._open[index].waiting -= 1
            self._close_complete_segments()

    def recommend(self, level: float = 0.95) -> Verdict:
        """The best variant on what has been told so far, complete segments or not."""
        check_fraction(level, "level")
        with self._lock:
            state = self._state_so_far()
        rewards = int(state.played[0])
        if rewards == 0 and (self._waiting or self.policy.next_segment(state) is not None):
            raise RewardsPendingError(
                "no reward has been told yet, so there is nothing to recommend from; "
                "ask() for variants and tell() their rewards first."
            )
        found = self.policy.recommend(state)
        assert found.standard_errors is not None
        sign = 1.0 if self.direction == "maximize" else -1.0
        arm = int(found.arm[0])
        estimates = sign * found.estimates[0]
        errors = found.standard_errors[0]
        # Bonferroni over the arms; an unknown error leaves the whole line.
        reach = norm.isf((1 - level) / (2 * self.arms.size)) * np.nan_to_num(errors, nan=np.inf)
        centre = np.nan_to_num(estimates)
        intervals = np.column_stack([centre - reach, centre + reach])
        return Verdict(arm, self.arms.names[arm], estimates, errors, intervals, level, rewards)

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
            "asked": self._asked,
            "opened": self._opened,
            "current": None if self._current is None else self._current.index,
            "open": [opened.to_dict() for opened in self._open.values()],
            "waiting": [[number, *where] for number, where in self._waiting.items()],
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
        session._asked = data["asked"]
        session._opened = data["opened"]
        session._open = {entry["index"]: OpenSegment.from_dict(entry) for entry in data["open"]}
        current = data["current"]
        session._current = None if current is None else session._open[current]
        session._waiting = {number: (index, arm) for number, index, arm in data["waiting"]}
        session._check_books()
        return session

    def _check_books(self) -> None:
        """After reading: every number and sum is where it can be."""
        waiting = dict.fromkeys(self._open, 0)
        for number, (index, arm) in self._waiting.items():
            whole_number(arm, "a waiting arm")
            if not 0 <= whole_number(number, "a waiting number") < self._asked:
                raise ValueError(f"assignment {number} waits but was never handed out")
            if arm >= self.arms.size:
                raise ValueError(f"arm {arm} waits, but there are {self.arms.size} arms")
            waiting[index] += 1
        whole_number(self._opened, "opened", least=max(self._open, default=-1) + 1)
        if whole_number(self._asked, "asked") > self.budget:
            raise ValueError(f"{self._asked} were handed out of {self.budget}")
        for index, opened in self._open.items():
            opened.segment.checked(self.arms.size)
            reference = opened.segment.reference
            expected = self.policy.next_segment(self.policy.start(self.arms, self.budget))
            planned = None if expected is None else expected.reference
            if (reference is None) != (planned is None) or (
                reference is not None
                and planned is not None
                and (reference.shape != planned.shape or not np.isfinite(reference).all())
            ):
                raise ValueError(f"the reference of segment {index} does not fit its policy")
            sums = (opened.stats.sums, opened.stats.squares, opened.stats.counts)
            fits = all(
                part is not None and part.shape == (1, self.arms.size) and np.isfinite(part).all()
                for part in sums
            )
            if not fits or opened.waiting != waiting[index] or opened.told > opened.handed:
                raise ValueError(f"the sums of segment {index} do not fit its assignments")

    def _segment_to_ask(self) -> OpenSegment:
        if self._current is not None and not self._current.exhausted:
            return self._current
        if self._current is not None and self.policy.waits:
            numbers = [str(number) for number in self._waiting]
            some = ", ".join(numbers[:5]) + (", …" if len(numbers) > 5 else "")
            raise RewardsPendingError(
                f"{self.policy.name} decides only when all rewards of an epoch are known; rewards "
                f"still missing: {len(numbers)} (of assignment {some}). tell() them, or forget() "
                "those that will never come."
            )
        carried_on = self._current is not None
        if self._current is not None:
            # Rewards are slow: go on with the same allocation until they have come.
            segment = self._current.segment.lasting(self.budget - self._asked)
        else:
            planned = self.policy.next_segment(self._state)
            if planned is None:
                raise BudgetSpentError(
                    f"{self.policy.name} has ended after {self._asked} of {self.budget} "
                    "assignments; call recommend()."
                )
            segment = planned.checked(self.arms.size)
        stats = SegmentStats.empty(1, self.arms.size)
        self._current = OpenSegment(self._opened, segment, stats, carried_on)
        self._open[self._opened] = self._current
        self._opened += 1
        return self._current

    def _resolve(self, assignment: Assignment | int) -> tuple[int, int]:
        number = assignment.number if isinstance(assignment, Assignment) else assignment
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise InvalidInputError(
                f"the assignment is {assignment!r}; give what ask() returned, or its number."
            )
        if number in self._waiting:
            arm = self._waiting[int(number)][1]
            if isinstance(assignment, Assignment) and assignment.arm != arm:
                raise UnknownAssignmentError(
                    f"assignment {number} of this session showed {self.arms.names[arm]!r}, not "
                    f"{assignment.name!r}; this one belongs to another session."
                )
            return self._waiting.pop(int(number))
        if 0 <= number < self._asked:
            raise RepeatedRewardError(
                f"assignment {number} has its reward already (or was forgotten); "
                "a reward is told once."
            )
        raise UnknownAssignmentError(
            f"assignment {number} was never handed out; {self._asked} have been, numbered from 0."
        )

    def _close_complete_segments(self) -> None:
        """Hand segments with all rewards in to the policy; their successors are decided anew."""
        while complete := [opened for opened in self._open.values() if self._is_complete(opened)]:
            for opened in complete:
                del self._open[opened.index]
                if opened.told:
                    self._state = self._after(self._state, opened)
            # A regular segment runs to its end; one that only carried on makes way for news.
            if self._current in complete or (self._current and self._current.carried_on):
                self._current = None

    def _state_so_far(self) -> State:
        """The state with what open segments have brought; policies that wait use whole ones."""
        state = self._state
        if not self.policy.waits or not state.played[0]:
            for opened in self._open.values():
                if opened.told:
                    state = self._after(state, opened)
        return state

    def _is_complete(self, opened: OpenSegment) -> bool:
        closed = opened is not self._current or opened.exhausted or self._asked >= self.budget
        return closed and not opened.waiting

    def _after(self, state: State, opened: OpenSegment) -> State:
        segment = opened.segment.lasting(opened.told)
        after: State = self.policy.observe(state, segment, opened.stats)
        return after
