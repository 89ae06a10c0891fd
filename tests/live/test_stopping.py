"""Live tests that stop themselves: when they are looked at, why they stop, and what stays."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import Looks, stopping_of
from steadyarm.live.metrics import Metric
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import DAY, ITSELF, WEEK, StopReport, list_looks
from tests.live import worlds
from tests.live.worlds import START, play

AB = sa.ArmSet.one_hot(["A", "B"])
BETTER, ALIKE = {"A": 0.2, "B": 0.32}, {"A": 0.3, "B": 0.3}


def session_of(**options: Any) -> sa.Session:
    rules: dict[str, Any] = {"seed": 1, "stop": "when sure", "looks": 6, "control": "A"}
    return sa.Session(sa.Steady(), AB, 3000, **rules | options)


def stopping_in(verdict: sa.Verdict) -> StopReport:
    assert verdict.stopping is not None
    return verdict.stopping


def played(rates: dict[str, float], seed: int = 1, **options: Any) -> sa.Session:
    """A session played as far as it goes."""
    rng = random.Random(seed)
    return play(session_of(seed=seed, **options), lambda a: float(rng.random() < rates[a.name]))


def test_a_session_stops_itself_and_says_why() -> None:
    session = played(BETTER)
    verdict, stopped = session.recommend(), session.stopped
    assert stopped is not None
    assert session.asked < 0.8 * session.budget
    assert verdict.decision.word == "ship"
    assert stopping_in(verdict).stopped
    last = stopping_in(verdict).looks[-1]
    assert last.number == stopped.look
    assert last.boundary is not None
    assert last.reached > last.boundary
    assert f"Stopped at interim analysis {stopped.look} of 6: Ship B: it beats A by" in str(verdict)
    assert verdict.method.startswith("group-sequential, obrien-fleming")
    with pytest.raises(sa.BudgetSpentError, match=f"at look {stopped.look}: Ship B"):
        session.ask()


@pytest.mark.parametrize("rates", [BETTER, ALIKE])
def test_a_session_decides_as_the_batch_does(rates: dict[str, float]) -> None:
    session = played(rates, seed=6, stop="recommend")
    found = stopping_of(session.evidence(), session.budget, Looks.equally(6), control=0)
    alone = played(rates, seed=6)
    assert (alone.stopped is not None) == (found.look[0] >= 0 and found.rounds[0] < 3000)
    if alone.stopped is not None:
        assert alone.recommend().judged == found.rounds[0]
        assert alone.stopped.look == found.look[0] + 1
    else:
        assert alone.asked == alone.budget
        assert [look.number for look in stopping_in(alone.recommend()).looks] == [1, 2, 3, 4, 5, 6]


def test_json_goes_on_where_it_stood_and_keeps_why_it_stopped() -> None:
    rng, one = random.Random(1), session_of(futility=0.01)
    while one.stopped is None:
        shown = one.ask()
        one.tell(shown, float(rng.random() < BETTER[shown.name]))
        if one.asked % 300 == 0:
            one = sa.Session.from_json(one.to_json())
    straight = played(BETTER, futility=0.01)
    for each in (straight, sa.Session.from_json(one.to_json())):
        assert (each.asked, each.stopped) == (one.asked, one.stopped)
        assert str(each.recommend()) == str(one.recommend())
        assert each.to_json() == one.to_json()


def test_futility_stops_a_test_that_can_find_nothing_any_more() -> None:
    session = played(ALIKE, seed=4, futility=0.1)
    verdict = session.recommend()
    assert session.stopped is not None
    assert session.asked < session.budget
    assert verdict.decision.word == "unclear"
    why = "No clear winner: no variant can any longer be shown to differ by 0.1."
    assert verdict.decision.text == session.stopped.reason == why
    assert played(ALIKE, seed=4, futility=0.001, stop="recommend").stopped is None


Report = Callable[[sa.LiveAssignment, float], float | dict[str, float] | None]
"""What is reported of a visit and whether it brought a click; None for nothing."""


class Shop(worlds.Shop):
    """An experiment with a clock; a click comes within a minute or not at all."""

    def __init__(self, rates: dict[str, float], days: float = 14, **options: Any) -> None:
        rules: dict[str, Any] = {"arms": AB, "budget": 3000, "seed": 2, "missing": None}
        if "metrics" not in options:
            rules |= {"reward_range": (0, 1), "reward_window": "2d", "reward_grace": 0}
        super().__init__(**rules | {"stop": "when sure", "looks": "daily"} | options)
        self.rates, self.rng, self.step = rates, random.Random(2), days * 86400 / 3000

    def play(self, visits: int = 3000, report: Report = lambda _, click: click or None) -> int:
        """Visits until the test ends; how many there were."""

        def click(shown: sa.LiveAssignment) -> float | dict[str, float] | None:
            return report(shown, float(self.rng.random() < self.rates[shown.name]))

        return self.visit(visits, click, self.step, group=5)

    def stops(self) -> list[Any]:
        return [e for e in self.test.history() if e.action == "experiment.stopped"]


def test_more_visits_are_promised_at_planned_analyses_only() -> None:
    session = session_of(seed=3, stop="recommend", looks=3, control=None)
    rng = random.Random(3)
    for _ in range(1100):
        shown = session.ask()
        session.tell(shown, float(rng.random() < (0.3 if shown.name == "A" else 0.36)))
    found = session.recommend()
    assert stopping_in(found).text.endswith(
        "The next interim analysis is on the first 2,000 visits."
    )
    assert found.decision.more is not None
    assert found.decision.more >= 0.95 * (2000 - found.judged)  # two digits
    shop = Shop({"A": 0.3, "B": 0.36}, days=28, looks="weekly", stop="recommend")
    shop.play(1100)
    found = shop.test.recommend()
    (look,) = stopping_in(found).looks
    due = datetime.fromtimestamp(START + 5 * shop.step, UTC) + timedelta(days=14)
    assert f"on visits until {due:%A %d %b, %H:%M} UTC" in stopping_in(found).text
    assert found.decision.more is not None
    assert found.decision.more >= 0.95 * (1500 - look.visits)  # a half of the test


def test_an_experiment_stops_itself_with_a_trace_and_keeps_its_units() -> None:
    shop = Shop(BETTER)
    visits = shop.play()
    assert visits < 2900
    assert shop.test.state == "stopped"
    (stop,) = shop.stops()
    assert stop.author == ITSELF
    assert stop.detail["reason"].startswith("Ship B: it beats A by")
    verdict = shop.test.recommend()
    assert stopping_in(verdict).looks[-1].number == stop.detail["look"]
    today = datetime.fromtimestamp(shop.clock.now, UTC)
    assert f"Stopped on {today:%A %d %b %Y} at interim analysis" in str(verdict)
    assert verdict.pending > 0  # rewards of newer visits may still come
    assert not shop.test.ask("visitor 0").new  # who has a variant keeps it
    shop.wait(days=5)
    later = shop.test.recommend()
    assert (later.decision, later.judged) == (verdict.decision, verdict.judged)
    assert later.pending == 0
    assert shop.test.replay().agrees


def test_a_test_that_stopped_itself_is_reopened_and_stops_at_a_later_look() -> None:
    shop = Shop(BETTER)
    visits = shop.play()
    (look,) = [stop.detail["look"] for stop in shop.stops()]
    with pytest.raises(sa.InvalidInputError, match="reason"):
        shop.test.reopen(reason=" ")
    shop.test.ask("somebody else")  # sees the default, outside of the test
    shop.test.reopen(reason="a wrong price was shown", by="ada")
    entry = shop.test.history()[-1]
    assert (entry.action, entry.author) == ("experiment.reopened", "ada")
    assert entry.detail == {"reason": "a wrong price was shown"}
    shop.test.refresh()
    assert shop.test.state == "running"
    assert shop.test.ask("somebody else").in_test
    assert "The test was reopened" in shop.test.recommend().assumption
    assert shop.play() > visits / 20
    first, *later = [stop.detail["look"] for stop in shop.stops()]
    assert first == look
    assert all(other > look for other in later)
    assert shop.test.replay().agrees
    if shop.test.state == "running":
        shop.test.stop()
    shop.test.roll_out("B")
    with pytest.raises(sa.WrongStateError, match="rolled out"):
        shop.test.reopen(reason="another mistake")


def test_two_processes_stop_a_test_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    shop = Shop({"A": 0.1, "B": 0.6}, storage=url)
    other = sa.load_experiment("shop", url, clock=shop.clock)
    mine = shop.test
    tests = [mine, other]
    for i in range(3000):
        shop.clock.pass_(shop.step)
        shown = tests[i % 2].ask(f"visitor {i}")
        if not shown.in_test:
            break
        if shop.rng.random() < shop.rates[shown.name]:
            tests[(i // 2) % 2].tell(shown.id, 1.0)
    for test in tests:
        test.refresh()
    assert len(shop.stops()) == 1
    assert str(mine.recommend()) == str(other.recommend())
    late = sa.load_experiment("shop", url, clock=shop.clock)
    late.refresh()
    assert len(shop.stops()) == 1
    for test in (mine, other, late):
        test.close()


def test_daily_looks_come_after_midnight_and_weekly_ones_after_whole_weeks() -> None:
    shop = Shop(ALIKE, days=20, stop="recommend")
    shop.play()
    began = int(START * 1e6)
    for looks, unit, first in (("daily", DAY, began // DAY * DAY), ("weekly", WEEK, began)):
        settings = Settings.from_dict(shop.test.settings.to_dict() | {"looks": looks})
        found = list_looks(settings, shop.test.results().mature, over=False)
        ends = [look.last for look in found if look.last is not None]
        passed = [(end - first) // unit for end in ends]
        assert passed == sorted(set(passed))  # one look for each day, or week
        assert all((end - first) % unit < DAY / 2 for end in ends)  # soon after its end
        assert len(found) >= (2 if looks == "weekly" else 12)
        assert all(look.visits >= 150 for look in found)


def test_looks_do_not_depend_on_rewards() -> None:
    one, other = Shop(ALIKE, stop="recommend", looks=7), Shop(BETTER, stop="recommend", looks=7)
    one.play(1500)
    other.play(1500)
    ends = [[look.visits for look in shop.test.results().looks] for shop in (one, other)]
    assert len(ends[0]) >= 2
    assert np.abs(np.diff(np.array(ends), axis=0)).max() <= 3000 / 60


@pytest.mark.parametrize(("margin", "ended"), [(0.01, False), (1.0, True)])
def test_a_guardrail_that_may_be_broken_keeps_a_test_running(margin: float, ended: bool) -> None:
    hour: dict[str, Any] = {"window": "1h", "grace": 0}
    metrics = (
        Metric("bought", role="primary", kind="yes/no", **hour),
        Metric("slow", role="guardrail", direction="minimize", margin=margin, **hour),
    )
    shop, rng = Shop(BETTER, metrics=metrics), random.Random(9)
    visits = shop.play(2400, lambda _, click: {"bought": click, "slow": rng.gauss(1.0, 3.0)})
    assert (visits < 2400) == ended
    if not ended:
        verdict = shop.test.recommend()
        assert verdict.decision.word == "unclear"
        assert "slow may have got worse" in verdict.decision.text
        assert not stopping_in(verdict).recommended


def test_what_comes_after_a_stop_changes_neither_guardrails_nor_other_metrics() -> None:
    """The guardrail was safe at the stop; rewards that were on their way are slow, for B alone."""
    day: dict[str, Any] = {"window": "1d", "grace": 0}
    metrics = (
        Metric("bought", role="primary", kind="yes/no", **day),
        Metric("slow", role="guardrail", direction="minimize", margin=0.3, **day),
        Metric("spent", **day),
    )
    shop, noise = Shop(BETTER, metrics=metrics), random.Random(9)
    late: list[tuple[sa.LiveAssignment, dict[str, float]]] = []

    def tell(shown: sa.LiveAssignment, click: float) -> None:
        values = {"bought": click, "slow": noise.gauss(1.0, 0.3), "spent": 10 * click}
        late.append((shown, values))
        if len(late) > 100:
            shop.test.tell(*late.pop(0))

    shop.play(3000, tell)
    at_stop, figures = shop.test.recommend(), shop.test.metrics()
    assert stopping_in(at_stop).stopped
    assert at_stop.decision.text == stopping_in(at_stop).reason
    for shown, values in late:
        shop.test.tell(shown, values | {"slow": 9.0 * (shown.name == "B")})
    shop.clock.pass_(3 * 86400)
    verdict, again = shop.test.recommend(), shop.test.metrics()
    assert verdict.decision == at_stop.decision
    for before, after in zip(figures, again, strict=True):
        assert after.visits == before.visits > 0
        assert np.array_equal(before.lift_intervals, after.lift_intervals)
    assert verdict.judged == again[1].visits  # of a metric that decides nothing
    shown_there = compute_scorecard(shop.test).verdict
    assert shown_there is not None
    assert shown_there.decision == verdict.decision
    assert [one.visits for one in shown_there.metrics] == [one.visits for one in again]


def test_a_test_stops_once_its_guardrail_is_known_in_any_process(tmp_path: Path) -> None:
    """Refunds come weeks after the look that found a winner, and nothing else happens then."""
    refund: dict[str, Any] = {"direction": "minimize", "margin": 0.05, "window": "10d", "grace": 0}
    metrics = (
        Metric("bought", role="primary", kind="yes/no", window="1h", grace=0),
        Metric("refund", role="guardrail", kind="yes/no", **refund),
    )
    where = f"sqlite:///{tmp_path / 'shop.db'}"
    rates = {"A": 0.1, "B": 0.3}
    shop = Shop(rates, days=2, metrics=metrics, looks=4, storage=where)
    visits = shop.play(1700, lambda _, click: {"bought": click})
    shop.wait(days=1 / 12)
    found = stopping_in(shop.test.recommend())
    assert visits == 1700
    assert shop.test.state == "running"
    assert found.text.startswith("Interim analysis 2 of 4 decided: Do not ship B yet")
    shop.clock.pass_(20 * 86400)
    shop.test._next_look = 0.0  # a minute has passed for the process, too
    shop.test.refresh()
    assert shop.test.status().state == "stopped"
    shop.test.close()
