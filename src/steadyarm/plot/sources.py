"""Charts of an experiment, a scorecard, a session or an analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from steadyarm.analysis import Analysis
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.inference import DriftReport
from steadyarm.inference.sequences import confidence_path
from steadyarm.live.effects import Effects, bundles_in, compute_effects, has_effects
from steadyarm.live.experiment import Experiment
from steadyarm.live.metrics import REWARD
from steadyarm.live.scorecard import (
    Course,
    Scorecard,
    Shares,
    compute_course,
    compute_scorecard,
    compute_shares,
)
from steadyarm.live.session import Session
from steadyarm.live.verdict import Verdict
from steadyarm.plot import live, standings
from steadyarm.plot.spec import Measure, Spec, thin_out
from steadyarm.segments import Direction

Test = Experiment | Scorecard | Session | Analysis
Seen = Scorecard | Session | Analysis
Part = TypeVar("Part")

LOOKS = 60  # ends of pieces at which the estimates of a log are drawn


def chart_for(name: str, test: Test) -> Spec:
    """The chart of that name (one of `CHARTS`) of a test.

    Examples
    --------
    >>> import steadyarm as sa
    >>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=500, seed=3)
    >>> for _ in range(500):
    ...     a = session.ask()
    ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
    >>> chart_for("leaderboard", session)["data"]["values"][0]["variant"]
    'B'
    """
    seen = compute_scorecard(test) if isinstance(test, Experiment) else test
    if not isinstance(seen, (Scorecard, Session, Analysis)):
        raise InvalidInputError(
            f"test is {type(test).__name__}; pass an Experiment, a Session, an Analysis or a "
            "Scorecard."
        )
    return CHARTS[name](seen)


def has_rates(test: Seen) -> bool:
    """Whether rewards were declared to be yes or no (1 or 0): means are shown in per cent then.

    A log declares nothing.
    """
    return not isinstance(test, Analysis) and test.settings.reward_range == (0.0, 1.0)


def measure_of(test: Seen) -> Measure:
    """The measure that the estimates of a test have."""
    rates = has_rates(test)
    if isinstance(test, Analysis) or test.settings.primary.name == REWARD:
        return Measure(rates=rates)
    return Measure(test.settings.primary.name, test.settings.primary.unit, rates)


def pick_variants(test: Seen) -> list[str] | None:
    """The variants that all charts over time draw, in one order; None before there is a verdict."""
    try:
        return live.nearest(_verdict(test))
    except SteadyArmError:
        return None


CHARTS: dict[str, Callable[[Seen], Spec]] = {
    "estimates": lambda test: live.estimates(_course(test), pick_variants(test), measure_of(test)),
    "allocation": lambda test: live.allocation(_shares(test), pick_variants(test)),
    "leaderboard": lambda test: standings.leaderboard(
        _verdict(test), _direction(test), measure_of(test)
    ),
    "lifts": lambda test: standings.lifts(_verdict(test), _direction(test), has_rates(test)),
    "drift": lambda test: live.drift(_drift_report(test), pick_variants(test), has_rates(test)),
    "effects": lambda test: standings.effects(_effects_of(test), has_rates(test)),
    "interactions": lambda test: standings.interactions(_effects_of(test), has_rates(test)),
    "waiting": lambda test: _waiting(test),
}


def _waiting(test: Seen) -> Spec:
    if not isinstance(test, Scorecard):
        raise InvalidInputError(
            f"a {type(test).__name__} has no times of rewards; pass an Experiment."
        )
    return live.waiting(_require(test, test.waiting, "rewards to wait for"))


def _require(card: Scorecard, part: Part | None, what: str) -> Part:
    """A part of a scorecard; the error says why there is none."""
    if part is None:
        policy = card.settings.policy.name
        why = card.obstacle or f"{policy} does not give them, or nothing came yet"
        raise InvalidInputError(f"test {card.name!r} has no {what} to draw: {why.rstrip('.')}.")
    return part


def _course(test: Seen) -> Course:
    if isinstance(test, Session):
        return compute_course(test.results(), test.budget)
    if isinstance(test, Analysis):
        return _course_of_log(test)
    return _require(test, test.course, "estimates over time")


def _course_of_log(found: Analysis) -> Course:
    """The end of the log, where intervals are tightest; a log has no budget."""
    evidence, level = found.evidence, found.intervals.level
    at = thin_out(evidence.rounds.shape[1], LOOKS)
    path = confidence_path(evidence, int(evidence.played[0]), level, None, at)

    def stack(name: str) -> Any:
        return np.array([getattr(intervals, name)[0] for intervals in path])

    return Course(
        names=path[0].arms.names,
        times=None,
        leaders=stack("recommended"),
        level=level,
        size=found.arms.size if path[0].shown is not None else 0,
        **{name: stack(name) for name in ("rounds", "estimates", "low", "high", "plausible")},
    )


def _shares(test: Seen) -> Shares:
    if isinstance(test, Analysis):
        raise InvalidInputError(
            "an Analysis has no counts of segments; pass an Experiment or a Session."
        )
    if isinstance(test, Scorecard):
        return _require(test, test.shares, "assignments")
    pieces = [piece for piece in test.results().pieces if piece.assigned.sum()]
    if not pieces:
        raise InvalidInputError("the test has no visits yet; shares need at least one.")
    return compute_shares(test.arms.names, pieces)


def _drift_report(test: Seen) -> DriftReport:
    if isinstance(test, Scorecard):
        return _require(test, test.drift, "periods to compare")
    return test.drift() if isinstance(test, Session) else test.drift


def _effects_of(test: Seen) -> Effects:
    arms = test.settings.arms if isinstance(test, Scorecard) else test.arms
    if not has_effects(arms):
        raise InvalidInputError(
            "only tests with ArmSet.factorial or ArmSet.bundles have effects of factors or items."
        )
    if isinstance(test, Scorecard):
        return _require(test, test.effects, "effects")
    evidence = test.evidence() if isinstance(test, Session) else test.evidence
    bundle = _verdict(test).arm if bundles_in(arms) is not None else None
    return compute_effects(evidence, arm=bundle)


def _verdict(test: Seen) -> Verdict:
    if isinstance(test, Scorecard):
        return _require(test, test.verdict, "verdict")
    return test.recommend() if isinstance(test, Session) else test.verdict


def _direction(test: Seen) -> Direction:
    return test.evidence.direction if isinstance(test, Analysis) else test.settings.direction
