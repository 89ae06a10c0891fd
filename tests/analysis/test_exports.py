"""Logs that SteadyArm exports are analysed as they are, with what stands beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.inference import Evidence
from steadyarm.live.scoring import scorecard_of
from steadyarm.storages.memory import MemoryStorage
from tests.live.scorecards import ARMS, played

PLAIN = sa.ArmSet.one_hot(["Z", "Y", "X", "C", "B", "A"])
KINDS = {
    "factorial": ARMS,
    "main effects": sa.ArmSet.factorial({"size": ["S", "M, L"], "hat": ["yes", "no"]}, 1),
    "plain": PLAIN,
}


def unequal(arms: sa.ArmSet, **settings: Any) -> sa.Experiment:
    return played(arms, budget=1200, visits=1200, control={arms.names[1]: 0.35}, **settings)


def without_references(test: sa.Experiment) -> Evidence:
    pieces = [piece for piece in test.results().pieces if piece.recorded]
    segments = [
        (replace(piece.segment.lasting(piece.recorded), reference=None), piece.stats)
        for piece in pieces
    ]
    return Evidence.from_segments(test.arms, segments)


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
    assert any("those of the test test" in note for note in found.notes)
    # Both are unbiased; they differ in the reference that rewards are compared with.
    low, high = found.intervals.low[0], found.intervals.high[0]
    assert ((low < verdict.estimates) & (verdict.estimates < high)).all()
    same = sa.analyze(log, reference=False)
    np.testing.assert_allclose(
        same.estimates, without_references(test).estimates[0], rtol=1e-9, atol=1e-12
    )


def test_the_command_line_needs_no_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = unequal(ARMS).export(tmp_path / "log.csv")
    assert main(["analyze", str(log), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [arm["arm"] for arm in facts["arms"]] == list(ARMS.names)
    assert any("description beside the log" in note for note in facts["notes"])


@pytest.mark.parametrize("kind", ["factorial", "plain"])
def test_without_its_description_an_export_says_what_it_needs(kind: str, tmp_path: Path) -> None:
    test = unequal(KINDS[kind])
    log = test.export(tmp_path / "log.parquet")
    whole = sa.analyze(log)
    (tmp_path / "log.parquet.experiment.json").unlink()
    with pytest.raises(sa.InvalidInputError, match=r"needs its description, LOG\.experiment\.json"):
        sa.analyze(log)
    if kind == "factorial":
        with pytest.raises(sa.InvalidInputError, match="command line --arms FILE"):
            sa.analyze(log)
        np.testing.assert_array_equal(sa.analyze(log, arms=ARMS).estimates, whole.estimates)


def test_another_direction_is_said(tmp_path: Path) -> None:
    log = unequal(PLAIN, direction="minimize").export(tmp_path / "log.parquet")
    assert any("was to minimize rewards" in note for note in sa.analyze(log).notes)
    right = sa.analyze(log, direction="minimize")
    assert not any("was to minimize" in note for note in right.notes)
    assert right.evidence.direction == "minimize"


def test_given_arms_win(tmp_path: Path) -> None:
    log = unequal(ARMS).export(tmp_path / "log.parquet")
    found = sa.analyze(log, arms=ARMS.names)
    assert found.arms == sa.ArmSet.one_hot(ARMS.names)
    assert not any("description" in note for note in found.notes)


def test_a_description_of_another_test_is_refused(tmp_path: Path) -> None:
    log = unequal(PLAIN).export(tmp_path / "log.parquet")
    other = played(PLAIN, budget=1200, visits=1200).export(tmp_path / "other.parquet")
    beside = tmp_path / "log.parquet.experiment.json"
    beside.write_text(Path(f"{other}.experiment.json").read_text())
    with pytest.raises(sa.InvalidInputError, match="do not belong together"):
        sa.analyze(log)


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
    assert "--arms FILE" in str(caught.value)


def test_given_arms_need_no_description(tmp_path: Path) -> None:
    log = unequal(ARMS).export(tmp_path / "log.parquet")
    (tmp_path / "log.parquet.experiment.json").write_text("{")
    assert sa.analyze(log, arms=ARMS).rows == 1200


def test_a_model_that_does_not_fit_blocks_the_verdict_live_and_of_the_log(tmp_path: Path) -> None:
    """Two changes that work only together, in a test whose model adds them up."""
    arms = sa.ArmSet.factorial({"image": ["a", "b"], "text": ["x", "y"]}, interactions=1)
    live = sa.create_experiment(
        "pairs", arms, sa.GBAI(order="blocks"), 1600, MemoryStorage(), seed=3, missing="fail"
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
        assert "interactions=2" in fit.advice
        assert report.unhealthy.startswith("Not healthy: do not decide yet.")
    assert not live.recommend().sure
    assert "not healthy, do not decide yet" in scorecard_of(live).headline
    assert found.verdict.startswith("Not healthy: do not decide yet.")


def test_excluded_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    test = unequal(PLAIN)
    for row in test.storage.log(test.key)[::40]:
        test.exclude(unit=row.unit, reason="bots")
    found = sa.analyze(test.export(tmp_path / "log.csv"))
    assert (found.rows, found.rewards) == (1170, 1170)
    assert "30 rows were excluded by hand and left out." in found.notes
    assert found.health.status == "ok"
    assert found.recommended == test.recommend().name
