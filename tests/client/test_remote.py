"""The verbs of experiments over HTTP: the same answers, the same errors, also in bad weather."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins

import steadyarm as sa
from steadyarm.client import Client, ServiceDownError, is_default
from steadyarm.wire.responses import ExperimentAnswer
from tests.client.servers import Proxy, Scripted
from tests.live.worlds import create

Stored = Callable[[str], sa.Experiment]


@pytest.mark.parametrize("control", [None, "B", {"B": 0.3}])
def test_verbs_answer_as_experiments_do(
    client: Client, name: str, stored: Stored, tmp_path: Path, control: Any
) -> None:
    rules: dict[str, Any] = {"reward_range": (0, 1), "missing": "drop", "control": control}
    shop = client.create(name, ["A", "B", "C"], budget=600, seed=3, **rules)
    first = shop.ask("u0")
    assert first == sa.LiveAssignment(
        first.id,
        "u0",
        first.arm,
        "ABC"[first.arm],
        first.probability,
        first.created,
        True,
        "ABC"[first.arm],
    )
    assert not shop.ask("u0").new
    shop.tell(first, 1.0)
    shop.tell(first.id, 1.0)
    shop.tell("u0", 1.0)
    units = [f"u{i}" for i in range(300)]
    given = shop.ask_many(units)
    assert shop.tell_many([("u0", 1.0), ("u1", 0.0)]) == ["repeated", "stored"]
    shop.tell_many(
        [
            (one, (3 * i) % 7 / 7)
            for i, one in enumerate(given)
            if isinstance(one, sa.LiveAssignment) and i > 1
        ]
    )
    here = stored(name)
    assert shop.status() == here.status()
    assert shop.health() == here.health()
    assert str(shop.drift()) == str(here.drift())
    for anytime in (False, True):
        there, verdict = here.recommend(0.9, anytime), shop.recommend(0.9, anytime)
        assert (str(verdict), verdict.sure) == (str(there), there.sure)
        assert (verdict.decision, verdict.control) == (there.decision, there.control)
        assert (there.lifts is None) == (control is None)
        numbers = ("estimates", "standard_errors", "intervals", "gaps", "gap_intervals")
        lifts = ("lifts", "lift_intervals", "relative", "relative_intervals")
        for field in numbers if control is None else numbers + lifts:
            np.testing.assert_array_equal(getattr(verdict, field), getattr(there, field))
    written = shop.export(tmp_path / "log.csv").read_text()
    assert len(list(csv.DictReader(written.splitlines()))) == 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv"]
    assert client.experiments()[-1].name == name
    assert client.experiment(name) is client.experiment(name)


def test_arms_and_policies_travel(client: Client, name: str, stored: Stored) -> None:
    arms = sa.ArmSet.factorial({"a": ["x", "y"], "b": ["x", "y"]}, interactions=1)
    policy, window = sa.Steady(robustness=0.3), timedelta(hours=2)
    client.create(
        name, arms, policy, budget=100, reward_window=window, min_share=0.1, missing="zero"
    )
    here = stored(name)
    assert here.arms == arms
    assert here.policy == policy
    assert here.settings.reward_window == 7200
    client.create(
        name,
        arms,
        policy,
        budget=100,
        reward_window="2h",
        min_share=0.1,
        load_if_exists=True,
        missing="zero",
    )


def test_errors_are_those_of_experiments(client: Client, name: str) -> None:
    with pytest.raises(sa.UnknownExperimentError, match=name):
        client.experiment(name).ask("u")
    rules: dict[str, Any] = {"reward_window": 0.2, "missing": "zero", "after": "refuse"}
    shop = client.create(name, ["A", "B"], budget=2, start=False, **rules)
    with pytest.raises(sa.ExperimentExistsError):
        client.create(name, ["A", "B"], budget=2, missing="drop")
    with pytest.raises(sa.WrongStateError, match="draft"):
        shop.ask("u")
    assert shop.start().state == "running"
    with pytest.raises(sa.InvalidInputError, match="unit"):
        shop.ask("")
    with pytest.raises(sa.InvalidInputError, match="the reward is nan"):
        shop.tell("u1", math.nan)
    given = [shop.ask("u1"), shop.ask("u2")]
    shop.tell(given[0], 1.0)
    with pytest.raises(sa.RepeatedRewardError, match="first one counts"):
        shop.tell(given[0], 0.0)
    with pytest.raises(sa.BudgetSpentError):
        shop.ask("u3")
    (refused,) = shop.ask_many(["u3"])
    assert isinstance(refused, sa.BudgetSpentError)
    with (
        Client(client.url, on_unknown="raise") as strict,
        pytest.raises(sa.UnknownAssignmentError, match="u9"),
    ):
        strict.experiment(name).tell("u9", 1.0)
    time.sleep(0.25)
    with pytest.raises(sa.RewardTooLateError):
        shop.tell("u2", 1.0)
    with pytest.raises(sa.InvalidInputError, match="ending"):
        shop.export("log.xls")
    assert shop.stop().state == "stopped"
    assert shop.archive().state == "archived"
    with pytest.raises(sa.WrongStateError):
        shop.resume()


def test_a_policy_that_waits_says_so(client: Client, name: str) -> None:
    shop = client.create(name, ["A", "B", "C"], "sequential-halving", budget=12, missing="drop")
    while True:
        try:
            shop.ask(f"u{shop.status().assigned}")
        except sa.RewardsPendingError:
            break


def test_rewards_of_units_without_an_assignment_are_ignored_and_counted(
    client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = client.create(name, ["A", "B"], budget=10, missing="drop")
    shop.ask("u1")
    before = client.ignored
    for _ in range(2):
        shop.tell("nobody", 1.0)
    assert shop.tell_many([("nobody", 1.0), ("u1", 1.0)]) == ["ignored", "stored"]
    assert client.track(name, "nobody") == client.track("misspelt", "u1") == "ignored"
    assert client.ignored == before + 5
    assert caplog.text.count("ignores rewards of units without an assignment") == 1
    assert caplog.text.count("No experiment measures the event 'misspelt'") == 1
    with Client(client.url, on_unknown="raise") as strict:
        for event, unit, reason in ((name, "nobody", "'nobody'"), ("misspelt", "u1", "'misspelt'")):
            with pytest.raises(sa.UnknownAssignmentError, match=reason):
                strict.track(event, unit)
    with pytest.raises(sa.InvalidInputError, match="on_unknown is 'stop'"):
        Client(client.url, on_unknown="stop")  # type: ignore[arg-type]  # wrong on purpose


def test_a_lost_answer_changes_nothing(
    proxy: Proxy, client: Client, name: str, stored: Stored
) -> None:
    client.create(name, ["A", "B"], budget=100, missing="drop")
    with Client(proxy.url, retries=0) as weak, Client(proxy.url, timeout=5) as strong:
        assert weak.experiment(name).sticky
        proxy.mode = "cut"
        with pytest.raises(ServiceDownError):
            weak.experiment(name).ask("u1")
        assert stored(name).status().assigned in ((1, 0), (0, 1))
        with pytest.raises(ServiceDownError):
            weak.experiment(name).tell("u1", 1.0)
        assert sum(stored(name).status().rewarded) == 1
        proxy.mode = "pass"
        again = strong.experiment(name).ask("u1")
        assert not again.new
        assert strong.experiment(name).tell_many([(again, 1.0)]) == ["repeated"]
    assert sum(stored(name).status().assigned) == 1


def test_without_sticky_units_a_lost_answer_is_not_asked_for_again(
    proxy: Proxy, client: Client, name: str, stored: Stored
) -> None:
    client.create(name, ["A", "B"], budget=100, sticky="none", missing="drop")
    with Client(proxy.url, default_arm="A") as other:
        shop = other.experiment(name)
        assert shop.ask().unit == ""
        proxy.mode = "cut"
        assert is_default(shop.ask())
    assert sum(stored(name).status().assigned) == 2


def test_the_default_arm_stands_in(proxy: Proxy, client: Client, name: str) -> None:
    client.create(name, ["A", "B"], budget=100, missing="drop")
    with Client(proxy.url, default_arm="A", cooldown=0.5, timeout=1) as other:
        shop = other.experiment(name)
        assert not is_default(shop.ask("u1"))
        proxy.mode = "hang"
        began = time.monotonic()
        shown = shop.ask("u2")
        waited = time.monotonic() - began
        assert (shown.name, shown.arm, shown.id, shown.unit) == ("A", 0, "", "u2")
        assert math.isnan(shown.probability)
        assert is_default(shown)
        assert 0.5 < waited < 2.5
        began = time.monotonic()
        assert all(is_default(shop.ask("u1")) for _ in range(100))
        assert is_default(other.experiment(name, default_arm="B").ask("u1"))
        assert [one.name for one in shop.ask_many(["u4", "u5"])] == ["A", "A"]  # type: ignore[union-attr]  # no errors
        assert time.monotonic() - began < 0.2  # the breaker is open: nobody waits
        shop.tell(shown, 1.0)
        assert shop.tell_many([(shown, 1.0), ("", 1.0)]) == ["ignored", "ignored"]
        assert (other.defaulted, other.ignored) == (104, 3)
        proxy.mode = "pass"
        time.sleep(0.6)
        assert not is_default(shop.ask("u1"))
        with pytest.raises(sa.InvalidInputError):  # no outage, so no default arm
            shop.ask("")
    with Client(proxy.url, retries=0) as other:
        proxy.down()
        with pytest.raises(sa.ServiceError):
            other.experiment(name).ask("u1")


@pytest.mark.parametrize("default_arm", [None, "A"])
def test_what_is_bad_or_too_large_is_found(default_arm: str | None) -> None:
    def answer(path: str, body: Any) -> Any:
        if body is None:
            return 200, {}, to_builtins(ExperimentAnswer.of(create()))
        told = body.get("units") or [one["unit"] for one in body["rewards"]]
        if "large" in told:
            return 413, {}, b"<h1>nginx</h1>"
        if "bad" in told:
            kind = {"type": "urn:steadyarm:problem:invalid-input", "status": 422, "detail": "No."}
            return 422, {}, kind
        shown = {"id": "t-0", "arm": "B", "probability": 0.5, "new": True}
        shown |= {"value": "B", "in_test": True}
        shown["created"] = "2025-01-31T12:00:00Z"
        answers = [shown | {"unit": unit, "status": "stored"} for unit in told]
        return 200, {}, {"assignments": answers, "rewards": answers}

    units = ["u0", "u1", "bad", "u3", "u4", "large", "u6"]
    with (
        Scripted(answer) as server,
        Client(server.url, default_arm=default_arm) as client,
    ):
        shop = client.experiment("shop")
        asked = shop.ask_many(units)
        told = shop.tell_many([(unit, 1.0) for unit in units])
    bad, big = asked.pop(2), asked.pop(4)
    assert isinstance(bad, sa.InvalidInputError)
    assert [one.name for one in asked if isinstance(one, sa.LiveAssignment)] == ["B"] * 5
    assert isinstance(told.pop(2), sa.InvalidInputError)
    refused = told.pop(4)
    assert told == ["stored"] * 5
    if default_arm is None:
        assert isinstance(big, sa.ServiceError)
        assert isinstance(refused, sa.ServiceError)
    else:
        assert isinstance(big, sa.LiveAssignment)
        assert is_default(big)
        assert refused == "ignored"


def test_corrections_over_http(client: Client, name: str, stored: Stored) -> None:
    shop = client.create(name, ["A", "B"], budget=100, missing="drop")
    given = [one for one in shop.ask_many(list("abcd")) if isinstance(one, sa.LiveAssignment)]
    shop.tell_many([(one, 1.0) for one in given])
    assert shop.void(given[0], reason="wrong").assignments == 1
    shop.correct(given[1].id, 0.5, reason="wrong")
    shop.correct("c", 0.25, reason="wrong")
    out = shop.exclude(unit="d", reason="a bot")
    status = shop.status()
    assert (status.total_assigned, status.total_rewarded, status.excluded) == (4, 2, 1)
    shop.include(out.entry, reason="no bot")
    past: dict[str, Any] = {
        "since": given[0].created,
        "until": given[-1].created + timedelta(microseconds=1),
    }
    assert shop.exclude(**past, reason="an outage").assignments == 4
    assert shop.erase("d").assignments == 1
    found = shop.corrections()
    assert found == stored(name).corrections()
    assert client.audit(found[0].id - 1, experiment=name) == found
    with pytest.raises(sa.InvalidInputError, match="has no reward to void"):
        shop.void(given[0], reason="again")


METRICS: list[dict[str, Any]] = [
    {"name": "bought", "role": "primary", "kind": "yes/no"},
    {"name": "revenue", "kind": "money", "several": "sum", "window": "1d"},
    {"name": "loading", "role": "guardrail", "direction": "minimize", "margin": 0.5},
]


def test_metrics_are_declared_reported_and_read_over_http(
    client: Client, name: str, stored: Stored
) -> None:
    shop = client.create(name, ["A", "B"], budget=60, seed=3, control="A", metrics=METRICS)
    for i in range(60):
        shown = shop.ask(f"u{i}")
        shop.tell(shown, {"bought": i % 2, "loading": 1.0 + i % 3})
        for order in (1, 1, 2):  # one of them twice
            shop.tell(shown.id, {"revenue": 10.0 * order}, event=f"u{i} {order}")
    outcomes = shop.tell_many(
        [("u0", {"revenue": 10.0}, None, "u0 1"), ("u0", {"revenu": 1.0}), ("u1", {"revenue": 1})]
    )
    assert outcomes[0] == "repeated"
    assert all(isinstance(one, sa.InvalidInputError) for one in outcomes[1:])
    here, there = stored(name), shop.recommend()
    sums = [float(sum(p.sums)) for p in here.storage.series(here.key) if p.series == "revenue"]
    assert sum(sums) == 60 * 30.0
    assert there.decision == here.recommend().decision
    revenue, loading = there.metrics
    assert "further events of the first" in revenue.obstacle  # a further order may still come
    assert loading.metric.margin == 0.5
    assert loading.safety[0] == "control"
    np.testing.assert_array_equal(
        loading.lift_intervals, here.recommend().metrics[1].lift_intervals
    )
