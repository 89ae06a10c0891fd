"""Questions: what can be asked, read back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.planning.question import flattest, has_constant

USUAL: dict[str, Any] = {
    "traffic_per_day": 1000,
    "arms": {"one_hot": ["A", "B", "C"]},
    "effects": {"smallest_gap": 0.01},
    "rewards": {"rate": 0.1},
}
FACTORS = {"factorial": {"a": ["0", "1"], "b": ["0", "1"]}, "interactions": 1}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"error": 0.2, "most_days": 30, "policies": ["g-bai", {"name": "steady", "updates": 5}]},
        {"arms": FACTORS},
        {"rewards": {"sd": 0.5}, "rhythm": {"kind": "trend"}},
        {"rhythm": {"kind": "weekend", "strength": 1.0}, "control": "B", "clear": 0.9},
        {"stop": "when sure", "looks": "daily"},
        {"rewards": {"rate": 0.1, "correlation": 0.5, "delay": 3}},
    ],
)
def test_a_question_survives_json(change: dict[str, Any]) -> None:
    question = sa.Question.from_settings(USUAL | change)
    again = sa.Question.from_settings(json.loads(json.dumps(question.to_dict())))
    assert again.to_dict() == question.to_dict()
    np.testing.assert_array_equal(again.shapes, question.shapes)
    assert again.describe() == question.describe()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"effects": {}}, "state the effect that matters"),
        ({"effects": {"smallest_gap": 0}}, "effects.smallest_gap is 0"),
        ({"effects": {"spread": 0.1}}, "has the key 'spread'"),
        ({"effects": {"smallest_gap": 0.95}}, "below 0 or above 1"),
        ({"rewards": {"rate": 0.1, "sd": 1.0}}, "state how rewards vary"),
        ({"rewards": {}}, "state how rewards vary"),
        ({"rewards": {"rate": 0.1, "correlation": 1}}, "rewards.correlation is 1"),
        ({"rewards": {"rate": 0.1, "delay": -1}}, "rewards.delay is -1"),
        ({"error": 0.7}, "less than 0.667"),
        ({"error": "0.05"}, "error is '0.05'"),
        ({"traffic_per_day": 0}, "traffic_per_day is 0"),
        ({"traffic_per_day": 10**12}, "no more than 1e+12 visits"),
        ({"most_days": 6, "rhythm": {"kind": "weekend"}}, "takes at least 7 days"),
        ({"policies": []}, "policies is []"),
        ({"policies": ["steady", "steady"]}, "several policies are called 'Steady'"),
        ({"policies": ["stedy"]}, "there is no policy 'stedy'"),
        ({"control": "D"}, "expected one of the arms, A, B"),
        ({"clear": True}, "a chance such as 0.8, or false"),
        ({"looks": 4}, "expected nothing, unless"),
        ({"stop": "now"}, "stop is 'now'"),
        ({"stop": "when sure", "looks": 61}, "at most 60"),
        ({"stop": "when sure", "clear": False}, "wanted probability of a clear answer"),
        ({"policy": ["steady"]}, "did you mean policies?"),
    ],
)
def test_what_cannot_be_asked_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(sa.InvalidInputError) as refused:
        sa.Question.from_settings(USUAL | change)
    assert message in str(refused.value)


@pytest.mark.parametrize("key", ["traffic_per_day", "arms", "effects", "rewards"])
def test_what_is_missing_is_named(key: str) -> None:
    rest = {k: value for k, value in USUAL.items() if k != key}
    with pytest.raises(sa.InvalidInputError, match="is missing"):
        sa.Question.from_settings(rest)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(sa.InvalidInputError, match=r"nofile.toml cannot be read: No such file"):
        sa.Question.from_file(tmp_path / "nofile.toml")
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(sa.InvalidInputError, match=r"bad\.toml cannot be read as TOML: "):
        sa.Question.from_file(tmp_path / "bad.toml")


def test_the_flattest_world_has_the_gap_and_the_least_variance() -> None:
    arms = sa.ArmSet.factorial({"a": ["0", "1"], "b": ["0", "1", "2"]}, interactions=1)
    assert has_constant(arms)
    for best in range(arms.size):
        values = flattest(arms, best, 0.1)
        assert values is not None
        assert np.sort(values)[-2:].tolist() == pytest.approx([0.0, 0.1])
        assert values.argmax() == best
        basis = np.linalg.svd(arms.coordinates, full_matrices=False)[0]
        np.testing.assert_allclose(basis @ (basis.T @ values), values, atol=1e-9)
        for other in np.random.default_rng(best).normal(size=(50, arms.size)):
            rival = values + basis @ (basis.T @ other) * 0.05
            lead = rival[best] - np.delete(rival, best).max()
            if lead > 0:
                assert (rival * 0.1 / lead).std() >= values.std() - 1e-9
