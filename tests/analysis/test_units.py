"""Units with several rows: variances are those of single rows added up by hand, unit by unit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from tests.analysis.logs import (
    START,
    Row,
    random_rows,
    write_csv,
    write_log,
)

NAMES = ["A", "B", "C"]


def repeated_rows(
    units: int = 240, sticky: bool = True, heavy: bool = True, seed: int = 0, p_moves: bool = False
) -> list[Row]:
    """Rows of units that come again over days, drawn once or at every visit."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(3, 5.0), size=4) * 0.7 + 0.1
    made = []
    for u in range(units):
        day, level = u * 4 // units, float(rng.normal())
        k = int(rng.choice(3, p=p[day]))
        for visit in range(1 + int(rng.geometric(0.3)) * heavy + 2 * (not heavy)):
            now = day if visit == 0 else min(day + int(rng.integers(3)), 3)
            if not sticky:
                k = int(rng.choice(3, p=p[now]))
            logged = now if p_moves or not sticky else day
            time = START + timedelta(days=now, seconds=60 * u + visit)
            reward = 5 + level + 0.3 * k + float(rng.normal())
            made.append(Row(time, f"u{u}", NAMES[k], float(p[logged, k]), reward))
    return sorted(made, key=lambda row: row.timestamp)


def unit_scores(rows: Sequence[Row], kept: bool = True) -> tuple[Any, Any, Any]:
    """Each unit's day, rows and score sum, the references being means of earlier days' units.

    On the first day a unit that keeps its variant is compared with the other units of that day:
    that is to raise its distance from the mean of all by M / (M - m).
    """
    units: dict[Any, list[Row]] = {}
    for row in rows:
        units.setdefault(row.unit, []).append(row)
    day = {unit: min(row.timestamp for row in own).date() for unit, own in units.items()}
    seen, total = np.zeros(3), np.zeros(3)
    days, sizes, scores = [], [], []
    for today in sorted(set(day.values())):
        here = [own for unit, own in units.items() if day[unit] == today]
        mean = np.mean([row.reward for own in here for row in own])
        common = total.sum() / seen.sum() if seen.any() else mean
        v = np.where(seen > 0, total / np.maximum(seen, 1), common)
        first, M = not seen.any(), sum(map(len, here))
        for own in here:
            score, raised = len(own) * v, M / (M - len(own)) if first and kept else 1.0
            for row in own:
                k = NAMES.index(row.arm)
                score[k] += raised * (row.reward - v[k]) / row.probability
            days.append(today)
            sizes.append(len(own))
            scores.append(score)
        for own in here:
            for row in own:
                seen[NAMES.index(row.arm)] += 1
                total[NAMES.index(row.arm)] += row.reward
    return np.array(days), np.array(sizes, dtype=float), np.array(scores)


def assert_like_units(found: sa.Analysis, rows: Sequence[Row]) -> None:
    """Scores, and variances around the mean, are those of the units."""
    assert found.units is not None
    days, sizes, scores = unit_scores(rows, found.units.kept)
    evidence = found.evidence
    np.testing.assert_allclose(evidence.theta[0], scores.sum(axis=0) / sizes.sum(), rtol=1e-10)
    assert evidence.played[0] == sizes.sum() == len(rows)
    groups = [days == day for day in sorted(set(days))]
    assert evidence.rounds.shape[1] == len(groups)
    effective = [sizes[g].sum() ** 2 / (sizes[g] ** 2).sum() for g in groups]
    assert evidence.freedom is not None
    np.testing.assert_allclose(evidence.freedom[0], np.cumsum(np.array(effective) - 1))
    for j, group in enumerate(groups):
        m, s = sizes[group], scores[group]
        off = s - m[:, None] * s.sum(axis=0) / m.sum()
        squares, cubes = (m**2).sum(), (m**3).sum()
        factor = 1 / (1 - 2 * cubes / (m.sum() * squares) + squares / m.sum() ** 2)
        total = evidence.scores[0, j]
        variance = evidence.squares[0, j] - np.outer(total, total) / evidence.rounds[0, j]
        np.testing.assert_allclose(variance, factor * off.T @ off, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("sticky", [True, False])
def test_variances_are_those_of_units(sticky: bool, tmp_path: Path, postgres: str) -> None:
    import duckdb

    rows = repeated_rows(sticky=sticky)
    write_log(postgres, rows, table="units")
    write_log(tmp_path / "log.parquet", rows)
    with duckdb.connect(str(tmp_path / "log.duckdb")) as connection:
        connection.execute(f"create table log as select * from '{tmp_path}/log.parquet'")
    for found in (
        sa.analyze(tmp_path / "log.duckdb"),
        sa.analyze(write_csv(tmp_path / "log.csv", rows)),
        sa.analyze(tmp_path / "log.parquet"),
        sa.analyze(write_log(tmp_path / "log.db", rows)),
        sa.analyze(postgres, query="units"),
    ):
        assert_like_units(found, rows)
        assert found.units is not None
        assert (found.units.units, found.units.rows, found.units.kept) == (240, len(rows), sticky)
        assert found.intervals.method == found.drift.method == "units"
        said = f"Variance by unit (240 units, {len(rows):,} rows)"
        assert said in found.intervals.assumption
        assert said in str(found)


def test_days_with_few_new_units_are_joined(tmp_path: Path) -> None:
    rows = [row for row in repeated_rows(seed=1) if int(row.unit[1:]) < 130]
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows))
    days, sizes, scores = unit_scores(rows)
    assert [int((days == day).sum()) for day in sorted(set(days))] == [60, 60, 10]
    assert found.drift.periods == ("2026-03-01", "2026-03-02 to 2026-03-03")
    np.testing.assert_allclose(found.estimates, scores.sum(axis=0) / sizes.sum(), rtol=1e-10)
    assert found.evidence.rounds[0].tolist() == [sizes[:60].sum(), sizes[60:].sum()]


def test_drift_is_told_without_the_period_that_few_large_units_dominate(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(1), []
    for unit in range(603):
        visits = (400, 250, 150)[unit] if unit < 3 else 1
        arm = "AB"[int(rng.integers(2))]
        for visit in range(visits):
            time = START + timedelta(days=(visit if unit < 3 else unit) % 6, seconds=unit + visit)
            rows.append(Row(time, f"u{unit}", arm, 0.5, float(rng.random() < 0.1)))
    rows.sort(key=lambda row: row.timestamp)
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows))
    assert found.evidence.rounds[0].tolist() == [1400]  # intervals rest on all rows, as one piece
    assert found.drift.periods == tuple(f"2026-03-0{day}" for day in range(2, 7))
    assert "There is only one period" not in str(found)
    assert "Drift is tested with 500 of 1,400 rewards: in the other periods" in str(found)


def test_a_kept_variant_counts_with_its_first_probability(tmp_path: Path) -> None:
    """Whatever an adaptive system logs at later visits."""
    current = repeated_rows(seed=5, p_moves=True)
    first = repeated_rows(seed=5)
    found = sa.analyze(write_csv(tmp_path / "log.csv", current))
    assert_like_units(found, first)
    assert found.units is not None
    assert found.units.changed > 20
    [finding] = [f for f in found.health.findings if f.name == "units"]
    assert "the one of the first row was used" in finding.explanation


def test_contamination_is_counted(tmp_path: Path) -> None:
    rows = repeated_rows(seed=6)
    twice = [i for i, row in enumerate(rows) if row.unit in ("u3", "u40", "u77")]
    for unit in ("u3", "u40", "u77"):
        last = max(i for i in twice if rows[i].unit == unit)
        other = next(name for name in NAMES if name != rows[last].arm)
        rows.append(
            replace(rows[last], arm=other, timestamp=rows[last].timestamp + timedelta(seconds=1))
        )
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows))
    [finding] = [f for f in found.health.findings if f.name == "units"]
    assert finding.status == "warn"
    assert finding.explanation.startswith("3 of 240 units have rows of several variants")
    assert "Every row was counted for its own variant" in finding.explanation
    assert_like_units(found, rows)


def test_rows_without_a_unit_are_units(tmp_path: Path) -> None:
    rows = repeated_rows(seed=7)
    lone = [replace(row, unit=None) for row in rows[:20]]
    named = [replace(row, unit=f"lone {i}") for i, row in enumerate(rows[:20])]
    nameless = sa.analyze(write_log(tmp_path / "log.parquet", lone + rows[20:]))
    alone = sa.analyze(write_csv(tmp_path / "log.csv", named + rows[20:]))
    assert nameless.units is not None
    assert alone.units is not None
    assert nameless.units.units == alone.units.units
    assert "20 rows without a unit count as one each" in str(nameless)
    np.testing.assert_allclose(nameless.estimates, alone.estimates, rtol=1e-10)
    np.testing.assert_allclose(
        nameless.intervals.standard_errors, alone.intervals.standard_errors, rtol=1e-8
    )


def test_usual_names_of_units_are_found(tmp_path: Path) -> None:
    rows = repeated_rows(seed=8)
    names = ("timestamp", "User_ID", "arm", "probability", "reward")
    log = write_csv(tmp_path / "log.csv", rows, names)
    found = sa.analyze(log)
    assert_like_units(found, rows)
    assert "In log.csv unit is 'User_ID'." in found.notes
    by_row = sa.analyze(log, columns=sa.Columns(unit=None))
    assert by_row.units is None
    assert by_row.intervals.standard_errors.max() < found.intervals.standard_errors.max()
    mapped = sa.analyze(write_csv(tmp_path / "2.csv", rows, ("timestamp", "who", *names[2:])))
    assert mapped.units is None  # no usual name, not mapped
    with pytest.raises(sa.InvalidInputError, match="has no column 'user'"):
        sa.analyze(log, columns=sa.Columns(unit="user"))


@pytest.mark.parametrize("shops", [1, 3])
def test_too_few_units_are_reported(shops: int, tmp_path: Path) -> None:
    rows = [replace(row, unit=f"shop {i % shops}") for i, row in enumerate(random_rows())]
    names = ("timestamp", "customer", "arm", "probability", "reward")
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows, names))
    [finding] = [f for f in found.health.findings if f.name == "units"]
    assert finding.status == "warn"
    assert f"has only {shops} unit" in finding.explanation
    assert found.plausible == ("A", "B", "C")


def test_assignments_and_missing_rewards_are_of_units(tmp_path: Path) -> None:
    """A unit with a hundred rows is one draw; so is one that answers never."""
    rng = np.random.default_rng(2)
    rows = []
    for u in range(400):
        arm, visits = "AB"[u % 2], 40 if u in (0, 2, 4, 6) else 3  # all of A
        for visit in range(visits):
            time = START + timedelta(days=u // 100, seconds=100 * u + visit)
            reward = None if u % 20 < 2 else float(rng.normal())
            rows.append(Row(time, u, arm, 0.5, reward))
    log = write_log(tmp_path / "log.parquet", rows)
    health = {f.name: f for f in sa.analyze(log, missing="drop").health.findings}
    assert health["assignments"].p_value == pytest.approx(1.0)
    assert "rewards are missing, in 40 of 400 units, in all variants alike" in (
        health["missing rewards"].explanation
    )
    by_row = {
        f.name: f
        for f in sa.analyze(log, missing="drop", columns=sa.Columns(unit=None)).health.findings
    }
    assert by_row["assignments"].status == "fail"
    assert (
        "got 748 of 1,348 visits, about 74 more than it should"
        in (by_row["assignments"].explanation)
        or "got 600 of 1,348 visits, about 74 fewer than it should"
        in by_row["assignments"].explanation
    )
    lost = [row for row in rows if not (row.arm == "B" and row.unit % 3 == 0)]
    gone = {
        f.name: f
        for f in sa.analyze(write_log(tmp_path / "2.parquet", lost), missing="drop").health.findings
    }
    assert gone["assignments"].status == "fail"
    assert (
        "B got 133 of 333 units, about 34 fewer than it should" in gone["assignments"].explanation
    )


def test_sums_per_unit_by_the_query_of_the_docs(tmp_path: Path) -> None:
    rows = repeated_rows(seed=12, p_moves=True)
    text = (Path(__file__).parents[2] / "docs" / "analyze.md").read_text()
    query = text.split('steadyarm analyze log.csv --query "')[1].split('"')[0]
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows), query=query)
    assert (found.units, found.rows) == (None, 240)
    first = {row.unit: row for row in reversed(rows)}
    sums = {unit: sum(row.reward for row in rows if row.unit == unit) for unit in first}
    one = [replace(row, reward=sums[unit]) for unit, row in first.items()]
    one.sort(key=lambda row: row.timestamp)
    true = sa.analyze(write_log(tmp_path / "one.parquet", one))
    np.testing.assert_allclose(found.estimates, true.estimates, rtol=1e-9)


def test_variants_that_bring_units_back_are_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = []
    for u in range(600):
        k = int(rng.integers(2))
        for visit in range(2 + int(rng.poisson(2 + k))):
            time = START + timedelta(days=u // 150, seconds=100 * u + visit)
            rows.append(Row(time, u, "AB"[k], 0.5, float(rng.normal())))
    found = sa.analyze(write_log(tmp_path / "log.parquet", rows))
    [finding] = [f for f in found.health.findings if f.name == "visits per unit"]
    assert finding.status == "warn"
    assert "analyze one row per unit" in finding.advice


def test_intervals_for_every_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from steadyarm.inference.sequences import confidence_sequence

    for rows in (random_rows(), repeated_rows(seed=4)):
        log = write_csv(tmp_path / "log.csv", rows)
        once = sa.analyze(log)
        always = sa.analyze(log, budget=1000)
        true = confidence_sequence(once.evidence, 1000)
        np.testing.assert_allclose(always.intervals.low, true.low, rtol=1e-9)
        np.testing.assert_allclose(always.intervals.gap_high, true.gap_high, rtol=1e-9)
        assert (always.intervals.low < once.intervals.low).all()
        assert (once.anytime, always.anytime) == (False, True)
        assert any("end that was fixed in advance" in note for note in once.notes)
        assert any("planned for 1,000 rows" in note for note in always.notes)
        assert main(["analyze", str(log), "--budget", "1000", "--format", "json"]) == 0
        printed, same = json.loads(capsys.readouterr().out), always.to_dict()
        assert printed["notes"] == same["notes"]
        assert (printed["method"], printed["anytime"]) == (same["method"], True)
        for one, other in zip(printed["arms"], same["arms"], strict=True):
            assert one["gap_interval"] == pytest.approx(other["gap_interval"], rel=1e-9)
    assert main(["analyze", str(log), "--column", "unit=", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["units"] is None


def test_a_log_without_rewards_is_refused(tmp_path: Path) -> None:
    rows = [replace(row, reward=None) for row in repeated_rows()]
    with pytest.raises(sa.InvalidInputError, match="rows and no reward"):
        sa.analyze(write_csv(tmp_path / "log.csv", rows), missing="drop")
