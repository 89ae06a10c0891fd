"""Whole tests to the bit: hashes of assignments, allocations, estimates, limits and stops.

``python tests/fingerprint.py`` prints them as JSON; ``--write`` stores them beside this file, which
is right only after a change that is meant to change numbers. ``--only one`` runs a part.
Numba's cache does not notice when a kernel that another module calls has changed: before writing,
remove what it kept, ``find src -name "*.nb[ci]" -delete``.
`test_fingerprint` runs this on other kinds of processors and compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import steadyarm as sa
from steadyarm.compiled import compiling
from steadyarm.errors import BudgetSpentError
from steadyarm.policies import POLICIES
from steadyarm.segments import SegmentStats
from steadyarm.storages import open_storage

__all__ = ["fingerprints", "first_difference", "stored"]

STORED = Path(__file__).with_name("fingerprint.json")
BUDGET, STOP_BUDGET = 90, 600
Parts = dict[str, str]


@cache
def arm_sets() -> dict[str, sa.ArmSet]:
    """A set of each kind that is small enough for every policy."""
    rng = np.random.default_rng(3)
    shares, years = rng.random((8, 2)), 2000.0 + np.arange(8.0)
    dependent = [*shares.T, years, 1e6 * shares.sum(axis=1), years - shares[:, 0]]
    return {
        "one-hot": sa.ArmSet.one_hot(["A", "B", "C", "D"]),
        "factorial": sa.ArmSet.factorial({"a": ["x", "y"], "b": ["x", "y", "z"], "c": ["x", "y"]}),
        "bundles": sa.ArmSet.bundles(["p", "q", "r", "s", "t"], size=2),
        "features": sa.ArmSet.from_features(np.column_stack(dependent)),
    }


@cache
def large_sets() -> dict[str, sa.ArmSet]:
    """Sets that policies play with few arms at a time."""
    items = [f"item {i}" for i in range(16)]
    features = np.random.default_rng(4).random((30_000, 9))
    return {
        "slots": sa.ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(15)}, 1),
        "levels": sa.ArmSet.factorial({f"part {i}": ["a", "b", "c"] for i in range(9)}, 1),
        "five of sixteen": sa.ArmSet.bundles(items, size=5, interactions=2),
        "table": sa.ArmSet.from_features(np.hstack([features, 1e4 * features[:, :1] + 1e4])),
    }


def hashed(*parts: Any) -> str:
    """A short hash of arrays, to the bit, and of texts."""
    digest = hashlib.sha256()
    for part in parts:
        array = part if isinstance(part, np.ndarray) else None
        digest.update(str(part).encode() if array is None else array.tobytes())
    return digest.hexdigest()[:12]


def policies() -> Iterator[sa.Policy[Any]]:
    """Every policy, with a control variate where there is one to have."""
    for policy in POLICIES.values():
        yield policy()
    yield sa.P1RAGE(control_variate=True)
    yield sa.P1Peace.published()


def reward(arm: int, t: int) -> float:
    """A reward that drifts, from whole numbers and sums alone."""
    noise = (1103515245 * (t + 7 * arm + 1) + 12345) % 2147483648 / 2147483648
    return (arm * 37 % 11) / 11 + (0.5 if t % 30 < 12 else 0.0) * (arm % 3) + noise


def in_session(policy: sa.Policy[Any], arms: sa.ArmSet) -> Parts:
    """A test in memory, written as JSON and read again in the middle."""
    session = sa.Session(policy, arms, BUDGET, seed=11)
    middle, names = "", []
    for t in range(BUDGET):
        if t == BUDGET // 2:
            middle = session.to_json()
            session = sa.Session.from_json(middle)
        try:
            assignment = session.ask()
        except BudgetSpentError:  # policies of epochs may end early
            break
        names.append(f"{assignment.arm} {assignment.probability!r}")
        session.tell(assignment, reward(assignment.arm, t))
    verdict = session.recommend()
    return {
        "coordinates": hashed(json.dumps(arms.to_dict())),
        "first half": hashed(middle),
        "assignments": hashed(names),
        "second half": hashed(session.to_json()),
        "estimates": hashed(np.asarray(verdict.estimates), verdict.arm),
        "limits": limits(verdict),
        "verdict": hashed(verdict),
    }


def limits(verdict: sa.Verdict) -> str:
    """A hash of all that a decision reads, to the bit."""
    lifts = (verdict.lifts, verdict.lift_intervals, verdict.relative, verdict.relative_intervals)
    return hashed(
        verdict.standard_errors,
        np.ascontiguousarray(verdict.intervals),
        np.ascontiguousarray(verdict.gap_intervals),
        *(np.ascontiguousarray(array) for array in lifts if array is not None),
        verdict.plausible,
        verdict.sure,
        verdict.decision,
    )


def in_stopping(arms: sa.ArmSet, clicks: bool, lead: float, **settings: Any) -> Parts:
    """A session that may stop itself: what it found at each look, and where it ended."""
    session = sa.Session(sa.Steady(), arms, STOP_BUDGET, seed=21, **settings)
    taken, found, looks = settings["looks"], [], 0
    for t in range(STOP_BUDGET):
        if session.stopped is not None:
            break
        noise = reward(0, 13 * t) % 1.0
        assignment = session.ask({"before": noise} if settings.get("covariates") else None)
        mean = 0.3 + lead * (assignment.arm == arms.size - 1) + 0.1 * (t % 30 < 12)
        surprise = reward(assignment.arm, t) % 1.0
        value = float(surprise < mean) if clicks else mean + surprise + noise
        session.tell(assignment, value)
        if (t + 1) * taken // STOP_BUDGET > looks:
            looks += 1
            verdict = session.recommend()
            found.append(limits(verdict) + hashed(verdict.stopping))
    results = session.results()
    watched = results.recommend(anytime=True)
    bounded = results.recommend(anytime=True, reward_range=(0.0, 3.0))
    return {
        "looks": hashed(found),
        "stopped": hashed(session.stopped, session.asked),
        "at all times": limits(watched),
        "with a range": limits(bounded),
        "once": limits(results.recommend(anytime=False)),
    }


def stops() -> Iterator[tuple[str, Callable[[], Parts]]]:
    """Sessions that may stop themselves: stopped early, late and never."""
    plain, mixed = sa.ArmSet.one_hot(list("ABC")), arm_sets()["factorial"]
    pair = sa.ArmSet.one_hot(["A", "B"])
    when = {"stop": "when sure", "looks": 5}
    pocock, futile = when | {"spending": "pocock"}, when | {"futility": 0.3}
    for clicks in (True, False):
        kind = "clicks" if clicks else "amounts"
        for name, arms, lead, settings in (
            ("against a control", plain, 0.25, when | {"control": "A"}),
            ("two variants", pair, 0.2, pocock),
            ("no difference", plain, 0.0, futile | {"control": "A"}),
            ("parts", mixed, 0.35, pocock),
            ("covariate", plain, 0.15, when | {"covariates": ["before"]}),
        ):
            run = partial(in_stopping, arms, clicks, lead, **settings)
            yield f"session: stops, {kind}: {name}", run


def in_storage(policy: sa.Policy[Any], arms: sa.ArmSet) -> Parts:
    """The same in a storage, with a clock that goes by minutes, and its replay."""
    now = [1_780_000_000.0]
    storage = open_storage("memory")
    live = sa.create_experiment(
        "test", arms, policy, BUDGET, storage, seed=12, missing="drop", clock=lambda: now[0]
    )
    names = []
    for t in range(BUDGET):
        now[0] += 60.0
        assignment = live.ask(f"visitor {t}")
        if not assignment.in_test:  # policies of epochs may end early
            break
        arm = arms.index(assignment.name)
        names.append(f"{arm} {assignment.probability!r}")
        live.tell(assignment, reward(arm, t))
    verdict = live.recommend()
    replayed = live.replay()
    assert replayed.agrees, str(replayed)
    kept = storage.snapshot(storage.find("test").key, everything=True)
    weights = [kept_segment.segment.weights for kept_segment, *_ in kept.segments]
    return {
        "weights": hashed(*weights),
        "assignments": hashed(names),
        "estimates": hashed(np.asarray(verdict.estimates), verdict.arm),
        "verdict": hashed(verdict),
    }


def in_simulation(policy: sa.Policy[Any], world: sa.Environment) -> Parts:
    """A batch of simulated tests: every allocation and every sum of rewards."""
    rng = np.random.default_rng(13)
    state = policy.start(world.arms, world.budget, trials=3, seed=14)
    weights, sums = [], []
    while (segment := policy.next_segment(state)) is not None:
        stats: SegmentStats = world.play(segment, state.played, rng, squares=True)
        weights.append(hashed(segment.weights))
        sums.append(hashed(stats.sums, stats.squares))
        state = policy.observe(state, segment, stats)
    found = policy.recommend(state)
    results = sa.simulate(policy, world, trials=5, seed=15)
    return {
        "first allocation": weights[0],
        "rewards": hashed(sums),
        "allocations": hashed(weights),
        "estimates": hashed(found.estimates, found.arm),
        "simulate": hashed(sorted(results.recommended.items()), results),
    }


@cache
def worlds() -> dict[str, sa.Environment]:
    """Means that oscillate, wander and stay, with noise of each kind."""
    arms = arm_sets()["factorial"]
    theta = np.linspace(0.1, 0.3, arms.dimension)
    return {
        "oscillating": sa.environments.soare_oscillating(budget=BUDGET, d=4, period=40),
        "multivariate": sa.environments.multivariate(slots=3, seed=2, scale=2, budget=BUDGET),
        "wandering": sa.environments.random_walk(
            arms, theta, 0.02, BUDGET, seed=5, noise=sa.BoundedNoise(0.5)
        ),
        "clicks": sa.Environment.from_means(
            sa.ArmSet.one_hot(["A", "B", "C"]),
            [0.2, 0.3, 0.25],
            noise=sa.BernoulliReward(),
            budget=BUDGET,
        ),
    }


def runs() -> Iterator[tuple[str, Callable[[], Parts]]]:
    """Name of each whole test, and what runs it."""
    for policy in policies():
        variate = ", control variate" if getattr(policy, "control_variate", None) else ""
        kind = f"{policy.name}{variate}, {getattr(policy, 'solver', 'no')} solver"
        for name, arms in arm_sets().items():
            yield f"session: {kind}: {name}", partial(in_session, policy, arms)
            yield f"storage: {kind}: {name}", partial(in_storage, policy, arms)
        for name, world in worlds().items():
            yield f"simulation: {kind}: {name}", partial(in_simulation, policy, world)
    for policy in (sa.Steady(), sa.P1RAGE(), sa.GBAI()):
        for name, arms in large_sets().items():
            yield f"session: {policy.name}: {name}", partial(in_session, policy, arms)
    yield from stops()


def fingerprints(only: str = "") -> dict[str, Parts]:
    """Hashes of the parts of each whole test, in the order in which they come about."""
    found = {}
    for name, run in runs():
        if only in name:
            try:
                found[name] = run()
            except Exception as error:
                error.add_note(f"in {name}")
                raise
    return found


def stored() -> dict[str, Parts]:
    """The hashes in the repository."""
    found: dict[str, Parts] = json.loads(STORED.read_text())
    return found


def first_difference(found: dict[str, Parts], expected: dict[str, Parts]) -> str | None:
    """Where the first whole test begins to differ, and how many do; None if none does."""
    differing = [name for name in found if found[name] != expected.get(name)]
    if not differing:
        return None
    name = differing[0]
    parts = expected.get(name, {})
    part = next(part for part, value in found[name].items() if parts.get(part) != value)
    return f"{part!r} of {name!r} (of {len(found)} whole tests {len(differing)} differ)"


def main() -> None:
    """Print or write the hashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="of the whole tests with this in their name")
    parser.add_argument("--write", action="store_true", help="store them in the repository")
    options = parser.parse_args()
    with compiling():
        text = json.dumps(fingerprints(options.only), indent=1)
    if options.write:
        STORED.write_text(text + "\n")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
