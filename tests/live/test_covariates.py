"""Covariates in sessions and stored experiments, and all that follows them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.covariates import Moments
from steadyarm.estimators import ips
from steadyarm.live.breakdowns import compute_breakdown
from steadyarm.live.results import compute_results, results_by_day
from steadyarm.live.units import KNOWN
from steadyarm.storages import open_storage
from steadyarm.storages.records import place_of
from tests.live.tampering import tamper, tamper_with_state
from tests.live.worlds import DAY, Clock, create
from tests.storages.bench import together
from tests.storages.databases import fresh_database

ARMS = ["A", "B", "C"]
NAMES = ("spend", "visits")


class World:
    """Visitors whose reward follows from what is known of them; of some nothing is known."""

    def __init__(self, seed: int = 5) -> None:
        self.random = random.Random(seed)

    def visitor(self) -> dict[str, float | None] | None:
        """Covariates of the next visitor."""
        if self.random.random() < 0.2:
            return None
        spend = self.random.gauss(40.0, 10.0)
        return {"spend": spend, "visits": self.random.choice([None, 1.0, 2.0, 5.0])}

    def reward(self, arm: int, known: dict[str, float | None] | None) -> float:
        """What the visitor brings."""
        given = known or {}
        base = 0.05 * (given.get("spend") or 30.0) + 0.3 * (given.get("visits") or 0.0)
        return base + 0.2 * arm + self.random.gauss(0.0, 0.4)


def created(**settings: Any) -> sa.Experiment:
    return create(**{"name": "e", "budget": 400, "seed": 3, "covariates": list(NAMES)} | settings)


def play(live: sa.Experiment, visits: Iterable[int], world: World, lost: float = 0.0) -> None:
    for t in visits:
        known = world.visitor()
        shown = live.ask(f"u{t}", covariates=known)
        reward = world.reward(shown.arm, known)
        if world.random.random() >= lost:
            live.tell(shown, reward)


def check_moments(live: sa.Experiment, pieces: Iterable[Any], zero: bool = False) -> None:
    """The sums of each segment are those that are computed row by row."""
    names, log = live.settings.covariates, live.storage.log(live.key)
    for piece in pieces:
        rows = [r for r in log if place_of(r.number)[0] == piece.index and r.excluded is None]
        kept = (*names, KNOWN)
        events = [{e.metric: e.value for e in row.events if e.metric in kept} for row in rows]
        z = [[float(bool(each)), *(each.get(name, 0.0) for name in names)] for each in events]
        rewards = [(0.0 if zero else np.nan) if r.reward is None else r.reward for r in rows]
        table = np.array(z).reshape(len(rows), 1 + len(names))
        expected = Moments.of_rows([row.arm for row in rows], table, rewards, len(ARMS))
        for name, value in vars(expected).items():
            np.testing.assert_allclose(getattr(piece.moments, name), value, 1e-12, err_msg=name)


def play_session(
    late: int = 0, told: bool = True, covariates: Sequence[str] = ("spend", "age")
) -> tuple[sa.Session, list[tuple[int, float, float, float]]]:
    """A world in which spend explains half of the variance, age nothing, with a trend.

    late : rounds by which rewards are late
    Returns also arm, spend, age and reward of each round.
    """
    session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(ARMS), 1200, 5, covariates=covariates)
    rng, rows = np.random.default_rng(17), list[tuple[int, float, float, float]]()
    queue: list[tuple[sa.Assignment, float]] = []
    for t in range(1200):
        spend, age, noise = rng.normal(size=3)
        a = session.ask({"spend": spend, "age": 40 + 9 * age} if told else None)
        reward = 0.1 * a.arm + t / 1200 + spend + noise
        rows.append((a.arm, spend, 40 + 9 * age, reward))
        queue.append((a, reward))
        if len(queue) > late:
            session.tell(*queue.pop(0))
    for shown, reward in queue:
        session.tell(shown, reward)
    return session, rows


def by_hand(session: sa.Session, rows: Sequence[tuple[int, float, float, float]]) -> Any:
    """Estimates of the mean from single rows: least squares on all earlier segments, by numpy."""
    pieces, total, start = session.results().judged(), np.zeros(3), 0
    past_z, past_r, freedom = list[Any](), list[Any](), 0
    for piece in pieces:
        part = np.array(rows[start : start + piece.used])
        start += piece.used
        arms, z, r = part[:, 0].astype(int), part[:, 1:3], part[:, 3]
        beta = np.zeros(2)
        if freedom >= 20:
            Z, R = np.concatenate(past_z), np.concatenate(past_r)
            beta = np.linalg.lstsq(Z, R, rcond=None)[0]
            explained = ((Z @ beta) ** 2).sum()
            rest = ((R - Z @ beta) ** 2).sum() / (freedom - 2)
            beta = beta * max(0.0, 1 - 2 * rest / explained)
        seen = r - (z - z.mean(axis=0)) @ beta
        sums = np.bincount(arms, seen, minlength=3).astype(np.float64)
        stats = sa.SegmentStats(np.bincount(arms, minlength=3)[None], sums[None])
        total += ips(np.eye(3), piece.segment, stats)[0]
        for arm in range(3):
            own = arms == arm
            if own.sum() > 1:
                past_z.append(z[own] - z[own].mean(axis=0))
                past_r.append(r[own] - r[own].mean())
                freedom += int(own.sum()) - 1
    return total / start


def test_units_without_covariates_get_the_decisions_of_a_test_without() -> None:
    with_, without = play_session(told=False), play_session(told=False, covariates=())
    assert with_[1] == without[1]
    ours, theirs = with_[0].recommend(), without[0].recommend()
    assert np.array_equal(ours.estimates, theirs.estimates)
    assert ours.variance_kept == 1.0


def test_decisions_rest_on_adjusted_rewards() -> None:
    sessions = play_session()[0], play_session(told=False, covariates=())[0]
    shares = [[p.segment.weights[0].tolist() for p in s.results().pieces] for s in sessions]
    assert shares[0][0] == shares[1][0]
    assert shares[0] != shares[1]


def test_verdicts_use_late_rewards_of_earlier_segments() -> None:
    """Slopes of a verdict rest on all earlier segments as they stand now, whenever rewards came."""
    late, rows = play_session(late=150)
    assert any(piece.carried_on for piece in late.results().pieces)
    assert np.allclose(late.recommend().estimates, by_hand(late, rows), rtol=1e-9)


@pytest.mark.parametrize("missing", ["drop", "zero"])
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_an_experiment_concludes_what_a_session_does(missing: Any, direction: Any) -> None:
    live = created(missing=missing, direction=direction, reward_window="1d")
    arms = sa.ArmSet.one_hot(ARMS)
    session = sa.Session(sa.Steady(), arms, 400, 3, direction, covariates=NAMES)
    world = World()
    for t in range(400):
        known = world.visitor()
        given = None if known is None else {k: v for k, v in known.items() if v is not None}
        one, other = session.ask(given), live.ask(f"u{t}", covariates=known)
        assert (one.arm, one.probability) == (other.arm, other.probability)
        reward = world.reward(one.arm, known)
        session.tell(one, reward)
        live.tell(other, reward)
    verdicts = session.recommend(), live.recommend()
    assert verdicts[0].name == verdicts[1].name == ("C" if direction == "maximize" else "A")
    for name in ("estimates", "intervals", "raw", "variance_kept"):
        ours, theirs = (getattr(verdict, name) for verdict in verdicts)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, err_msg=name)
    assert verdicts[1].variance_kept is not None
    assert verdicts[1].variance_kept < 0.6
    assert live.replay().agrees


@pytest.mark.parametrize("missing", ["drop", "zero"])
def test_sums_are_those_of_the_rows(missing: Any, tmp_path: Path) -> None:
    clock = Clock()
    settings: dict[str, Any] = {"missing": missing, "reward_window": "1h", "clock": clock}
    live = created(storage=f"sqlite:///{tmp_path / 'e.db'}", **settings)
    world = World()
    for day in range(4):
        play(live, range(40 * day, 40 * day + 40), world, lost=0.15)
        clock.pass_(DAY / 3)
    live.exclude(unit="u7", reason="a bot")
    live.exclude(unit="u130", reason="a bot")
    live.refresh()
    snapshot = live.storage.snapshot(live.key, everything=True)
    days = live.storage.days(live.key)
    whole = compute_results(live.settings, snapshot, days, live.now())
    assert len(whole.mature) > 3
    check_moments(live, whole.mature, missing == "zero")
    by_day, _ = results_by_day(whole, snapshot, days)
    assert len(by_day.pieces) > len(whole.mature), "no segment has two days"
    parts = [piece.moments for piece in by_day.pieces if piece.moments is not None]
    total = [piece.moments for piece in whole.mature if piece.moments is not None]
    np.testing.assert_allclose(
        sum(part.products for part in parts), sum(part.products for part in total)
    )
    live.close()


def test_rewards_that_may_still_come_are_not_counted_as_zeros() -> None:
    live = created(missing="zero", reward_window="1d")
    play(live, range(60), World(), lost=0.5)
    pieces = live.results().pieces
    waiting = [piece for piece in pieces if piece.waiting]
    assert waiting
    assert all(piece.moments is None for piece in waiting)


def test_rewards_made_of_events_are_adjusted_when_they_are_final() -> None:
    clock, world = Clock(), World()
    revenue = {"name": "revenue", "role": "primary", "several": "sum", "window": "1h", "grace": 0}
    settings: dict[str, Any] = {"missing": None, "metrics": [revenue | {"missing": "zero"}]}
    live = created(budget=160, clock=clock, **settings)
    for t in range(160):
        known = world.visitor()
        shown = live.ask(f"u{t}", covariates=known)
        whole = world.reward(shown.arm, known)
        for order in range(t % 3):
            live.tell(shown, whole / 2, event=f"order {order}")
        clock.pass_(60.0 if t % 20 else 7200.0)
    clock.pass_(7200.0)
    live.refresh()
    check_moments(live, live.results().pieces, zero=True)
    assert live.recommend().raw is not None
    assert live.replay().agrees


def test_a_replay_notices_other_covariates_and_other_slopes() -> None:
    live = created()
    play(live, range(200), World())
    for more in (1.0, -1.0):

        def change(state: Any, more: float = more) -> None:
            state["slopes"]["freedom"][0] += more

        tamper_with_state(live, change)
        replayed = live.replay()
        assert any("state does not follow" in each for each in replayed.differences) == (more > 0)
    assert replayed.agrees
    tamper(live, "UPDATE steadyarm_events SET value = value + 1 WHERE number = 0")
    assert any("stored" in each for each in live.replay().differences)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_threads_that_ask_tell_and_decide_lose_no_covariate(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Two openings of one storage stand for two processes. Each closes segments that are over."""
    url = f"sqlite:///{tmp_path / 'e.db'}"
    if kind == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    created(storage=url, budget=120).close()
    openings = [sa.load_experiment("e", open_storage(url)) for _ in range(2)]
    visitors = {f"u{t}": World(t).visitor() for t in range(120)}

    def visit(part: int) -> None:
        for t in range(part, 120, 4):
            shown = openings[part % 2].ask(f"u{t}", covariates=visitors[f"u{t}"])
            openings[t // 4 % 2].tell(shown, World(t).reward(shown.arm, visitors[f"u{t}"]))

    together(visit, 4)
    live = openings[1]
    for row in live.storage.log(live.key):
        known = (visitors[row.unit] or {}).items()
        stored = {e.metric: e.value for e in row.events if e.metric != KNOWN}
        assert stored == {name: value for name, value in known if value is not None}
    check_moments(live, live.results().pieces)
    assert live.replay().agrees
    assert (live.status().total_assigned, live.status().observed > 2) == (120, True)
    for opening in openings:
        opening.close()


def test_further_metrics_and_levels_are_not_adjusted() -> None:
    attributes, metrics = {"device": ["mobile", "desktop"]}, [{"name": "profit"}]
    more: dict[str, Any] = {"attributes": attributes, "metrics": metrics}
    live, world = created(**more), World()
    for t in range(300):
        known = world.visitor()
        shown = live.ask(f"u{t}", {"device": ("mobile", "desktop")[t % 2]}, known)
        reward = world.reward(shown.arm, known)
        live.tell(shown, {"reward": reward, "profit": 2 * reward})
    results, verdict = live.results(), live.recommend()
    assert verdict.raw is not None
    assert not np.array_equal(verdict.raw, verdict.estimates)
    (profit,) = live.metrics()
    np.testing.assert_allclose(profit.estimates, 2 * results.raw_evidence.estimates[0], rtol=1e-9)
    plain = replace(results, settings=replace(live.settings, covariates=()))
    snapshot = live.storage.snapshot(live.key, everything=True)
    series = live.storage.series(live.key)
    expected = compute_breakdown(plain, snapshot, series, "device", verdict.name)
    for one, other in zip(live.recommend(by="device").levels, expected.levels, strict=True):
        assert (one.visits, one.obstacle) == (other.visits, other.obstacle)
        if one.visits:
            assert np.array_equal(one.estimates, other.estimates)
