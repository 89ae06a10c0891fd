"""Session: ask/tell for one live test, kept in memory and written as JSON.

The session owns the clock and the bookkeeping of assignments; the policy only ever sees whole
segments and their sums. Rewards may come late and in any order.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
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
from steadyarm.policies import Policy, State, policy_from_dict
from steadyarm.segments import Direction, Segment, SegmentStats, arms_between

__all__ = ["Assignment", "Session", "Verdict"]

FORMAT = 1
BUFFER = 1024  # positions drawn ahead at a time


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


@dataclass(frozen=True)
class Verdict:
    """What a session concludes so far.

    Attributes
    ----------
    arm, name : the recommended variant
    estimates : (K,) estimated time-averaged reward of every variant
    standard_errors : (K,) of the estimates; nan where too little is known
    intervals : (K, 2) intervals that hold for all variants at once with probability `level`,
        in large samples: normal, with variances estimated from the rewards. For policies that
        weigh by inverse propensities they allow for adaptivity and drift; for Peace and
        OD-LinBAI they assume that nothing drifts.
    level : that probability
    rewards : number of rewards it rests on
    """

    arm: int
    name: str
    estimates: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    intervals: NDArray[np.float64]
    level: float
    rewards: int


@dataclass
class _OpenSegment:
    """A segment of which rewards are still to come."""

    index: int
    segment: Segment
    stats: SegmentStats
    handed: int = 0  # positions handed out
    waiting: int = 0  # of these, without a reward yet
    ahead: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def told(self) -> int:
        return int(self.stats.counts.sum())

    @property
    def exhausted(self) -> bool:
        return self.handed >= int(self.segment.rounds[0])

    def next_arm(self, seed: int) -> int:
        rounds = int(self.segment.rounds[0])
        buffer = rounds if self.segment.order == "shuffled" else BUFFER
        position = self.handed % buffer
        if position == 0 or not len(self.ahead):
            first = self.handed - position
            last = min(first + buffer, rounds)
            self.ahead = arms_between(self.segment, seed, self.index, first, last)
        self.handed += 1
        self.waiting += 1
        return int(self.ahead[position])

    def add(self, arm: int, reward: float) -> None:
        assert self.stats.squares is not None
        self.stats.counts[0, arm] += 1
        self.stats.sums[0, arm] += reward
        self.stats.squares[0, arm] += reward * reward
        self.waiting -= 1


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
    If rewards are slow, policies that weigh by inverse propensities go on with the current
    allocation; Peace and OD-LinBAI need all rewards of an epoch, and `ask` says which are missing.

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
        if direction not in ("maximize", "minimize"):
            raise InvalidInputError(
                f"direction is {direction!r}; expected 'maximize' or 'minimize'."
            )
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise InvalidInputError(f"seed is {seed!r}; expected a whole number of at least 0.")
        self.policy = policy
        self.arms = arms
        self.seed = int(seed)
        self.direction: Direction = direction
        self._state: State = policy.start(arms, budget, trials=1, seed=self.seed)
        self._asked = 0
        self._opened = 0
        self._current: _OpenSegment | None = None
        self._open: dict[int, _OpenSegment] = {}
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
        value = _checked_reward(reward)
        index, arm = self._resolve(assignment)
        self._open[index].add(arm, value if self.direction == "maximize" else -value)
        self._close_complete_segments()

    def forget(self, assignment: Assignment | int) -> None:
        """Say that the reward of an assignment will never come.

        It is left out as if it had never been handed out, but stays spent from the budget. That
        is right if rewards go missing by chance; if one variant loses more, tell a 0 instead.
        """
        index, _ = self._resolve(assignment)
        self._open[index].waiting -= 1
        self._close_complete_segments()

    def recommend(self, level: float = 0.95) -> Verdict:
        """The best variant on what has been told so far, complete segments or not."""
        if not 0 < level < 1:
            raise InvalidInputError(f"level is {level}; expected a number between 0 and 1.")
        state = self._state
        for opened in self._open.values():
            if opened.told:
                state = self._after(state, opened)
        rewards = int(state.played[0])
        if rewards == 0 and self._asked < self.budget:
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
        intervals = np.column_stack([estimates - reach, estimates + reach])
        return Verdict(arm, self.arms.names[arm], estimates, errors, intervals, level, rewards)

    def to_json(self) -> str:
        """The whole session as text; `from_json` goes on exactly where it stood."""
        return json.dumps(
            {
                "format": FORMAT,
                "policy": self.policy.to_dict(),
                "arms": self.arms.to_dict(),
                "seed": self.seed,
                "direction": self.direction,
                "state": self._state.to_dict(),
                "asked": self._asked,
                "opened": self._opened,
                "current": None if self._current is None else self._current.index,
                "open": [_segment_to_dict(opened) for opened in self._open.values()],
                "waiting": [[number, *where] for number, where in self._waiting.items()],
            }
        )

    @classmethod
    def from_json(cls, text: str, policy: Policy[Any] | None = None) -> Session:
        """The session that `to_json` wrote; a policy of your own is given again."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"this is not the JSON of a session: {error}.") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            given = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise InvalidInputError(
                f"this is not a session of format {FORMAT} but {given!r}; it was written by "
                "another version of SteadyArm or is something else."
            )
        try:
            return cls._from_data(data, policy)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"this JSON of a session is incomplete or damaged: {error!r}."
            ) from None

    @classmethod
    def _from_data(cls, data: dict[str, Any], policy: Policy[Any] | None) -> Session:
        policy = policy_from_dict(data["policy"]) if policy is None else policy
        arms = ArmSet.from_dict(data["arms"])
        budget = data["state"]["budget"]
        session = cls(policy, arms, budget, data["seed"], data["direction"])
        session._state = policy.state_type.from_dict(data["state"], arms)
        session._asked = data["asked"]
        session._opened = data["opened"]
        session._open = {entry["index"]: _segment_from_dict(entry) for entry in data["open"]}
        current = data["current"]
        session._current = None if current is None else session._open[current]
        session._waiting = {number: (index, arm) for number, index, arm in data["waiting"]}
        return session

    def _segment_to_ask(self) -> _OpenSegment:
        if self._current is not None and not self._current.exhausted:
            return self._current
        if self._current is not None and self.policy.waits:
            missing = ", ".join(str(number) for number in list(self._waiting)[:5])
            raise RewardsPendingError(
                f"{self.policy.name} decides only when all rewards of an epoch are known; "
                f"{len(self._waiting)} are missing (assignments {missing}, …). tell() them, or "
                "forget() those that will never come."
            )
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
            segment = planned
        stats = SegmentStats.empty(1, self.arms.size)
        self._current = _OpenSegment(self._opened, segment, stats)
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
            self._current = None

    def _is_complete(self, opened: _OpenSegment) -> bool:
        return not opened.waiting and (opened is not self._current or opened.exhausted)

    def _after(self, state: State, opened: _OpenSegment) -> State:
        segment = opened.segment.lasting(opened.told)
        after: State = self.policy.observe(state, segment, opened.stats)
        return after


def _checked_reward(reward: float) -> float:
    try:
        value = float(reward)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInputError(f"the reward is {reward!r}; expected a finite number.")
    return value


def _segment_to_dict(opened: _OpenSegment) -> dict[str, Any]:
    assert opened.stats.squares is not None
    return {
        "index": opened.index,
        "weights": opened.segment.weights[0].tolist(),
        "rounds": int(opened.segment.rounds[0]),
        "order": opened.segment.order,
        "handed": opened.handed,
        "waiting": opened.waiting,
        "counts": opened.stats.counts[0].tolist(),
        "sums": opened.stats.sums[0].tolist(),
        "squares": opened.stats.squares[0].tolist(),
    }


def _segment_from_dict(data: dict[str, Any]) -> _OpenSegment:
    segment = Segment(np.array([data["weights"]]), np.array([data["rounds"]]), data["order"])
    stats = SegmentStats(
        np.array([data["counts"]], dtype=np.int64),
        np.array([data["sums"]]),
        np.array([data["squares"]]),
    )
    return _OpenSegment(data["index"], segment, stats, data["handed"], data["waiting"])
