"""Checks that every policy must pass, your own included.

    from steadyarm.testing.policies import CHECKS
    for check in CHECKS:
        check(MyPolicy())

Each check raises an AssertionError that says what was broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import BudgetSpentError, RewardsPendingError
from steadyarm.live.lifecycle import create_experiment, load_experiment
from steadyarm.live.session import Session
from steadyarm.policies.base import Policy, State
from steadyarm.segments import Segment, SegmentStats
from steadyarm.storages import open_storage

__all__ = ["CHECKS", "check_arm_sets"]

AnyPolicy = Policy[Any]


def check_arm_sets() -> dict[str, ArmSet]:
    """Small arm sets of different shapes, on which the checks run.

    Returns
    -------
    arm sets by a name that says what is special about them

    Examples
    --------
    >>> check_arm_sets()["six one-hot"]
    ArmSet(6 arms, 6 features)
    """
    rng = np.random.default_rng(20)
    angle = 0.3
    return {
        "two one-hot": ArmSet.one_hot(["A", "B"]),
        "six one-hot": ArmSet.one_hot(list("ABCDEF")),
        "soare": ArmSet.from_features(
            np.vstack([np.eye(4), [np.cos(angle), np.sin(angle), 0.0, 0.0]])
        ),
        "factorial": ArmSet.factorial({"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]}),
        "gaussian": ArmSet.from_features(rng.normal(size=(9, 3))),
        "one feature": ArmSet.from_features([[1.0], [1.1], [0.5]]),
        "dependent features": ArmSet.bundles(list("wxyz"), size=2),
    }


def check_probabilities(policy: AnyPolicy) -> None:
    """Allocations are probabilities, and a shuffled one plays whole numbers."""
    for arms, budget in _cases():
        for _, segment, _ in _run(policy, arms, budget, trials=3, seed=1):
            playing = segment.rounds > 0
            assert (segment.weights >= 0).all(), "a probability is negative"
            total = segment.weights[playing].sum(axis=1)
            assert np.allclose(total, 1.0, atol=1e-9), f"probabilities sum to {total}"
            if segment.order == "shuffled":
                whole = segment.weights * segment.rounds[:, None]
                assert np.allclose(whole, np.rint(whole), atol=1e-6), "not a whole number of plays"


def check_unbiased_allocations_span(policy: AnyPolicy) -> None:
    """Each allocation of a policy that calls itself unbiased reaches all directions of the arms."""
    if not policy.unbiased:
        return
    for arms, budget in _cases():
        for _, segment, _ in _run(policy, arms, budget, trials=3, seed=1):
            for weights in segment.weights[segment.rounds > 0]:
                rank = np.linalg.matrix_rank(arms.coordinates[weights > 0])
                assert rank == arms.rank, (
                    f"an allocation reaches {rank} of {arms.rank} directions of the arms, so that "
                    "scores by inverse propensity are biased; set unbiased to False or play more."
                )


def check_same_seed_same_run(policy: AnyPolicy) -> None:
    """The same seeds give the same run to the last bit."""
    for arms, budget in _cases():
        runs = [_history(policy, arms, budget) for _ in range(2)]
        assert runs[0] == runs[1], "two runs with the same seed differ"


def check_batch_equals_members(policy: AnyPolicy) -> None:
    """A trial goes the same way in a batch and alone, but for rounding."""
    for arms, budget in _cases():
        for state, segment, stats in _run(policy, arms, budget, trials=4, seed=2):
            after = policy.observe(state, segment, stats)
            for i in range(4):
                alone = policy.next_segment(state.trial(i))
                if segment.rounds[i] == 0:
                    assert alone is None, "a trial has ended in the batch but not alone"
                    continue
                assert alone is not None, "a trial has ended alone but not in the batch"
                assert _alike(alone.weights, segment.weights[i : i + 1])
                assert np.array_equal(alone.rounds, segment.rounds[i : i + 1])
                one = policy.observe(state.trial(i), alone, _row(stats, i))
                _assert_same_state(one, after.trial(i))
                batched = policy.recommend(after)
                assert policy.recommend(one).arm[0] == batched.arm[i]


def check_state_survives_json(policy: AnyPolicy) -> None:
    """A state written as JSON and read back goes on identically."""
    for arms, budget in _cases():
        for state, segment, stats in _run(policy, arms, budget, trials=2, seed=3):
            text = json.dumps(state.to_dict())
            copy = type(state).from_dict(json.loads(text), arms)
            _assert_same_state(copy, state)
            again = policy.next_segment(copy)
            assert again is not None, "a state read back has ended"
            assert np.array_equal(again.weights, segment.weights)
            _assert_same_state(
                policy.observe(copy, again, stats), policy.observe(state, segment, stats)
            )


def check_methods_are_pure(policy: AnyPolicy) -> None:
    """No method changes the state or the statistics it is given."""
    for arms, budget in _cases():
        for state, segment, stats in _run(policy, arms, budget, trials=2, seed=4):
            before = json.dumps(state.to_dict())
            sums = stats.sums.copy()
            policy.next_segment(state)
            policy.observe(state, segment, stats)
            policy.recommend(state)
            assert json.dumps(state.to_dict()) == before, "a method changed the state"
            assert np.array_equal(stats.sums, sums), "observe changed the statistics"


def check_budget_is_kept(policy: AnyPolicy) -> None:
    """No trial plays more than its budget, every run ends, and an arm is recommended."""
    for arms in check_arm_sets().values():
        for budget in (*range(1, 21), 29, 37, 50):
            played = np.zeros(2, dtype=np.int64)
            state = policy.start(arms, budget, trials=2, seed=5)
            for before, segment, stats in _run(policy, arms, budget, trials=2, seed=5):
                assert (segment.rounds >= 0).all()
                assert segment.rounds.any(), "a segment without any round"
                played += segment.rounds
                state = policy.observe(before, segment, stats)
            assert (played <= budget).all(), f"played {played} of {budget} rounds"
            arm = policy.recommend(state).arm
            assert ((arm >= 0) & (arm < arms.size)).all()


def check_easy_instance(policy: AnyPolicy) -> None:
    """The policy recommends the best arm if it is far ahead and noise is low.

    Each arm is the best in turn, among four separate arms and among four layouts, and leads by at
    least half of the range of the means; noise has a tenth of that range. A policy that errs in 5 %
    of tests passes all but once in 10⁹; one that guesses fails as surely.
    """
    trials = 50
    for arms in _easy_arm_sets():
        wrong = 0
        for best in range(arms.size):
            rng = np.random.default_rng(best)
            means = _easy_means(arms, best)
            state: State = policy.start(arms, 200, trials=trials, seed=best)
            while (segment := policy.next_segment(state)) is not None:
                state = policy.observe(state, segment, _draw(segment, means, rng, sd=0.1))
            found = policy.recommend(state)
            wrong += int((found.arm != best).sum())
            chosen = found.estimates[np.arange(trials), found.arm]
            assert np.isfinite(chosen).all(), (
                f"the estimates of recommended arms are {np.unique(chosen)}; estimates of arms "
                "that were played must be finite"
            )
        limit = int(scipy.stats.binom.isf(1e-9, arms.size * trials, 0.05))
        assert wrong <= limit, (
            f"{wrong} of {arms.size * trials} recommendations were wrong in an easy world, where a "
            f"sound policy is wrong in at most {limit}; does recommend() name the arm with the "
            "highest estimate, and among the arms that are left?"
        )


def check_recommends_an_arm_that_is_left(policy: AnyPolicy) -> None:
    """No arm is recommended whose estimate was masked with -inf while another has one."""
    for arms, budget in _cases():
        state: State = policy.start(arms, budget, trials=3, seed=8)
        for before, segment, stats in _run(policy, arms, budget, trials=3, seed=8):
            state = policy.observe(before, segment, stats)
        found = policy.recommend(state)
        chosen = found.estimates[np.arange(3), found.arm]
        masked = (chosen == -np.inf) & np.isfinite(found.estimates).any(axis=1)
        assert not masked.any(), (
            f"the recommended arms have the estimates {chosen.tolist()}; rank with "
            "rank_arms(estimates, ties, among=…), which leaves out arms that do not count"
        )


def check_older_allocations(policy: AnyPolicy) -> None:
    """Rewards of an older allocation are taken up, weighed by the allocation they were drawn from.

    A live test goes on while rewards are outstanding, so that `observe` may get a segment whose
    weights are not those of the state. Policies that wait for all rewards need not know of this.
    """
    if policy.waits:
        return
    rounds, shares = 20, np.array([[0.4, 0.3, 0.2, 0.1]])
    for arms in _easy_arm_sets():
        for best in range(arms.size):
            means, weights = _easy_means(arms, best), np.roll(shares, best, axis=1)
            counts = np.rint(rounds * weights).astype(np.int64)
            stats = SegmentStats(counts, counts * means, counts * means**2)
            state: State = policy.start(arms, 200, seed=best)
            segment = Segment(weights, np.array([rounds]))
            after = policy.observe(state, segment, stats)
            assert (after.played == rounds).all(), "rounds of an older allocation do not count"
            found = policy.recommend(after)
            assert found.arm[0] == best, (
                "rewards of an older allocation were not taken up: after a segment without noise "
                f"arm {found.arm[0]} is recommended instead of {best}; observe() must not ask "
                "whether the segment has the weights of the state"
            )
            assert not policy.unbiased or np.allclose(found.estimates, means, atol=1e-6), (
                f"rewards of an older allocation were weighed wrongly: the means {means} are "
                f"estimated as {found.estimates[0]}; observe() must read segment.weights"
            )


def check_late_rewards(policy: AnyPolicy) -> None:
    """A session whose rewards come late and out of order finds the best arm of an easy world.

    One that is written as JSON and read back half-way assigns and concludes as if it were not.
    """
    sessions = 8
    for arms in _easy_arm_sets():
        runs = [_late_session(policy, arms, seed, copied=False) for seed in range(sessions)]
        again = _late_session(policy, arms, 3, copied=True)
        assert runs[3] == again, "a session that was written and read back goes another way"
        wrong = sum(run[-1] != seed % arms.size for seed, run in enumerate(runs))
        assert wrong <= sessions // 2, (
            f"{wrong} of {sessions} easy tests were wrong whose rewards came a few rounds late"
        )


def check_stored_experiment(policy: AnyPolicy) -> None:
    """A stored test with late and repeated rewards is loaded again, concluded, and replays."""
    for arms in _easy_arm_sets():
        storage = open_storage("memory")
        create_experiment(
            "check",
            arms,
            policy,
            budget=40,
            storage=storage,
            seed=9,
            missing="drop",
            after="refuse",
        )
        rng, waiting = np.random.default_rng(9), []
        for number in range(40):
            test = load_experiment("check", storage, policy=policy)
            try:
                waiting.append(test.ask(f"unit {number}"))
            except RewardsPendingError:
                assert policy.waits, "the policy does not wait, but asks for rewards"
            except BudgetSpentError:
                assert number > 0, "the policy ends before the first round"
            if len(waiting) == 5 or number > 34:
                rng.shuffle(waiting)
                for shown in waiting:
                    for _ in range(2):  # the second time changes nothing
                        test.tell(shown, 1.0 + shown.arm / 10)
                waiting = []
        test = load_experiment("check", storage, policy=policy)
        replayed = test.replay()
        assert not replayed.differences, f"the test does not replay: {replayed.differences}"
        assert 0 <= test.recommend(anytime=False).arm < arms.size


def _late_session(policy: AnyPolicy, arms: ArmSet, seed: int, copied: bool) -> list[Any]:
    """The assignments of a session whose rewards come in a random order, a few rounds late."""
    session = Session(policy, arms, budget=60, seed=seed)
    rng, waiting, shown = np.random.default_rng(seed), [], []
    means = _easy_means(arms, seed % arms.size)
    for number in range(60):
        try:
            assigned = session.ask()
        except RewardsPendingError:
            assert policy.waits, "the policy does not wait, but asks for rewards"
        except BudgetSpentError:
            assert number > 0, "the policy ends before the first round"
        else:
            waiting.append((assigned.number, assigned.arm))
            shown.append((assigned.number, assigned.arm, assigned.probability))
        while len(waiting) > 6 or (waiting and (number > 50 or policy.waits)):
            place, arm = waiting.pop(int(rng.integers(len(waiting))))
            session.tell(place, means[arm] + 0.1 * rng.normal())
        if copied and number == 30:
            session = Session.from_json(session.to_json(), policy=policy)
    return [*shown, session.recommend(anytime=False).arm]


CHECKS: tuple[Callable[[AnyPolicy], None], ...] = (
    check_probabilities,
    check_unbiased_allocations_span,
    check_same_seed_same_run,
    check_batch_equals_members,
    check_state_survives_json,
    check_methods_are_pure,
    check_budget_is_kept,
    check_easy_instance,
    check_recommends_an_arm_that_is_left,
    check_older_allocations,
    check_late_rewards,
    check_stored_experiment,
)
"""Every check, each called with a policy; AssertionError says what is broken."""


def _easy_arm_sets() -> tuple[ArmSet, ...]:
    factors = {"a": ["0", "1"], "b": ["0", "1"]}
    return ArmSet.one_hot(list("ABCD")), ArmSet.factorial(factors, interactions=1)


def _easy_means(arms: ArmSet, best: int) -> NDArray[np.float64]:
    """(K,) means from 0 to 1, of which that of one arm is far above all others."""
    shared = arms.coordinates @ arms.coordinates[best]
    return np.asarray((shared - shared.min()) / (shared.max() - shared.min()))


def _cases() -> Iterator[tuple[ArmSet, int]]:
    for arms in check_arm_sets().values():
        for budget in (1, 7, 60):
            yield arms, budget


def _run(
    policy: AnyPolicy, arms: ArmSet, budget: int, trials: int, seed: int
) -> Iterator[tuple[State, Segment, SegmentStats]]:
    """Each state, the segment that follows it and its rewards, in a drifting noisy world."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=arms.rank)
    state: State = policy.start(arms, budget, trials=trials, seed=seed)
    while (segment := policy.next_segment(state)) is not None:
        means = arms.coordinates @ (theta + 0.3 * rng.normal(size=arms.rank))
        stats = _draw(segment, means, rng)
        yield state, segment, stats
        state = policy.observe(state, segment, stats)


def _draw(
    segment: Segment, means: NDArray[np.float64], rng: np.random.Generator, sd: float = 1.0
) -> SegmentStats:
    if segment.order == "shuffled":
        counts = segment.counts
    else:
        counts = rng.multinomial(segment.rounds, segment.weights)
    noise = rng.normal(size=counts.shape)
    squares = counts * (means**2 + sd**2)
    return SegmentStats(counts, counts * means + sd * np.sqrt(counts) * noise, squares)


def _row(stats: SegmentStats, i: int) -> SegmentStats:
    assert stats.squares is not None
    return SegmentStats(stats.counts[i : i + 1], stats.sums[i : i + 1], stats.squares[i : i + 1])


def _history(policy: AnyPolicy, arms: ArmSet, budget: int) -> list[str]:
    run = _run(policy, arms, budget, trials=2, seed=6)
    return [
        json.dumps([state.to_dict(), segment.weights.tolist(), segment.rounds.tolist()])
        for state, segment, _ in run
    ]


def _alike(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether whole numbers are equal, and other numbers so up to rounding."""
    if not np.issubdtype(a.dtype, np.floating):
        return np.array_equal(a, b)
    size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return a.shape == b.shape and np.allclose(a, b, 1e-9, 1e-9 * size, equal_nan=True)


def _assert_same_state(one: State, other: State) -> None:
    assert type(one) is type(other)
    for f in fields(one):
        a, b = getattr(one, f.name), getattr(other, f.name)
        arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        same = _alike(a, b) if arrays else a == b
        assert same, f"{f.name} differs: {a} and {b}"
