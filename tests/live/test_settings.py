"""Settings: what is refused, shares that are reserved, metrics, and values of variants."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.arms.recipes import BundleNames, FactorialNames
from steadyarm.live.metrics import Metric
from steadyarm.live.settings import LARGEST_VALUE, Settings, values_of
from steadyarm.segments import Segment
from tests.live.worlds import arms_of, create


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {
        "arms": arms_of(4),
        "policy": sa.Steady(),
        "budget": 100,
        "seed": 1,
        "missing": "drop",
    } | changes
    return Settings(**given)


AB = {"arms": sa.ArmSet.one_hot(["A", "B"])}
LARGE = sa.ArmSet.factorial({f"f{i}": ("no", "yes") for i in range(16)}, interactions=1)
SURE = {"stop": "when sure"}
LEVELS = "expected a list of 2 to 20 texts"
TWO_PRIMARY = [{"name": "x", "role": "primary"}, {"name": "y", "role": "primary"}]
RATIO = {"name": "x", "ratio": ["reward", "reward"], "cap": 3}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"reward_window": 0}, "reward_window is 0"),
    ({"reward_window": "7 moons"}, "reward_window is '7 moons'"),
    ({"reward_window": "..d"}, "reward_window"),
    ({"reward_window": float("nan")}, "reward_window is nan"),
    ({"reward_range": (1, 0)}, "the first to be below"),
    ({"reward_range": (1, 2), "missing": "zero"}, "counts as zero"),
    ({"missing": None}, "`missing` is required unless `reward_range`"),
    ({"missing": None, "budget": "1000"}, "budget is '1000'"),
    ({"missing": None, "reward_window": "2 moons"}, "reward_window is '2 moons'"),
    ({"missing": None, "control": {"arm 9": 0.1}}, "is not one of the variants"),
    ({"missing": None, "reward_range": (1, 2)}, '"drop" if rewards get lost'),
    ({"missing": None, "reward_range": (0, 1), "direction": "minimize"}, "`missing` is required"),
    ({"reward_range": 3}, "reward_range is 3"),
    ({"reward_range": (0, float("inf"))}, "finite"),
    ({"missing": "ignore"}, "missing is 'ignore'"),
    ({"sticky": "user"}, "sticky is 'user'"),
    ({"direction": "up"}, "direction is 'up'"),
    ({"budget": 0}, "budget is 0"),
    ({"budget": 2.5}, "budget is 2.5"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**63}, "of at most 9223372036854775807"),
    ({"policy": "steady"}, "expected an instance"),
    ({"arms": ["A", "B"]}, "expected an ArmSet"),
    ({"control": {"arm 9": 0.1}}, "is not one of the variants"),
    ({"control": "arm 9"}, "control 'arm 9' is not one of the variants"),
    ({"control": 1}, "expected the name of a variant, such as 'arm 0'"),
    ({"control": ["arm 1"]}, "expected the name of a variant"),
    ({"control": None, "control_share": 0.1}, "but control is not set"),
    ({"control": "arm 0", "control_share": 1.5}, "between 0 and 1"),
    ({"control": {"arm 0": 0.1}, "policy": sa.Peace()}, "min_share do not apply"),
    ({"control": {"arm 0": 0.1, "arm 1": 0.1}}, "only one"),
    ({"control": {"arm 0": 1.0}}, "between 0 and 1"),
    ({"control": {"arm 0": 0.1}, "min_share": {"arm 0": 0.1}}, "leave it out"),
    ({"control": {"arm 0": 0.5}, "min_share": {"arm 1": 0.5}}, "must leave some"),
    ({"min_share": 0.25}, "must leave some"),
    ({"policy": sa.Peace(), "min_share": 0.1}, "do not apply"),
    # when a test stops itself
    ({"stop": "soon"}, "'when sure'"),
    ({"looks": 4}, 'stop="when sure"'),
    ({"futility": 0.1}, "leave futility out"),
    ({"spending": "pocock"}, "does not stop early"),
    (SURE | {"looks": 0}, "from 1 to 60"),
    (SURE | {"looks": "hourly"}, "from 1 to 60"),
    (SURE | {"looks": True}, "from 1 to 60"),
    (SURE | {"spending": "linear"}, "'pocock'"),
    (SURE | {"futility": -1}, "above 0"),
    (SURE | {"policy": sa.Peace()}, "leaves variants out"),
    # what takes part, and afterwards
    ({"traffic": 0}, "traffic is 0"),
    ({"traffic": 1.5}, "traffic is 1.5"),
    ({"traffic": 0.5, "control": None}, "they see the control, so set control"),
    ({"layer": "checkout", "control": "arm 0", "sticky": "none"}, 'use sticky="unit"'),
    ({"layer": ""}, "the layer is called ''"),
    ({"after": "hide"}, "after is 'hide'"),
    # attributes
    ({"attributes": ["device"]}, "expected levels by attribute"),
    ({"attributes": {"device": "mobile"}}, LEVELS),
    ({"attributes": {"device": ["mobile"]}}, LEVELS),
    ({"attributes": {"device": [f"{i}" for i in range(21)]}}, LEVELS),
    ({"attributes": {"device": ["mobile", "mobile"]}}, "'mobile' twice"),
    ({"attributes": {"device": ["mobile", "a=b"]}}, "'a=b'"),
    ({"attributes": {"device": ["mobile", "a*b"]}}, "without"),
    ({"attributes": {"device": ["mobile", 3]}}, "include 3"),
    ({"attributes": {"device": ["mobile", " x"]}}, "space at their ends"),
    ({"attributes": {"device": ["mobile", "x" * 65]}}, "up to 64 characters"),
    ({"attributes": {"de=vice": ["a", "b"]}}, "called 'de=vice'"),
    ({"attributes": {f"a{i}": ["x", "y"] for i in range(9)}}, "at most 8"),
    # metrics
    ({"metrics": "revenue"}, "expected a list of metrics"),
    ({"metrics": [{"kind": "money"}]}, "tables of their fields"),
    ({"metrics": [{"name": "revenue", "kond": "money"}]}, "did you mean kind"),
    ({"metrics": [{"name": "a*b"}]}, "letters, digits"),
    ({"metrics": [{"name": "x", "kind": "euro"}]}, "kind of the metric 'x' is 'euro'; expected"),
    ({"metrics": [{"name": "x", "missing": "fail"}]}, "expected one of 'zero', 'drop'"),
    ({"metrics": [{"name": "x", "margin": 1}]}, "only guardrails have one"),
    ({"metrics": [{"name": "x", "role": "guardrail"}]}, "how much worse"),
    ({"metrics": [{"name": "x", "role": "guardrail", "margin": "a lot"}]}, "how much worse"),
    ({"metrics": [{"name": "x", "role": "guardrail", "margin": -1}]}, "how much worse"),
    ({"metrics": [{"name": "x", "several": "sum"}]}, "needs a window, such as"),
    ({"metrics": [{"name": "x", "grace": "1d"}]}, "needs a window"),
    ({"metrics": [{"name": "reward"}]}, "only the primary metric"),
    ({"metrics": [{"name": "x"}, {"name": "x"}]}, "two metrics are called 'x'"),
    ({"metrics": TWO_PRIMARY}, "'x' and 'y' are both primary"),
    ({"metrics": [{"name": "x", "ratio": ["reward", "y"]}]}, "'x' is a ratio of 'y'"),
    ({"metrics": [{"name": "x", "ratio": "reward"}]}, "the names of two metrics"),
    ({"metrics": [RATIO]}, "a ratio; it cannot be primary"),
    # values
    (AB | {"values": {"A": 1}}, "values are missing for B"),
    (AB | {"values": {"A": 1, "B": 2, "C": 3}}, "'C', which is not one of the variants"),
    (AB | {"values": [1]}, "1 values for 2 variants"),
    (AB | {"values": "AB"}, "values is 'AB'"),
    (AB | {"values": {"A": 1, "B": float("nan")}}, "'B' is not valid JSON: Out of range"),
    (AB | {"values": {"A": 1, "B": {"x": {1, 2}}}}, "type set is not JSON"),
    (AB | {"values": {"A": 1, "B": 2**60}}, "above 2"),
    (AB | {"values": {"A": 1, "B": "\ud800"}}, "surrogates not allowed"),
    (AB | {"values": {"A": 1, "B": "x" * LARGEST_VALUE}}, "16,386 bytes as JSON"),
    ({"arms": LARGE, "values": {"x": 1}}, "values cannot be given for"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message) as refused:
        settings(**changes)
    assert refused.value.field in changes


def test_control_and_floors_enter_the_allocation_exactly() -> None:
    given = settings(control={"arm 1": 0.2}, min_share={"arm 3": 0.1})
    segment = Segment(np.array([[0.4, 0.3, 0.2, 0.1]]), np.array([50]))
    weights = given.mix_shares(segment).weights[0]
    np.testing.assert_allclose(weights, [0.7 * 4 / 7, 0.2, 0.7 * 2 / 7, 0.1 + 0.7 / 7])
    assert weights[1] == 0.2
    assert abs(weights.sum() - 1) < 1e-15
    only_control = Segment(np.array([[0.0, 1.0, 0.0, 0.0]]), np.array([50]))
    np.testing.assert_allclose(given.mix_shares(only_control).weights[0].sum(), 1)


def test_shares_hold_in_the_live_test_and_estimates_stay_unbiased() -> None:
    means = np.array([0.2, 0.5, 0.9, 0.1])
    estimates = []
    for seed in range(16):
        live = create(
            arms=arms_of(4),
            budget=400,
            seed=seed,
            control={"arm 0": 0.4},
            min_share={"arm 3": 0.1},
        )
        rng = np.random.default_rng(seed)
        for start in range(0, 400, 40):
            given = live.ask_many([f"u{start + i}" for i in range(40)])
            answers = [a for a in given if isinstance(a, sa.LiveAssignment)]
            live.tell_many([(a.id, float(rng.random() < means[a.arm])) for a in answers])
        assigned = np.array(live.status().assigned)
        assert abs(assigned[0] - 160) < 12
        assert assigned[3] >= 30
        for row in live.storage.log(live.key):
            if row.arm == 0:
                assert row.probability == 0.4
        estimates.append(live.recommend().estimates)
    error = np.std(estimates, axis=0, ddof=1) / np.sqrt(len(estimates))
    np.testing.assert_array_less(np.abs(np.mean(estimates, axis=0) - means), 4 * error)


@pytest.mark.parametrize(
    ("reward_range", "reward", "says"),
    [
        ((0, 1), 2.0, r"outside of the reward_range \(0 to 1\).* with a wider range\."),
        (None, 1e200, r"outside of what can be added up .* in a larger unit\."),
    ],
)
def test_rewards_out_of_range_are_refused_with_what_to_do(
    reward_range: tuple[float, float] | None, reward: float, says: str
) -> None:
    live = create(reward_range=reward_range)
    shown = live.ask("u")
    with pytest.raises(sa.InvalidInputError, match=says):
        live.tell(shown, reward)
    live.tell(shown, 1.0)


def test_a_policy_of_your_own_is_given_again() -> None:
    class Mine(sa.Uniform):
        name = "Mine"

    storage = create(name="mine", policy=Mine()).storage
    assert sa.load_experiment("mine", storage, policy=Mine()).policy == Mine()
    with pytest.raises(sa.InvalidInputError, match=r"'Mine', a policy of your own; give it again"):
        sa.load_experiment("mine", storage)


# Metrics: what they say, and how they are written down


def test_the_primary_metric_says_what_the_reward_is() -> None:
    metrics = [
        {"name": "bought", "role": "primary", "kind": "yes/no", "window": "7d"},
        {"name": "revenue", "kind": "money", "several": "sum", "window": "14d", "cap": 500},
        {"name": "orders", "kind": "count", "several": "sum", "window": "14d", "grace": "1d"},
        {"name": "revenue per order", "unit": "€", "ratio": ["revenue", "orders"]},
        {"name": "loading", "direction": "minimize", "role": "guardrail", "margin": 0.2},
    ]
    found = settings(control="arm 0", missing=None, metrics=metrics)
    assert found.primary.name == "bought"
    assert (found.reward_range, found.missing) == ((0.0, 1.0), "zero")
    assert found.reward_window == found.reward_grace == 7 * 86400
    assert list(found.measured) == ["bought", "revenue", "orders", "loading"]


@pytest.mark.parametrize(
    ("rules", "limits"),
    [
        ({}, (-np.inf, np.inf)),
        ({"kind": "count"}, (0, np.inf)),
        ({"range": (1, 5)}, (1, 5)),
        ({"range": (1, 5), "missing": "zero"}, (0, 5)),
        ({"range": (1, 5), "cap": 3}, (1, 3)),
        ({"range": (1, 5), "several": "max", "window": "1d"}, (1, 5)),
        ({"range": (1, 5), "several": "sum", "window": "1d"}, (0, np.inf)),
        ({"range": (-1, 5), "several": "sum", "window": "1d"}, (-np.inf, np.inf)),
        ({"range": (1, 5), "several": "sum", "window": "1d", "cap": 9}, (0, 9)),
    ],
)
def test_limits_are_clipped_to_the_values_of_a_unit(
    rules: dict[str, Any], limits: tuple[float, float]
) -> None:
    low, high = sa.Metric("m", **rules).clip(np.array([-100.0, 100.0]))
    assert (low, high) == (max(limits[0], -100.0), min(limits[1], 100.0))


def test_values_are_checked_and_shown_in_their_unit() -> None:
    money = Metric("revenue", kind="money", unit="€", range=(0, 1000))
    assert money.check(35) == 35.0
    assert money.format_value(1234.5) == "1,234.50 €"
    with pytest.raises(sa.InvalidInputError, match="value of 'revenue' is 1001, outside of its"):
        money.check(1001)
    assert Metric("bought", kind="yes/no").format_value(0.031) == "3.1 %"
    assert Metric("loading", unit="s").format_value(1.25) == "1.25 s"
    assert Metric("loading").format_value(float("nan")) == "unknown"


# Values: variants as data, from settings to assignments


FACTORS = {"headline": ["short", "long"], "image": ["dog", "cat, or none"]}
PRICES = {"A": {"price": 9, "tags": ["new"]}, "B": {"price": 12.5, "tags": []}}


def test_derived_values_say_what_names_say() -> None:
    factorial = settings(arms=sa.ArmSet.factorial(FACTORS)).variant_values
    assert factorial[1] == {"headline": "short", "image": "cat, or none"}
    bundles = settings(arms=sa.ArmSet.bundles(["a", "b", "c", "d"], 2)).variant_values
    assert list(bundles) == [[x, y] for x, y in ("ab", "ac", "ad", "bc", "bd", "cd")]
    assert list(settings(**AB).variant_values) == ["A", "B"]
    # neither all bundles of three items nor the combinations of factors
    for names in (["a + b", "a + c"], ["a=1, b=2", "a=1, b=3", "a=2, b=2"]):
        assert list(values_of(names)) == names


def test_values_of_large_sets_follow_from_the_index() -> None:
    factors = {f"f{i}": ("no", "yes") for i in range(16)}
    names = FactorialNames(factors)
    values = values_of(names)
    assert len(values) == len(names) == 2**16
    for k in (0, 1, 77, 2**16 - 1):
        assert ", ".join(f"{f}={level}" for f, level in values[k].items()) == names[k]
    assert values[3:5] == (values[3], values[4])
    assert values_of(BundleNames(("a", "b", "c"), 2))[2] == ["b", "c"]


@pytest.mark.parametrize("given", [PRICES, list(PRICES.values()), tuple(PRICES.values())])
def test_values_are_given_by_name_or_in_order(given: Any) -> None:
    found = settings(**AB, values=given)
    assert found.values == PRICES
    assert Settings.from_dict(json.loads(json.dumps(found.to_dict()))).values == PRICES
