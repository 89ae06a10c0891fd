"""Attributes of units, and results by level: kept with assignments, honest, and never steering."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.live.breakdowns import interaction
from steadyarm.segments import Segment, SegmentStats
from steadyarm.storages.records import place_of
from tests.live import worlds

ARMS = ["control", "guest", "fast"]
DEVICES = {"device": ["mobile", "desktop"]}
RATES = {
    "mobile": {"control": 0.2, "guest": 0.6, "fast": 0.2},
    "desktop": {"control": 0.3, "guest": 0.2, "fast": 0.3},
    "watch": {"control": 0.2, "guest": 0.2, "fast": 0.2},
}


class Shop(worlds.Shop):
    """A test with visitors of three devices; every fifth does not say which it is."""

    def __init__(self, attributes: Mapping[str, list[str]] | None, budget: int = 1500) -> None:
        rules: dict[str, Any] = {"control": "control", "reward_range": (0, 1), "missing": None}
        rules |= {"reward_window": "1h", "reward_grace": 0, "attributes": attributes}
        super().__init__(arms=ARMS, budget=budget, **rules)
        self.random = random.Random(5)
        self.log: list[tuple[str, str, float]] = []  # device, variant and reward

    def play(self, visits: int, known: bool = True) -> None:
        devices = self.random.choices(["mobile", "mobile", "desktop", "desktop", "watch"], k=visits)
        first = self.visits

        def report(shown: sa.LiveAssignment) -> float | None:
            i = len(self.log)
            reward = float(self.random.random() < RATES[devices[i - first]][shown.name])
            self.log.append((devices[i - first] if i % 5 else "", shown.name, reward))
            return reward or None

        def attributes(i: int) -> dict[str, str] | None:
            return {"device": devices[i - first]} if known and i % 5 else None

        self.visit(visits, report, known=attributes)


@pytest.fixture(scope="module")
def shop() -> Shop:
    """A finished test with a control."""
    shop = Shop(DEVICES)
    shop.play(1500)
    shop.wait(days=1 / 12)
    return shop


def test_attributes_steer_nothing() -> None:
    bare, kept = Shop(None), Shop(DEVICES)
    bare.play(900, known=False)
    kept.play(900)
    assert [variant for _, variant, _ in bare.log] == [variant for _, variant, _ in kept.log]
    for one in (bare, kept):
        one.wait(days=1 / 12)
    assert np.array_equal(bare.test.recommend().intervals, kept.test.recommend().intervals)


def test_estimates_by_level_are_those_of_hand_made_sums(shop: Shop) -> None:
    test = shop.test
    found = test.recommend(by="device")
    stored = {row.unit: row for row in test.storage.log(test.key)}
    rows = [stored[f"visitor {i}"] for i in range(len(shop.log))]
    weights = {record.index: record.segment.weights[0] for record in worlds.records_of(test)}
    for level, device in (("mobile", "mobile"), ("desktop", "desktop"), ("other", "watch")):
        visits: dict[int, list[tuple[int, float]]] = {}
        for row, (own, variant, reward) in zip(rows, shop.log, strict=True):
            if own == device:
                visits.setdefault(place_of(row.number)[0], []).append((ARMS.index(variant), reward))
        scores, count, total = np.zeros(3), 0, 0.0
        for index, seen in sorted(visits.items()):
            reference = total / count if count else 0.0
            for arm, reward in seen:
                scores += reference
                scores[arm] += (reward - reference) / weights[index][arm]
            count += len(seen)
            total += sum(reward for _, reward in seen)
        result = found.of(level)
        assert result.visits == count
        assert result.estimates == pytest.approx(scores / count)
        assert result.lifts == pytest.approx((scores - scores[0]) / count)
    assert found.unknown == sum(device == "" for device, _, _ in shop.log)


def test_a_breakdown_says_what_is_clear_and_what_is_not(shop: Shop) -> None:
    found = shop.test.recommend(by="device")
    assert found.against == "control"
    assert not found.anytime
    assert found.interaction is not None
    assert found.interaction < 0.01
    assert found.differs
    mobile = found.of("mobile")
    assert mobile.lift_intervals[1, 0] > 0
    text = str(found)
    assert text.startswith("How much variants differ depends on device (p ")
    assert "exploratory" in text
    assert "  guest: " in text
    with pytest.raises(sa.InvalidInputError, match="expected one of: mobile, desktop, other"):
        found.of("phone")


def test_before_the_end_intervals_hold_at_all_times() -> None:
    shop = Shop(DEVICES)
    shop.play(600)
    found, once = (shop.test.recommend(by="device", anytime=anytime) for anytime in (None, False))
    assert found.anytime
    assert not once.anytime
    assert found.of("mobile").visits < 600
    wide, narrow = found.of("mobile").lift_intervals, once.of("mobile").lift_intervals
    assert wide is not None
    assert narrow is not None
    assert (np.diff(wide, axis=1)[1:] > np.diff(narrow, axis=1)[1:]).all()


def test_levels_without_visits_and_with_few_are_left_out() -> None:
    shop = Shop({"device": ["mobile", "desktop", "radio"]}, budget=300)
    shop.play(300)
    shop.wait(days=1 / 12)
    found = shop.test.recommend(by="device")
    assert found.of("radio").obstacle == "no judged visit"
    assert len(found.of("radio").estimates) == 0
    assert "other" in found.left_out  # about sixty visits
    assert "radio" not in found.left_out
    rows = [row for row in found.rows() if row[0] == "radio"]
    assert rows == [("radio", "0", "", "", "no judged visit")]


def test_p_values_of_interaction_are_uniform_if_levels_do_not_differ() -> None:
    """400 tests; the share below 0.2 lies within 4 standard errors."""
    arms, rng = sa.ArmSet.one_hot(ARMS), np.random.default_rng(7)
    each, rates, found = 300, np.array([0.1, 0.2, 0.3]), []
    for _ in range(400):
        levels = []
        for level in (0.0, 0.2):
            hits = rng.binomial(each, rates + level)[None].astype(float)
            segment = Segment(np.full((1, 3), 1 / 3), np.array([3 * each]), order="shuffled")
            stats = SegmentStats(np.full((1, 3), each), hits, hits)
            levels.append(Evidence.from_segments(arms, [(segment, stats)]))
        found.append(interaction(levels, row=0))
    assert abs(np.mean(np.array(found) < 0.2) - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 400)


@pytest.mark.parametrize(("buyers", "tested"), [(0.05, False), (0.5, True)])
def test_rewards_of_zero_do_not_count_for_the_test_of_interaction(
    buyers: float, tested: bool
) -> None:
    """Ten buyers of a variant and level are too few, however many zeros are told."""
    rng = np.random.default_rng(7)
    shop = worlds.Shop(arms=["A", "B"], budget=800, attributes={"device": ["m", "d"]})

    def spent(_: sa.LiveAssignment) -> float:
        return float((rng.random() < buyers) * rng.lognormal(3, 0.5))

    shop.visit(800, spent, group=20, known=lambda i: {"device": "md"[i % 2]})
    assert (shop.test.recommend(by="device").interaction is not None) == tested
