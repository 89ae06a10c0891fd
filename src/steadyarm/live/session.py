"""Session: a live test in memory, with ask and tell, that can be saved as JSON.

A session is the test that an `Experiment` runs, without a storage: it has its own ledgers and the
same draws, decisions and verdicts. Rewards may come late and in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.covariates import Moments, Slopes, covariate_row
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RepeatedRewardError,
    RewardsPendingError,
    UnknownAssignmentError,
)
from steadyarm.live.decisions import (
    SegmentLedger,
    first_slopes,
    transition,
    why_it_waits,
)
from steadyarm.live.results import LiveResults, LiveTest
from steadyarm.live.settings import STOPPING, Looking, Settings, Spending, Stop, load_policy
from steadyarm.live.stopping import EarlyStop, stop_now
from steadyarm.live.verdict import Verdict
from steadyarm.policies import Policy, State
from steadyarm.segments import Direction, SegmentStats

FORMAT = 4
PLAIN = ("seed", "direction", "covariates", "values", *STOPPING)  # settings that are JSON as such

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Assignment:
    """One variant to show.

    Attributes
    ----------
    number : counts the assignments of the session from 0; give it back with the reward
    arm, name : the variant
    probability : with which it was drawn
    value : the value of the variant (`Settings.values`); it is shared, do not change it

    Examples
    --------
    >>> import steadyarm as sa
    >>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=100, seed=1)
    >>> shown = session.ask()
    >>> shown.number, shown.name in ("A", "B"), shown.probability
    (0, True, 0.5)
    >>> session.tell(shown, 1.0)
    """

    number: int
    arm: int
    name: str
    probability: float
    value: Any = field(default=None, hash=False)


class Session(LiveTest):
    """One live test in memory: `ask` for a variant, `tell` its reward, `recommend`.

    Parameters
    ----------
    policy : how variants are chosen
    arms : the variants
    budget : how many assignments will be made in all
    seed : makes the whole test reproducible
    direction : "maximize" or "minimize" the reward
    control : name of the variant that others are compared with, or {name: share} if it is to get
        exactly this share
    covariates : names of numbers that are known of a unit before it is assigned, at most five;
        `ask` is given their values, and they take noise away (docs/run/covariates.md)
    stop, looks, spending, futility : whether and when the test stops itself, see `Settings`; looks
        are a number
    values : the value of each variant, see `Settings`

    Notes
    -----
    Any unit of reward will do for Steady. The paper's policies pay for every unit by which all
    rewards are shifted: for money, seconds or ratings subtract a typical value from each reward.

    Every assignment needs its reward, zeros included. Where some never come, `forget` them, or
    `finish` the test: verdicts rest on the first visits, up to the first whose rewards may still
    come, because late rewards are not like those that came at once.

    A session may be used from several threads.

    If rewards are slow, policies that weigh by inverse propensities choose allocations from those
    that have come; policies of epochs need all rewards of an epoch, and `ask` says which are
    missing. Others go on with the current allocation.

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
        control: str | Mapping[str, float] | None = None,
        covariates: Sequence[str] = (),
        stop: Stop | None = None,
        looks: Looking | None = None,
        spending: Spending | None = None,
        futility: float | None = None,
        values: Mapping[str, Any] | Sequence[Any] | None = None,
    ) -> None:
        if looks in ("daily", "weekly"):
            raise InvalidInputError(
                f"looks is {looks!r}, but a session has no clock; give a number, such as looks=8.",
                field="looks",
            )
        self.settings = Settings(
            arms,
            policy,
            budget,
            seed,
            direction,
            missing="drop",
            control=control,  # type: ignore[arg-type]  # name and share are taken apart there
            covariates=covariates,  # type: ignore[arg-type]  # a tuple is made there
            stop=stop,
            looks=looks,
            spending=spending,
            futility=futility,
            values=values,  # type: ignore[arg-type]  # a mapping is made there
        )
        self._stopped: EarlyStop | None = None
        self._looked = 0  # looks that are done with: examined whether to stop at them
        self._lock = RLock()
        self._state: State = policy.start(arms, budget, trials=1, seed=self.seed)
        self._slopes = first_slopes(self.settings)  # from the closed segments
        self._finished = False
        self._asked = 0
        self._current: SegmentLedger | None = None  # that positions are assigned from
        self._open: dict[int, SegmentLedger] = {}  # that wait for rewards, by index
        self._closed: list[SegmentLedger] = []  # that the policy has observed, in this order
        # segment, arm and covariates, by number
        self._waiting: dict[int, tuple[int, int, Floats | None]] = {}
        self._least: float | None = None  # of the rewards, as the policy maximizes them
        self._largest: float | None = None

    def __repr__(self) -> str:
        return (
            f"Session({self.policy.name}, {self.arms.size} variants: {self.asked} of "
            f"{self.budget} assigned, {len(self._waiting)} rewards pending)"
        )

    @property
    def seed(self) -> int:
        """From which all draws follow."""
        return self.settings.seed

    @property
    def direction(self) -> Direction:
        """Whether rewards are maximized or minimized."""
        return self.settings.direction

    @property
    def asked(self) -> int:
        """The number of assignments so far."""
        return self._asked

    @property
    def pending(self) -> tuple[int, ...]:
        """Numbers of the assignments without a reward."""
        return tuple(self._waiting)

    @property
    def stopped(self) -> EarlyStop | None:
        """The look at which the test stopped itself, and why; None if it did not."""
        return self._stopped

    def ask(
        self, covariates: Mapping[str, float] | None = None, expected: float | None = None
    ) -> Assignment:
        """The next variant to show.

        covariates : numbers of the unit by covariate, those that are known; nothing that happens
            after the variant is shown may be among them
        expected : the covariate of that name, such as a prediction of the reward by a model
        """
        names, z = self.settings.covariates, None
        if names or covariates or expected is not None:
            z = covariate_row(names, covariates, expected)
        with self._lock:
            if self._stopped is not None:
                raise BudgetSpentError(
                    f"the test stopped itself after {self.asked} of {self.budget} assignments, at "
                    f"look {self._stopped.look}: {self._stopped.reason} Read the recommendation."
                )
            if self._finished:
                raise BudgetSpentError(
                    f"the session was finished after {self.asked} of {self.budget} assignments; "
                    "read the recommendation."
                )
            if self._current is None or self._current.exhausted:
                self._decide(need=True)
            current, number = self._current, self._asked
            assert current is not None
            arm, probability = current.assign(self.settings.seed, z)
            self._waiting[number] = current.index, arm, z
            self._asked += 1
        settings = self.settings
        value = settings.variant_values[arm]
        return Assignment(number, arm, settings.arms.names[arm], probability, value)

    def tell(self, assignment: Assignment | int, reward: float) -> None:
        """Record the reward of an assignment (or of its number); late and out of order is fine."""
        value = self.settings.check_reward(reward)
        value = value if self.settings.direction == "maximize" else -value
        with self._lock:
            self._settle(assignment, lambda ledger, arm, z: ledger.record(arm, value, z))
            self._least = value if self._least is None else min(self._least, value)
            self._largest = value if self._largest is None else max(self._largest, value)

    def forget(self, assignment: Assignment | int) -> None:
        """Declare that the reward of an assignment will never come.

        It counts like the mean of the same variant's rewards around it. That is right if rewards
        go missing whatever they would have been; if they are missing because there was none, such
        as a click that did not happen, record a 0 instead. `health` tests whether some variant
        loses more than others.
        """
        with self._lock:
            self._settle(assignment, _forget)

    def finish(self) -> None:
        """End the test: no more variants are assigned, and pending rewards will never come.

        They are forgotten, as by `forget`.
        """
        with self._lock:
            self._finished = True
            for number in self.pending:
                self._settle(number, _forget)

    def recommend(
        self,
        level: float = 0.95,
        anytime: bool | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> Verdict:
        """The best variant on mature visits: the first ones, up to those that wait for rewards.

        If the test may stop early, the verdict is that of its last look, and intervals hold at all
        looks at once with probability 0.95. Another `level`, `anytime` or `reward_range` asks for
        an analysis beside the looks.

        Parameters
        ----------
        level : probability with which intervals hold, for all variants at once
        anytime : by default intervals hold at all times at once with probability `level`, however
            often the verdict is read. Until the whole budget is assigned and no reward is pending
            they are those of a confidence sequence, which spends a fifth of the error probability,
            so that one may read it every day and stop when sure; then those of a single analysis,
            which spends the rest. False asks for a single analysis, True for the sequence; each
            then has the whole error probability.
        reward_range : (least, largest) reward that can occur; if given, a confidence sequence holds
            for tests of any size, else in large samples
        """
        return self.results().recommend(level, anytime, reward_range)

    def results(self) -> LiveResults:
        """All that the test says of itself as it is now, unaffected by what comes later."""
        with self._lock:
            return self._results(deepcopy(list(self._open.values())))  # closed ones are fixed

    def _results(self, still_open: Iterable[SegmentLedger]) -> LiveResults:
        ledgers = [ledger for ledger in (*self._closed, *still_open) if ledger.used]
        spent = self.asked >= self.budget
        over = spent or self._stopped is not None
        return LiveResults(
            self.settings,
            self._state,
            tuple(sorted(ledgers, key=lambda ledger: ledger.index)),
            ended=self._finished or (over and not self._waiting),
            spent=spent,
            least=self._least,
            largest=self._largest,
            stopped=self._stopped,
        )

    # Decisions

    def _decide(self, need: bool = False) -> None:
        """Do what follows from the ledgers: see `transition`."""
        settings, ledgers = self.settings, self._open.values()
        spare = self.budget - self._asked
        try:
            decision = transition(
                settings, self._state, ledgers, self._current, spare, need, self._slopes
            )
        except RewardsPendingError:
            numbers = [str(number) for number in self._waiting]
            some = ", ".join(numbers[:5]) + (", …" if len(numbers) > 5 else "")
            raise RewardsPendingError(
                f"{why_it_waits(self.policy)}; rewards still missing: {len(numbers)} (of "
                f"assignment {some}). Report them, or forget those that will never come."
            ) from None
        if decision is None:
            return
        self._state, self._slopes = decision.state, decision.slopes
        for ledger in decision.closed:
            del self._open[ledger.index]
            ledger.observed = True
        self._closed += decision.closed
        if self._current in decision.closed:
            self._current = None
        if decision.opened is not None:
            index = len(self._open) + len(self._closed)
            stats = SegmentStats.empty(1, decision.opened.columns)
            self._current = SegmentLedger(index, decision.opened, stats, decision.carried_on)
            if settings.covariates:
                c = 1 + len(settings.covariates)
                self._current.moments = Moments.empty(1, decision.opened.columns, c)
            self._open[index] = self._current
        if decision.superseded is not None:
            decision.superseded.supersede()
            if decision.superseded.complete:
                self._decide()

    def _settle(
        self,
        assignment: Assignment | int,
        enter: Callable[[SegmentLedger, int, Floats | None], None],
    ) -> None:
        """Enter what became of an assignment into its ledger, and decide if that completes it."""
        number = assignment.number if isinstance(assignment, Assignment) else assignment
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise InvalidInputError(
                f"the assignment is {assignment!r}; give an assignment, or its number."
            )
        if number not in self._waiting and 0 <= number < self._asked:
            raise RepeatedRewardError(
                f"assignment {number} has its reward already (or was forgotten); a reward is "
                "recorded once."
            )
        if number not in self._waiting:
            raise UnknownAssignmentError(
                f"assignment {number} was never made; {self._asked} were, numbered from 0."
            )
        index, arm, z = self._waiting[int(number)]
        if isinstance(assignment, Assignment) and assignment.arm != arm:
            raise UnknownAssignmentError(
                f"assignment {number} of this session showed {self.arms.names[arm]!r}, not "
                f"{assignment.name!r}; this one belongs to another session."
            )
        del self._waiting[int(number)]
        enter(ledger := self._open[index], arm, z)
        if ledger.complete:
            self._decide()
            self._stop_when_sure()

    def _stop_when_sure(self) -> None:
        """Stop the test if it is sure at a look that is not done with yet."""
        if self.settings.stop != "when sure" or self._stopped is not None or self._finished:
            return
        results = self._results(self._open.values())
        if len(results.looks) > self._looked and results.tells:
            self._stopped, done = stop_now(results)
            self._looked = len(results.looks) if done else self._looked

    # JSON

    def to_json(self) -> str:
        """The whole session as text; `from_json` goes on exactly where it stood."""
        settings, share = self.settings, self.settings.control_share
        control = settings.control if share is None else {settings.control: share}
        with self._lock:
            content = {
                "policy": self.policy.to_dict(),
                "arms": self.arms.to_dict(),
                **{name: getattr(settings, name) for name in PLAIN},
                "control": control,
                "slopes": None if self._slopes is None else self._slopes.to_dict(),
                "stopped": None if self._stopped is None else self._stopped.to_dict(),
                "looked": self._looked,
                "state": self._state.to_dict(),
                "asked": self._asked,
                "current": None if self._current is None else self._current.index,
                "open": [ledger.to_dict() for ledger in self._open.values()],
                "closed": [ledger.to_dict() for ledger in self._closed],
                "waiting": [
                    [number, index, arm, None if z is None else z.tolist()]
                    for number, (index, arm, z) in self._waiting.items()
                ],
                "least": self._least,
                "largest": self._largest,
                "finished": self._finished,
            }
            return json.dumps({"format": FORMAT, "sha256": _digest(content), "session": content})

    @classmethod
    def from_json(cls, text: str, policy: Policy[Any] | None = None) -> Session:
        """The session that `to_json` wrote; a policy of your own is given again.

        Parameters
        ----------
        text : the result of `to_json`
        policy : of your own, which the text only names

        Returns
        -------
        Session : it goes on where the other stood
        """
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, TypeError) as error:
            raise InvalidInputError(f"this is not the JSON of a session: {error}.") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            given = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise InvalidInputError(
                f"this is not a session of format {FORMAT} but {given!r}; another version of "
                "SteadyArm may have written it."
            )
        content: Any = data.get("session")
        if data.get("sha256") != _digest(content):
            raise InvalidInputError("this JSON of a session is incomplete or was changed.")
        arms, budget = ArmSet.from_dict(content["arms"]), content["state"]["budget"]
        policy = load_policy(content["policy"], policy, "Session.from_json(text, policy=…)")
        settings = {name: content[name] for name in ("control", *PLAIN)}
        session = cls(policy, arms, budget, **settings)
        session._read(content)
        return session

    def _read(self, content: Mapping[str, Any]) -> None:
        """Take over what `to_json` wrote."""
        size = self.arms.size
        c = 1 + len(self.settings.covariates) if self.settings.covariates else 0
        self._state = self.policy.state_type.from_dict(content["state"], self.arms)
        if c:
            self._slopes = Slopes.from_dict(content["slopes"], c)
        ledgers = [SegmentLedger.from_dict(entry, size, covariates=c) for entry in content["open"]]
        self._open = {ledger.index: ledger for ledger in ledgers}
        self._closed = [
            SegmentLedger.from_dict(entry, size, True, c) for entry in content["closed"]
        ]
        self._current = None if content["current"] is None else self._open[content["current"]]
        self._asked, self._finished = content["asked"], content["finished"]
        self._waiting = {
            number: (index, arm, None if z is None else np.array(z, dtype=np.float64))
            for number, index, arm, z in content["waiting"]
        }
        self._least, self._largest = content["least"], content["largest"]
        if content["stopped"] is not None:
            self._stopped = EarlyStop.from_dict(content["stopped"])
        self._looked = content["looked"]


def _digest(content: Any) -> str:
    """A hash of what a session wrote, by which changes are noticed."""
    return sha256(json.dumps(content).encode()).hexdigest()


def _forget(ledger: SegmentLedger, arm: int, z: Floats | None) -> None:
    ledger.forget(arm)
