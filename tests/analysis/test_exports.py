"""Logs that SteadyArm exports are analysed as they are, with what stands beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import steadyarm as sa
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.live.verdict import Verdict
from tests.live.scorecards import ARMS, played

PLAIN = sa.ArmSet.one_hot(["Z", "Y", "X", "C", "B", "A"])
KINDS = {
    "factorial": ARMS,
    "main effects": sa.ArmSet.factorial({"size": ["S", "M, L"], "hat": ["yes", "no"]}, 1),
    "plain": PLAIN,
}


def unequal(arms: sa.ArmSet, **settings: Any) -> sa.Experiment:
    return played(arms, budget=1200, visits=1200, control={arms.names[1]: 0.35}, **settings)


def assert_same_verdict(found: sa.analysis.Analysis, live: Verdict) -> None:
    for name in ("estimates", "intervals", "gap_intervals", "lifts", "relative_intervals"):
        np.testing.assert_allclose(getattr(found.verdict, name), getattr(live, name), rtol=1e-9)
    assert found.verdict.decision == live.decision
    assert found.verdict.judged == live.judged
    assert found.plausible == live.plausible
    limits = np.column_stack([found.intervals.low[0], found.intervals.high[0]])
    np.testing.assert_allclose(limits, live.intervals, rtol=1e-9)


@pytest.mark.parametrize(
    ("stop", "rate", "word"), [(None, 0.1, "unclear"), ("when sure", 0.35, "ship")]
)
def test_a_test_that_stopped_early_is_judged_as_it_was_live(
    stop: Any, rate: float, word: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(4)
    rules: Any = {"stop": stop, "control": "today", "direction": "minimize", "missing": "drop"}
    test = sa.create_experiment(
        "shop", ["new", "today"], sa.Steady(), 4000, "memory", seed=2, **rules
    )
    for visit in range(2000):
        shown = test.ask(f"unit {visit}")
        if test.state != "running":
            break
        test.tell(shown, float(random.random() < (rate if shown.name == "today" else 0.1)))
    if stop is None:
        test.stop()
    assert test.state == "stopped"
    live, log = test.recommend(), test.export(tmp_path / "shop.parquet")
    assert live.decision.word == word
    found = sa.analyze(log)
    assert_same_verdict(found, live)
    assert found.anytime
    assert_same_verdict(sa.analyze(log, level=0.8), test.recommend(0.8))
    pd.read_parquet(log).iloc[:-50].to_parquet(log)
    with pytest.raises(sa.InvalidInputError, match="was changed after") as error:
        sa.analyze(log)
    assert "remove shop.parquet.experiment.json to analyse the rows alone" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("factorial", "csv"), ("factorial", "parquet"), ("main effects", "csv"), ("plain", "parquet")],
)
def test_exports_say_what_the_experiment_says(kind: str, ending: str, tmp_path: Path) -> None:
    test = unequal(KINDS[kind])
    log = test.export(tmp_path / f"log.{ending}")
    found, verdict = sa.analyze(log), test.recommend()
    assert found.arms == test.arms
    assert found.rows == found.rewards == verdict.rewards == 1200
    assert found.recommended == verdict.name
    assert found.health.status == test.health().status
    assert any("those of the test test, on" in note for note in found.notes)
    assert_same_verdict(found, verdict)


def test_other_questions_are_asked_of_the_rows(tmp_path: Path) -> None:
    """Control and direction stay those of the test."""
    test = unequal(PLAIN, direction="minimize")
    log = test.export(tmp_path / "log.parquet")
    own, other = sa.analyze(log), sa.analyze(log, missing="drop", period="shares:5")
    assert own.evidence.direction == other.evidence.direction == "minimize"
    assert other.recommended == own.recommended
    assert (own.anytime, other.anytime) == (test.recommend().anytime, False)
    assert own.verdict.control == other.verdict.control


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "is not the description"),
        ('{"format": 1, "experiment": {}, "segments": [], "rows": {}}', "damaged"),
    ],
)
def test_damaged_descriptions_are_answered(text: str, message: str, tmp_path: Path) -> None:
    log = unequal(ARMS).export(tmp_path / "log.parquet")
    (tmp_path / "log.parquet.experiment.json").write_text(text)
    with pytest.raises(sa.InvalidInputError, match=message) as caught:
        sa.analyze(log)
    assert "remove log.parquet.experiment.json" in str(caught.value)


def test_a_model_that_does_not_fit_blocks_the_verdict_live_and_of_the_log(tmp_path: Path) -> None:
    """Two changes that work only together, in a test whose model adds them up."""
    arms = sa.ArmSet.factorial({"image": ["a", "b"], "text": ["x", "y"]}, interactions=1)
    live = sa.create_experiment(
        "pairs", arms, sa.GBAI(order="blocks"), 1600, "memory", seed=3, missing="fail"
    )
    rng = np.random.default_rng(5)
    for i in range(1600):
        shown = live.ask(f"u{i}")
        rate = 0.7 if "image=b" in shown.name and "text=y" in shown.name else 0.2
        live.tell(shown, float(rng.random() < rate))
    found = sa.analyze(live.export(tmp_path / "log.csv"))
    for report in (live.health(), found.health):
        (fit,) = (finding for finding in report.findings if finding.name == "lack of fit")
        assert fit.status == "fail"
        assert "Add the interaction of 'image' and 'text'" in fit.advice
        assert report.unhealthy.startswith("Not healthy: do not decide yet.")
    assert not live.recommend().sure
    assert "not healthy, do not decide yet" in compute_scorecard(live).headline
    assert found.summary.startswith("Not healthy: do not decide yet.")


# Every kind of export is readable again as it is.

BEGIN = 1_772_323_200.0  # 2026-03-01


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        return self.now


def with_metrics(**settings: Any) -> sa.Experiment:
    """Clicks of 600 visitors over ten days; one in three never answers, and a bot is excluded."""
    clock, rng = Clock(), np.random.default_rng(6)
    rules: dict[str, Any] = {
        "seed": 3,
        "clock": clock,
        "reward_range": (0, 1),
        "reward_window": "1d",
    } | settings
    if "reward_window" in settings and settings["reward_window"] is None:
        del rules["reward_window"]
    arms = settings.get("arms", sa.ArmSet.one_hot(["today", "guest", "wallet"]))
    rules.pop("arms", None)
    test = sa.create_experiment("shop", arms, sa.Steady(), 1200, "memory", **rules)
    for i in range(600):
        clock.now = BEGIN + 864_000 * i / 600
        known: dict[str, Any] = {}
        if "covariates" in rules:
            known = {"covariates": {"spend": float(rng.normal())}}
        shown = test.ask(f"u{i}", **known)
        clock.now += 60
        if rng.random() < 0.67:
            test.tell(shown, float(rng.random() < 0.4 + 0.3 * (shown.name == "guest")))
    return test


VARIANTS: dict[str, dict[str, Any]] = {
    "zero": {},
    "drop": {"missing": "drop"},
    "no window": {"missing": "drop", "reward_window": None},
    "covariates": {"covariates": ["spend"]},
    "metrics": {
        "metrics": [
            sa.Metric("basket", role="secondary"),
            sa.Metric("crash", role="guardrail", margin=0.1),
        ],
        "control": "today",
    },
    "factorial": {"arms": sa.ArmSet.factorial({"size": ["S", "L"], "hat": ["no", "yes"]}, 1)},
}


@pytest.mark.parametrize("kind", VARIANTS)
def test_whatever_is_exported_can_be_read(kind: str, tmp_path: Path) -> None:
    test = with_metrics(**VARIANTS[kind])
    test.exclude(unit="u7", reason="bots")
    log = test.export(tmp_path / ("log.csv" if kind < "f" else "log.parquet"))
    if test.settings.window is None:
        with pytest.raises(sa.RewardsPendingError, match="still wait for their rewards"):
            sa.analyze(log)
    else:
        running = sa.analyze(log)
        assert any("some of their rewards may still come" in note for note in running.notes)
        assert "1 visit was excluded by hand and left out." in running.notes
        assert 0 < running.rows == test.recommend().judged < 599
    test.stop()
    stopped, live = sa.analyze(test.export(log)), test.recommend()
    assert_same_verdict(stopped, live)
    assert stopped.rows == live.judged
    assert (
        stopped.rewards
        == live.rewards
        == stopped.counts.sum() - (live.missing if test.settings.missing == "zero" else 0)
    )
    how = {"zero": "counted as 0.", "drop": "left out."}[test.settings.missing]
    assert any(note.endswith(f"without reward: {how}") for note in stopped.notes)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_download_without_a_description(ending: str, tmp_path: Path) -> None:
    """A service gives the log alone."""
    log = unequal(PLAIN).export(tmp_path / f"log.{ending}")
    whole = sa.analyze(log)
    Path(f"{log}.experiment.json").unlink()
    found = sa.analyze(log)
    assert found.arms.names == tuple(sorted(PLAIN.names))
    again = dict(zip(found.arms.names, found.estimates, strict=True))
    for name, estimate, error in zip(
        whole.arms.names, whole.estimates, whole.intervals.standard_errors[0], strict=True
    ):
        assert abs(again[name] - estimate) < error


def test_segments_of_an_export_are_its_attributes(tmp_path: Path) -> None:
    test = sa.create_experiment(
        "shop",
        ["A", "B"],
        sa.Steady(),
        400,
        "memory",
        seed=1,
        missing="drop",
        attributes={"device": ["mobile", "desktop"]},
    )
    for i in range(400):
        shown = test.ask(f"u{i}", attributes={"device": ["mobile", "desktop"][i % 2]})
        test.tell(shown, float(i % 5 < 2 + (shown.name == "B")))
    [by] = sa.analyze(
        test.export(tmp_path / "log.csv"), columns=sa.Columns(segments=["device"])
    ).segments
    live = test.recommend(by="device")
    for level in live.levels[:2]:
        np.testing.assert_allclose(by.of(level.name).estimates, level.estimates, rtol=1e-9)
