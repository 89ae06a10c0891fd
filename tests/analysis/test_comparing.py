"""Logs against a control and by segment: the words and the numbers of a live test."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.analysis.analyze import MOST_LEVELS
from tests.analysis.logs import START, write_table
from tests.analysis.test_splits import Rows, fixed_rows, written


def rows_by_country(n: int = 3000, seed: int = 1) -> Rows:
    """Variant B is better by 1 in France alone; some rows have no country."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(n):
        arm = "AB"[int(rng.integers(2))]
        country = ["FR", "DE", ""][int(rng.choice(3, p=[0.5, 0.4, 0.1]))]
        reward = 2 + (arm == "B") * (country == "FR") + float(rng.normal())
        time = START + timedelta(days=8 * i / n)
        rows.append(
            {"timestamp": time, "unit": i, "arm": arm, "reward": reward, "country": country}
        )
    return rows


def test_lifts_and_the_decision(tmp_path: Path) -> None:
    rows = fixed_rows(1200, (0.4, 0.3, 0.3))
    for row in rows:
        row["reward"] += 2.0
    shares = {"A": 0.4, "B": 0.3, "C": 0.3}
    found = sa.analyze(written(tmp_path / "log.csv", rows), split=shares, control="A")
    assert found.control == "A"
    verdict = found.verdict
    best = verdict.of("C")
    assert best.lift == pytest.approx(0.6, abs=0.2)
    assert best.lift_low < 0.6 < best.lift_high
    assert best.relative == pytest.approx(found.estimates[2] / found.estimates[0] - 1)
    assert verdict.decision.word == "ship"
    assert verdict.decision.variant == "C"
    text, facts = str(found), json.loads(json.dumps(found.to_dict()))
    assert text.startswith("Ship C: it beats A by ")
    assert "against A" in text
    assert facts["control"] == "A"
    assert facts["decision"]["word"] == "ship"
    assert facts["arms"][0]["lift"] == 0
    assert facts["arms"][2]["relative_interval"][0] > 0
    less = sa.analyze(tmp_path / "log.csv", split=shares, control="A", direction="minimize").verdict
    assert less is not None
    assert less.decision.text == "Keep A: no other variant beats it."


def test_an_unknown_control_is_refused(tmp_path: Path) -> None:
    rows = [{**row, "arm": row["arm"].replace("B", "B ")} for row in fixed_rows(200)]
    log = written(tmp_path / "log.csv", rows)
    right = r"'B' is not one of the arms of log\.csv: 'A', 'B '; did you mean 'B '"
    with pytest.raises(sa.InvalidInputError, match=right):
        sa.analyze(log, split="equal", control="B")


def test_a_test_that_is_watched_may_decide_before_its_end(tmp_path: Path) -> None:
    rows = fixed_rows(3000)
    for row in rows:
        row["reward"] += 2.0 + 0.5 * (row["arm"] == "B")
    log = written(tmp_path / "log.csv", rows)
    found = sa.analyze(log, split="equal", control="A", budget=6000)
    assert found.verdict.anytime
    assert found.verdict.decision.word == "ship"
    for row in rows:
        row["reward"] -= 0.8 * (row["arm"] == "B")
    same = sa.analyze(written(log, rows), split="equal", control="A", budget=6000).verdict
    assert same is not None
    assert same.decision.word == "running"


# Segments.


def test_levels_have_results_of_their_own(tmp_path: Path) -> None:
    rows = rows_by_country()
    log = written(tmp_path / "log.csv", rows)
    found = sa.analyze(log, split="equal", control="A", columns=sa.Columns(segments=["country"]))
    [by] = found.segments
    assert [level.name for level in by.levels] == ["FR", "DE"]
    assert by.unknown == sum(row["country"] == "" for row in rows)
    assert by.differs
    france, germany = by.of("FR"), by.of("DE")
    assert france.lifts[1] == pytest.approx(1.0, abs=0.25)
    assert germany.lift_intervals[1, 0] < 0 < germany.lift_intervals[1, 1]
    text, facts = str(found), found.to_dict()
    assert "By country:" in text
    assert f"{by.unknown} rows have no country." in text
    assert [level["name"] for level in facts["segments"][0]["levels"]] == ["FR", "DE"]
    json.dumps(facts)


def test_a_level_by_itself_has_the_estimates_of_a_log_of_its_rows(tmp_path: Path) -> None:
    rows = rows_by_country(1500)
    log = written(tmp_path / "log.csv", rows)
    alone = written(tmp_path / "fr.csv", [row for row in rows if row["country"] == "FR"])
    [by] = sa.analyze(log, split="equal", columns=sa.Columns(segments=["country"])).segments
    one = sa.analyze(alone, split="equal")
    estimates = by.of("FR").estimates
    assert estimates is not None
    np.testing.assert_allclose(estimates, one.estimates, rtol=1e-9)
    assert by.against == "B"  # recommended, since there is no control


def test_many_levels_are_cut(tmp_path: Path) -> None:
    rows = fixed_rows(900)
    for i, row in enumerate(rows):
        row["zip"] = i % 30 if i < 800 else 7
    found = sa.analyze(
        written(tmp_path / "log.csv", rows), split="equal", columns=sa.Columns(segments=["zip"])
    )
    [by] = found.segments
    assert len(by.levels) == MOST_LEVELS + 1
    assert by.levels[0].name == "7"
    assert by.levels[-1].name == "other"
    assert sum(level.visits for level in by.levels) == 900
    assert any(note.startswith("zip has 30 levels: the 20 with the most") for note in found.notes)


def test_segments_of_units_with_several_rows(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(4), []
    for unit in range(400):
        arm, country = "AB"[int(rng.integers(2))], ["FR", "DE"][unit % 2]
        level = float(rng.normal())
        for visit in range(3):
            time = START + timedelta(days=visit, minutes=unit)
            reward = level + (arm == "B") + float(rng.normal(0, 0.1))
            rows.append(
                {
                    "timestamp": time,
                    "user_id": unit,
                    "arm": arm,
                    "reward": reward,
                    "country": country,
                }
            )
    log = written(tmp_path / "log.csv", rows)
    widths = []
    by_unit = sa.Columns(segments=["country"])
    for columns in (by_unit, replace(by_unit, unit=None)):
        [by] = sa.analyze(log, columns=columns, split="equal", control="A").segments
        ends = by.of("FR").lift_intervals
        assert ends is not None
        widths.append(ends[1, 1] - ends[1, 0])
    assert widths[0] > 1.4 * widths[1]  # three rows of one unit are no three units


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["contry"], r"no column 'contry'; .* Did you mean 'country'\?"),
        (["arm"], "'arm' is the arm;"),
        (["country", "country"], "expected at most 8 different columns"),
        ([7], "expected names of columns"),
        (["test"], "has only 'one'; results by segment need at least two levels"),
    ],
)
def test_what_cannot_be_a_segment_is_refused(given: Any, message: str, tmp_path: Path) -> None:
    rows = fixed_rows(100)
    for row in rows:
        row["test"] = "one"
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.analyze(
            written(tmp_path / "log.csv", rows), split="equal", columns=sa.Columns(segments=given)
        )


def test_every_place_says_the_same(tmp_path: Path, postgres: str) -> None:
    """Splits that changed, a control and segments, wherever the rows are."""
    rows = rows_by_country(700)
    names, values = list(rows[0]), [list(row.values()) for row in rows]
    file, database = tmp_path / "log.parquet", tmp_path / "log.db"
    for place in (file, database, postgres):
        write_table(place, names, values)
    asked: dict[str, Any] = {
        "split": ["equal", "2026-03-03 12:00: A=1/2,B=1/2"],
        "control": "A",
        "columns": sa.Columns(segments=["country"]),
    }
    first = sa.analyze(written(tmp_path / "log.csv", rows), **asked)
    for place, query in ((file, None), (database, "log"), (postgres, "log")):
        other = sa.analyze(place, query=query, **asked)
        assert other.split == first.split
        assert other.verdict.decision == first.verdict.decision
        assert_alike(other.verdict.lift_intervals, first.verdict.lift_intervals)
        for mine, theirs in zip(first.segments[0].levels, other.segments[0].levels, strict=True):
            assert (theirs.name, theirs.visits) == (mine.name, mine.visits)
            assert_alike(theirs.lift_intervals, mine.lift_intervals)


def assert_alike(one: Any, other: Any) -> None:
    assert one is not None
    np.testing.assert_allclose(one, other, rtol=1e-9)
