"""What a question may say, how its worlds are made, and how it is answered when it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.planning.effects import Effects, flattest, has_constant
from steadyarm.planning.worlds import CALM, Rhythm

GOOD: dict[str, Any] = {
    "traffic_per_day": 1000,
    "arms": {"one_hot": ["A", "B", "C"]},
    "effects": {"smallest_gap": 0.02},
    "rewards": {"rate": 0.1},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trafic_per_day": 3}, "'trafic_per_day'.*did you mean traffic_per_day"),
        ({"traffic_per_day": 0}, "traffic_per_day is 0"),
        ({"traffic_per_day": 2.5}, "traffic_per_day is 2.5"),
        ({"error": 5}, "error is 5; expected a number between 0 and 1"),
        ({"most_days": 0}, "most_days is 0"),
        ({"most_days": 5, "rhythm": {"kind": "weekend"}}, "most_days is 5.*at least 7 days"),
        ({"arms": {}}, r"\[arms\] is missing"),
        ({"error": "0.05"}, "error is '0.05'; expected a finite number"),
        ({"error": 0.67}, "error is 0.67; expected less than 0.667, the error of guessing"),
        ({"traffic_per_day": "1000"}, "traffic_per_day is '1000'; expected a whole number"),
        ({"traffic_per_day": 10**15}, r"expected no more than 1e\+12 visits in all"),
        ({"effects": {"smallest_gap": "0.02"}}, "effects.smallest_gap is '0.02'; expected a fin"),
        ({"effects": {"spread": "0.02", "indifference": 0.1}}, "effects.spread is '0.02'"),
        ({"effects": {"range": ["0", 1], "indifference": 0.1}}, "effects.range is '0'; expected"),
        ({"effects": {"smallest_gap": 0.02, "indifference": "0"}}, "effects.indifference is '0'"),
        ({"effects": {"smallest_gap": 0.02, "indifference": 0.02}}, "no verdict could be wrong"),
        ({"effects": {"range": [0, 0.1], "indifference": 0.1}}, "no verdict could be wrong"),
        ({"rewards": {"rate": "0.1"}}, "rewards.rate is '0.1'; expected a finite number"),
        ({"rewards": {"sd": "1"}}, "rewards.sd is '1'; expected a finite number"),
        ({"rewards": {"sd": 1, "mean": "2"}}, "rewards.mean is '2'; expected a finite number"),
        (
            {"effects": {"means": [0.1, 0.2, 0.3]}, "rewards": {"conversions": False}},
            "rewards.conversions is False; expected true",
        ),
        ({"rhythm": {"kind": "trend", "strength": "3"}}, "rhythm.strength is '3'; expected a fin"),
        ({"rhythm": {"kind": "trend", "lift": "0"}}, "rhythm.lift is '0'; expected a finite"),
        ({"rhythm": {"curve": ["1", 2]}}, "rhythm.curve is '1'; expected a finite number"),
        ({"rhythm": {"kind": "none", "strength": 3}}, "rhythm.strength is given, but.*no use of"),
        ({"rhythm": {"kind": "weekend", "week": 3}}, "rhythm.week is given.*kind promotion"),
        ({"rhythm": {"kind": "weekends"}}, "rhythm.kind is 'weekends'.*did you mean weekend"),
        ({"rhythm": {"kind": "weekend", "starts": "sonday"}}, "starts.*did you mean sunday"),
        ({"policies": ["stedy"]}, "no policy 'stedy'.*did you mean steady"),
        ({"policies": [{"name": "steady", "robustness": "0.8"}]}, "robustness"),
        ({"arms": ["A"]}, r"arms is \['A'\]; expected a table"),
        ({"arms": {"one_hot": ["A"]}}, "at least 2"),
        ({"effects": {}}, "has none of its keys; expected exactly one of smallest_gap"),
        (
            {"effects": {"smallest_gap": 0.1, "spread": 1.0}},
            "has smallest_gap and spread; expected exactly one of smallest_gap",
        ),
        ({"effects": {"smallest_gap": -0.1}}, "effects.smallest_gap is -0.1"),
        ({"effects": {"smallest_gap": "big"}}, "effects.smallest_gap is 'big'"),
        ({"effects": {"smalest_gap": 0.1}}, r"\[effects\].*did you mean smallest_gap"),
        ({"effects": {"spread": 0.01}}, "effects.indifference is missing"),
        ({"effects": {"range": [0.1, 0.0], "indifference": 0.01}}, "effects.range is"),
        ({"effects": {"range": [0.1], "indifference": 0.01}}, "effects.range is"),
        ({"effects": {"spread": 0.4, "indifference": 0.01}}, "below 0 or above 1"),
        ({"effects": {"log": 3}}, "effects.log is 3"),
        ({"effects": {"log": "nowhere.csv"}}, "effects.log: nowhere.csv does not exist"),
        ({"effects": {"means": [0.1, 0.2]}, "rewards": {"sd": 1}}, "effects.means has 2 values"),
        ({"effects": {"means": [1, 1, 0]}, "rewards": {"sd": 1}}, "no arm that leads"),
        ({"effects": {"means": [0.1, 0.2, 0.3]}}, "rewards says rate; with known means"),
        ({"rewards": {}}, "rewards says nothing"),
        ({"rewards": {"rate": 0.1, "sd": 1.0}}, "rewards says rate, sd"),
        ({"rewards": {"rate": 1.2}}, "rewards.rate is 1.2"),
        ({"rewards": {"rate": 0.99}}, "below 0 or above 1"),
        ({"rewards": {"sd": 0}}, "rewards.sd is 0"),
        ({"rewards": {"rate": 0.1, "mean": 0.2}}, "rewards.mean goes with sd"),
        ({"rhythm": {"kind": "lunar"}}, "rhythm.kind is 'lunar'"),
        ({"rhythm": {"strength": 2}}, "no kind"),
        ({"rhythm": {"kind": "weekend", "strength": -1}}, "rhythm.strength is -1"),
        ({"rhythm": {"kind": "weekend", "starts": "caturday"}}, "rhythm.starts is 'caturday'"),
        ({"rhythm": {"kind": "weekend", "strength": 40}}, "below 0 or above 1"),
        ({"rhythm": {"kind": "promotion", "week": 0}}, "rhythm.week is 0"),
        ({"rhythm": {"curve": [1, -3]}}, "positive average"),
        ({"rhythm": {"curve": 3}}, "rhythm.curve is 3"),
        ({"rhythm": {"kind": "curve"}}, "curve"),
        ({"policies": []}, r"policies is \[\]"),
        ({"policies": "steady"}, "policies is 'steady'"),
        ({"policies": ["oracle"]}, "no policy 'oracle'"),
        ({"policies": [3]}, "policies has the entry 3"),
        ({"policies": ["steady", "steady"]}, "'Steady' twice"),
        ({"policies": [{"name": "steady", "robstness": 1}]}, "robstness"),
        ({"policies": [{"name": "a/b-test", "block": 1}]}, "has no settings"),
        ({"arms": {"features": [[1], [2]]}}, "add a feature that is 1"),
    ],
)
def test_errors_name_the_key_and_what_was_expected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.Question.from_settings(GOOD | change)


@pytest.mark.parametrize("key", GOOD)
def test_what_is_missing_is_asked_for(key: str) -> None:
    rest = {k: value for k, value in GOOD.items() if k != key}
    name = key if key == "traffic_per_day" else rf"\[{key}\]"
    with pytest.raises(sa.InvalidInputError, match=f"{name} is missing; "):
        sa.Question.from_settings(rest)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(sa.InvalidInputError, match=r"nofile.toml does not exist; give a TOML file"):
        sa.Question.from_file(tmp_path / "nofile.toml")
    with pytest.raises(sa.InvalidInputError, match="cannot be read: "):
        sa.Question.from_file(tmp_path)
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(sa.InvalidInputError, match=r"bad\.toml cannot be read as TOML: "):
        sa.Question.from_file(tmp_path / "bad.toml")


def test_quoted_numbers_in_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "quoted.toml"
    file.write_text(
        'error = "0.05"\ntraffic_per_day = 5\n[arms]\none_hot = ["A", "B"]\n'
        "[effects]\nsmallest_gap = 0.1\n[rewards]\nsd = 1.0\n"
    )
    with pytest.raises(sa.InvalidInputError, match=r"quoted\.toml: error is '0\.05'; expected"):
        sa.Question.from_file(file)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"error": 0.2, "most_days": 30, "policies": ["g-bai", {"name": "steady", "updates": 5}]},
        {"effects": {"spread": 0.01, "indifference": 0.002}},
        {"effects": {"range": [-0.01, 0.02], "indifference": 0.002}},
        {"effects": {"means": [0.1, 0.12, 0.09]}, "rewards": {"conversions": True}},
        {"effects": {"means": [3, 2, 1]}, "rewards": {"sd": 2.0}},
        {"arms": {"factorial": {"a": ["0", "1"], "b": ["0", "1"]}, "interactions": 1}},
        {"rewards": {"sd": 0.5, "mean": 2.0}, "rhythm": {"kind": "trend", "lift": 0.3}},
        {"rhythm": {"kind": "weekend", "starts": "Sunday", "strength": 1}},
        {"rhythm": {"kind": "promotion", "week": 1}},
        {"rhythm": {"curve": [1.0, 0.5, 2.0]}},
    ],
)
def test_settings_survive_a_round_trip(change: dict[str, Any]) -> None:
    question = sa.Question.from_settings(GOOD | change)
    again = sa.Question.from_settings(question.to_dict())
    assert again.to_dict() == question.to_dict()
    assert again.describe() == question.describe()
    assert again.environment(5000).fingerprint == question.environment(5000).fingerprint


@pytest.mark.parametrize(
    "rhythm",
    [
        Rhythm("weekend", strength=2.5, lift=0.02),
        Rhythm("weekend", starts="wednesday"),
        Rhythm("promotion", week=3),
        Rhythm("trend", strength=1.0),
        Rhythm("curve", curve=(2.0, 1.0, -0.5)),
        CALM,
    ],
)
@pytest.mark.parametrize("budget", [3, 1000, 12_345, 40_000])
def test_stated_effects_are_averages_over_the_test(rhythm: Rhythm, budget: int) -> None:
    days = rhythm.days(budget, 1000)
    pieces = rhythm.pieces(budget, days)
    lengths = np.diff(pieces.ends, prepend=0)
    assert pieces.ends[-1] == budget
    assert (lengths > 0).all()
    assert lengths @ pieces.swing / budget == pytest.approx(1.0)
    assert lengths @ pieces.level / budget == pytest.approx(0.0, abs=1e-12)
    assert budget <= 1000 * days


def test_tests_cover_whole_cycles() -> None:
    assert Rhythm("weekend").days(1, 1000) == 7
    assert Rhythm("weekend").days(7001, 1000) == 14
    assert Rhythm("promotion", week=2).days(1, 1000) == 14
    assert Rhythm("promotion", week=2).days(15_000, 1000) == 21
    assert Rhythm("curve", curve=(1.0, 2.0, 3.0)).days(3001, 1000) == 6
    assert Rhythm("trend").days(1001, 1000) == 2
    question = sa.Question.from_settings(GOOD | {"most_days": 20, "rhythm": {"kind": "weekend"}})
    assert question.most_rounds == 14_000


def test_a_weekend_has_two_days_and_starts_when_told() -> None:
    saturday = Rhythm("weekend", strength=7.0).pieces(70, days=7)
    assert saturday.ends.tolist() == [20, 70]
    assert saturday.swing.tolist() == pytest.approx([-4.0, 3.0])
    monday = Rhythm("weekend", strength=7.0, starts="monday").pieces(70, days=7)
    assert monday.ends.tolist() == [50, 70]


def test_the_flattest_world_leads_by_the_gap_and_varies_least() -> None:
    rng = np.random.default_rng(0)
    arms = sa.ArmSet.from_features(np.column_stack([np.ones(12), rng.normal(size=(12, 3))]))
    assert has_constant(arms)
    found = [flattest(arms, k, 0.3) for k in range(12)]
    assert any(values is None for values in found)  # arms inside the hull are never best
    for k, values in enumerate(found):
        if values is None:
            continue
        others = np.delete(values, k)
        assert values[k] == pytest.approx(0.3)
        assert others.max() == pytest.approx(0.0, abs=1e-9)
        for _ in range(50):  # no other linear world that leads by the gap has less variance
            other = arms.features @ rng.normal(size=4)
            other += arms.features @ np.linalg.lstsq(arms.features, values, rcond=None)[0] * 3
            gap = other[k] - np.delete(other, k).max()
            if gap > 0:
                assert (other * 0.3 / gap).var() >= values.var() * (1 - 1e-9)


def test_the_best_arm_is_any_arm() -> None:
    question = sa.Question.from_settings(GOOD)
    world = question.world(100, CALM, np.random.default_rng(0), 600)
    best = np.bincount(world.effects.argmax(axis=1), minlength=3)
    assert best.min() > 150
    assert np.sort(world.effects, axis=1)[:, -2].max() == 0.0


def test_drawn_effects_have_the_spread_also_where_features_are_shared() -> None:
    arms = sa.ArmSet.factorial({"a": ["0", "1", "2"], "b": ["0", "1"]}, interactions=1)
    for effects in (
        Effects(arms, spread=0.5, indifference=0.1),
        Effects(arms, range=(-0.5 * 3**0.5, 0.5 * 3**0.5), indifference=0.1),
    ):
        drawn = effects.draw(np.random.default_rng(1), 20_000)
        assert np.sqrt((drawn**2).mean()) == pytest.approx(0.5, rel=0.02)
        theta = np.linalg.lstsq(arms.features, drawn.T, rcond=None)[0]
        assert np.allclose(arms.features @ theta, drawn.T)


def test_impossible_rates_are_drawn_anew() -> None:
    settings = GOOD | {"effects": {"spread": 0.06, "indifference": 0.01}}
    question = sa.Question.from_settings(settings)
    world = question.world(100, CALM, np.random.default_rng(0), 1000)
    assert (world.effects + question.level).min() >= 0


def test_a_log_gives_arms_means_and_noise(tmp_path: Path) -> None:
    log = tmp_path / "quarter.csv"
    log.write_text("day,arm,reward\n1,A,1\n1,B,0\n2,A,0\n2,B,0\n3,A,1\n3,B,1\n3,A,1\n")
    settings = {"traffic_per_day": 50, "effects": {"log": "quarter.csv"}}
    question = sa.Question.from_settings(settings, tmp_path)
    world = question.environment(10)
    assert question.arms.names == ("A", "B")
    assert world.average.tolist() == pytest.approx([0.75, 1 / 3])
    assert isinstance(world.noise, sa.BernoulliReward)
    log.write_text("arm,reward\nA,1.5\nA,2.5\nB,4\nB,6\n")
    question = sa.Question.from_settings(settings, tmp_path)
    assert question.sd == pytest.approx(((0.5 + 2) / 2) ** 0.5)
    chosen = settings | {"arms": {"one_hot": ["B", "A"]}}
    assert sa.Question.from_settings(chosen, tmp_path).environment(9).best_arm == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "has the columns a, b; expected"),
        ("", "has the columns none"),
        ("arm,reward\nA,1\nA,2\n", "has 1 arm; "),
        ("arm,reward\nA,1\nB,\n", "line 3: the reward is ''"),
        ("arm,reward\nA,1\nB,nan\n", "line 3: the reward is 'nan'"),
        ("arm,reward\nA,1\n,2\n", "line 3: the arm is empty"),
        ("arm,reward\nA,1\nB,2\nA,1\n", "no noise"),
    ],
)
def test_bad_logs_are_explained(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.Question.from_settings({"traffic_per_day": 50, "effects": {"log": "log.csv"}}, tmp_path)


def test_a_log_must_have_the_arms_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("arm,reward\nA,1\nB,0\nA,0\n")
    settings = {
        "traffic_per_day": 5,
        "effects": {"log": "log.csv"},
        "arms": {"one_hot": ["A", "C"]},
    }
    with pytest.raises(sa.InvalidInputError, match="has no arm 'C'; it has A, B"):
        sa.Question.from_settings(settings, tmp_path)
    settings = {"traffic_per_day": 5, "effects": {"log": "log.csv", "spread": 1.0}}
    with pytest.raises(sa.InvalidInputError, match="effects has log and spread; leave one"):
        sa.Question.from_settings(settings, tmp_path)


def test_what_is_asked_of_answers_survives_its_settings() -> None:
    asked = {
        "traffic_per_day": 100,
        "arms": {"one_hot": ["A", "B"]},
        "effects": {"smallest_gap": 0.1},
        "rewards": {"rate": 0.3, "correlation": -0.4, "delay": 1.5},
        "clear": 0.9,
        "control": "B",
        "stop": "recommend",
        "looks": "daily",
        "spending": "pocock",
        "futility": 0.02,
        "policies": ["top-two-thompson"],
    }
    question = sa.Question.from_settings(asked)
    described = "Says when to stop: looks daily, spending pocock, futility 0.02."
    assert described in question.describe()
    sure = sa.Question.from_settings(asked | {"stop": "when sure"})
    assert "Stops when sure: looks daily" in sure.describe()
    again = sa.Question.from_settings(question.to_dict())
    assert again.to_dict() == question.to_dict()
    assert (again.clear, again.control, again.looks) == (0.9, "B", "daily")
    assert question.scatter == pytest.approx(question.sd * 0.84**0.5)
    policy = question.candidates[0].policy
    assert isinstance(policy, sa.TopTwoThompson)
    assert policy.noise_sd == pytest.approx(question.scatter)  # it knows what the covariate leaves
    assert question.days(250) == 3 + 2
    assert question.lag(300, question.rhythm) == 150
    assert question.most_rounds == (question.most_days - 2) * 100
    assert sa.Question.from_settings(asked | {"clear": 0.8}).clear == 0.8
    stopping = ("stop", "looks", "spending", "futility")
    silent = {key: value for key, value in asked.items() if key not in stopping}
    assert sa.Question.from_settings(silent | {"clear": False}).to_dict()["clear"] is False


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"clear": 0}, "clear"),
        ({"clear": True}, "clear"),
        ({"clear": "often"}, "clear"),
        ({"control": "C"}, "control"),
        ({"stop": "now"}, "stop"),
        ({"stop": "when sure", "clear": False}, "stop"),
        ({"stop": "when sure", "looks": 0}, "looks"),
        ({"stop": "when sure", "looks": "hourly"}, "looks"),
        ({"looks": 5}, "looks"),
        ({"spending": "pocock"}, "spending"),
        ({"futility": 0.1}, "futility"),
        ({"stop": "when sure", "futility": 0}, "futility"),
        ({"stop": "when sure", "spending": "all"}, "spending"),
        ({"rewards": {"sd": 1.0, "correlation": 1.0}}, "rewards.correlation"),
        ({"rewards": {"sd": 1.0, "delay": -1}}, "rewards.delay"),
    ],
)
def test_answers_that_cannot_be_given_are_refused(wrong: dict[str, Any], field: str) -> None:
    asked = {
        "traffic_per_day": 100,
        "arms": {"one_hot": ["A", "B"]},
        "effects": {"smallest_gap": 0.1},
        "rewards": {"sd": 1.0},
    }
    with pytest.raises(sa.InvalidInputError) as refused:
        sa.Question.from_settings(asked | wrong)
    assert refused.value.field == field
