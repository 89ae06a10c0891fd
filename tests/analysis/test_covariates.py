"""Covariates in logs: the numbers of a live test, and those of single rows."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.inference import fixed_budget

NAMES = ("spend", "age")
START = datetime(2026, 3, 1)


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def time_of(i: int, rows: int, days: int = 40) -> str:
    return (START + timedelta(days=days) * (i / rows)).isoformat()


def live_rows(policy: Any, budget: int = 900) -> tuple[sa.Session, list[list[Any]]]:
    """A session with covariates, some units unknown, and its log with segments."""
    session = sa.Session(
        policy, sa.ArmSet.one_hot(["A", "B", "C"]), budget, seed=3, covariates=NAMES
    )
    rng, rows = np.random.default_rng(8), []
    for i in range(budget):
        spend, age = rng.normal(5, 2), rng.normal(40, 9)
        known = rng.random() < 0.8
        a = session.ask({"spend": spend, "age": age} if known else None)
        reward = 0.3 * a.arm + i / budget + (0.6 * spend - 3 if known else -1) + rng.normal()
        session.tell(a, reward)
        cells = [repr(spend), repr(age)] if known else ["", ""]
        rows.append([time_of(i, budget), i, a.name, repr(a.probability), repr(reward), *cells])
    start = 0
    for piece in session.results().pieces:
        for row in rows[start : start + piece.used]:
            row += [piece.index, piece.segment.block if piece.segment.order == "blocks" else 1]
        start += piece.used
    return session, rows


HEADER = ("timestamp", "unit", "arm", "probability", "reward", *NAMES)


@pytest.mark.parametrize("order", ["iid", "blocks"])
def test_a_log_says_what_the_live_test_says(order: Any, tmp_path: Path) -> None:
    session, rows = live_rows(sa.GBAI(order=order))
    log = write(tmp_path / "log.csv", (*HEADER, "segment", "block"), rows)
    found = sa.analyze(log, covariates=NAMES, reference=False)
    evidence, verdict = session.evidence(), session.recommend()
    assert np.allclose(found.evidence.scores, evidence.scores, rtol=1e-9)
    assert np.allclose(found.evidence.squares, evidence.squares, rtol=1e-9)
    assert np.allclose(found.estimates, verdict.estimates, rtol=1e-9)
    expected = fixed_budget(evidence)
    assert np.allclose(found.intervals.low, expected.low, rtol=1e-6)
    assert found.raw is not None
    assert verdict.raw is not None
    assert np.allclose(found.raw, verdict.raw, rtol=1e-9)
    assert found.variance_kept == pytest.approx(verdict.variance_kept, rel=1e-6)
    assert found.variance_kept is not None
    assert found.variance_kept < 0.65
    assert any("adjusted for spend, age" in note for note in found.notes)


def plain_rows(rows: int, p: Any, seed: int = 4) -> list[list[Any]]:
    """Two arms; p(i) is the probability of A in row i."""
    rng, made = np.random.default_rng(seed), []
    for i in range(rows):
        share = p(i, rng)
        arm = "A" if rng.random() < share else "B"
        spend, age = rng.normal(5, 2), rng.normal(40, 9)
        reward = (0.5 if arm == "B" else 0.0) + 0.8 * spend + i / rows + rng.normal()
        own = share if arm == "A" else 1 - share
        made.append([time_of(i, rows), i, arm, own, reward, spend, age])
    return made


def by_hand(rows: Sequence[Sequence[Any]]) -> Any:
    """Estimates and Σ score² of single rows; days are stretches, slopes are those of numpy."""
    days = np.array([row[0][:10] for row in rows])
    arm = np.array([row[2] == "B" for row in rows]).astype(int)
    p, r = (np.array([row[i] for row in rows]) for i in (3, 4))
    z = np.array([row[5:7] for row in rows])
    total, squares, freedom = np.zeros(2), np.zeros(2), 0
    past_z: list[Any] = []
    past_r: list[Any] = []
    for day in np.unique(days):
        here = days == day
        beta = np.zeros(2)
        if freedom >= 20:
            Z, R = np.concatenate(past_z), np.concatenate(past_r)
            beta = np.linalg.lstsq(Z, R, rcond=None)[0]
            rest = ((R - Z @ beta) ** 2).sum() / (freedom - 2)
            beta = beta * max(0.0, 1 - 2 * rest / ((Z @ beta) ** 2).sum())
        seen = r[here] - (z[here] - z[here].mean(axis=0)) @ beta
        for k in range(2):
            own = here & (arm == k)
            score = seen[arm[here] == k] / p[own]
            total[k] += score.sum()
            squares[k] += (score**2).sum()
            if own.sum() > 1:
                past_z.append(z[own] - z[own].mean(axis=0))
                past_r.append(r[own] - r[own].mean())
                freedom += int(own.sum()) - 1
    return total / len(rows), squares


ALWAYS_ANOTHER = {
    "one probability": lambda i, rng: 0.5,
    "by day": lambda i, rng: 0.3 + 0.4 * ((i // 75) % 2),
    "always another": lambda i, rng: 0.3 + 0.4 * rng.random(),
}


@pytest.mark.parametrize("kind", ALWAYS_ANOTHER)
def test_rows_with_their_own_probability(kind: str, tmp_path: Path) -> None:
    rows = plain_rows(3000, ALWAYS_ANOTHER[kind])
    log = write(tmp_path / "log.csv", HEADER, rows)
    found = sa.analyze(log, covariates=NAMES, reference=False)
    estimates, squares = by_hand(rows)
    assert np.allclose(found.estimates, estimates, rtol=1e-9)
    total = found.evidence.squares[0].sum(axis=0)
    level = total[
        0, 1
    ]  # what all arms share of the covariates; without reference the only mixed term
    assert np.allclose(np.diag(total) - level, squares, rtol=1e-9)
    assert 0.8 < level / (3000 * 0.8**2 * 2**2) < 1.1  # as many rows, slope and deviation
    usual = sa.analyze(log, covariates=NAMES)
    assert usual.variance_kept is not None
    assert usual.variance_kept < 0.5  # 1 / (1 + 0.8² 2²) with known slopes


@pytest.mark.parametrize("kind", ["by day", "always another"])
def test_rows_with_whole_allocations(kind: str, tmp_path: Path) -> None:
    """Groups of allocations share one mean of the covariates for every stretch of the log."""
    rows = plain_rows(900, ALWAYS_ANOTHER[kind])
    own = sa.analyze(write(tmp_path / "a.csv", HEADER, rows), covariates=NAMES, reference=False)
    vectors = [
        [*row[:3], *((row[3], 1 - row[3]) if row[2] == "A" else (1 - row[3], row[3])), *row[4:]]
        for row in rows
    ]
    header = ("timestamp", "unit", "arm", "p_A", "p_B", "reward", *NAMES)
    log = write(tmp_path / "b.csv", header, vectors)
    found = sa.analyze(log, covariates=NAMES, reference=False)
    assert found.variance_kept is not None
    if kind == "by day":  # else groups have one row each, from which no slope can be learned
        assert np.allclose(found.estimates, own.estimates, rtol=1e-3)
        usual = sa.analyze(log, covariates=NAMES).variance_kept
        assert usual is not None
        assert usual < 0.5
    else:
        assert found.variance_kept == 1.0


def test_where_the_log_lives_changes_nothing(tmp_path: Path) -> None:
    rows = plain_rows(600, ALWAYS_ANOTHER["by day"])
    rows[5][5] = rows[7][6] = None
    rows[9][5] = rows[9][6] = None
    base = tmp_path / "log.sqlite"
    with sqlite3.connect(base) as connection:
        kinds = "text, unit int, arm text, probability real, reward real, spend real, age real"
        connection.execute(f"create table log (timestamp {kinds})")
        connection.executemany("insert into log values (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    log = write(tmp_path / "log.csv", HEADER, rows)
    one, other = (sa.analyze(each, covariates=["age", "spend"]) for each in (log, base))
    assert np.allclose(one.estimates, other.estimates, rtol=1e-9)
    assert one.variance_kept == pytest.approx(other.variance_kept, rel=1e-9)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log.csv", HEADER, plain_rows(600, lambda i, rng: 0.5))
    command = ["analyze", str(log), "--covariate", "spend", "--covariate", "age"]
    assert main([*command, "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["covariates"] == ["spend", "age"]
    assert facts["variance_kept"] < 0.5
    assert len(facts["raw_estimates"]) == 2
    assert main(command) == 0
    assert "of the variance is left" in capsys.readouterr().out


def test_what_is_refused(tmp_path: Path) -> None:
    rows = plain_rows(300, lambda i, rng: 0.5)
    log = write(tmp_path / "log.csv", HEADER, rows)
    for given, message in [
        (["spent"], "has no column spent"),
        (["reward"], "the covariate 'reward' is the reward itself"),
        (list("abcdef"), "at most 5"),
        ("spend", "expected a list of names"),
    ]:
        with pytest.raises(sa.InvalidInputError, match=message):
            sa.analyze(log, covariates=given)
    rows[4][5] = "inf"
    infinite = write(tmp_path / "infinite.csv", HEADER, rows)
    with pytest.raises(sa.InvalidInputError, match="infinite or too large"):
        sa.analyze(infinite, covariates=["spend"])
    for i, row in enumerate(rows):
        row[1] = i // 3
    several = write(tmp_path / "several.csv", HEADER, rows)
    with pytest.raises(sa.InvalidInputError, match="infinite or too large"):
        sa.analyze(several, covariates=["spend"])


def unit_rows(units: int, kept: bool, seed: int) -> list[list[Any]]:
    """Units with one to seven rows, of which spend explains much; ages say nothing."""
    rng, made = np.random.default_rng(seed), []
    for u in range(units):
        spend, age, b = rng.normal(5, 2), rng.normal(40, 9), rng.random() < 0.5
        for _ in range(int(rng.integers(1, 8))):
            b = b if kept else rng.random() < 0.5
            time = START + timedelta(days=int(rng.integers(0, 10)), seconds=u)
            reward = 0.5 * b + 0.8 * spend + rng.normal()
            row = [time.isoformat(), f"u{u:03}", "AB"[b], 0.5, reward, spend, age]
            made.append(row)
    return sorted(made, key=lambda row: row[0])


def units_by_hand(rows: Sequence[Sequence[Any]]) -> Any:
    """Estimates from rewards adjusted by slopes of unit sums of the other half."""
    names = sorted({row[1] for row in rows})
    half = np.array([names.index(row[1]) % 2 for row in rows])
    arm = np.array([row[2] == "B" for row in rows]).astype(int)
    r, z = np.array([row[4] for row in rows]), np.array([row[5:7] for row in rows])
    unit = np.array([names.index(row[1]) for row in rows])
    slopes, means = [], []
    for h in (0, 1):
        mean, Z, R = z[half == h].mean(axis=0), [], []
        for k in (0, 1):
            own = (half == h) & (arm == k)
            level = r[own].mean()
            cells = [np.flatnonzero(own & (unit == u)) for u in np.unique(unit[own])]
            y = np.array([(r[cell] - level).sum() for cell in cells])
            x = np.array([(z[cell] - mean).sum(axis=0) for cell in cells])
            Z.append(x - x.mean(axis=0))
            R.append(y - y.mean())
        freedom = sum(map(len, R)) - 2
        X, Y = np.concatenate(Z), np.concatenate(R)
        beta = np.linalg.lstsq(X, Y, rcond=None)[0]
        rest = ((Y - X @ beta) ** 2).sum() / (freedom - 2)
        slopes.append(beta * max(0.0, 1 - 2 * rest / ((X @ beta) ** 2).sum()))
        means.append(mean)
    off = [(z[i] - means[h]) @ slopes[1 - h] for i, h in enumerate(half)]
    seen = r - np.array(off)
    return np.array([2 * seen[arm == k].sum() / len(rows) for k in (0, 1)])


@pytest.mark.parametrize("kept", [True, False])
def test_units_are_adjusted_by_slopes_of_the_other_half(kept: bool, tmp_path: Path) -> None:
    rows = unit_rows(160, kept, seed=2)
    log = write(tmp_path / "log.csv", HEADER, rows)
    found = sa.analyze(log, covariates=NAMES, reference=False)
    assert np.allclose(found.estimates, units_by_hand(rows), rtol=1e-8)
    usual = sa.analyze(log, covariates=NAMES)
    assert usual.variance_kept is not None
    assert usual.variance_kept < (0.25 if kept else 0.6)
    assert any("slopes from sums over units, those of each half" in note for note in usual.notes)
    base = tmp_path / "log.sqlite"
    with sqlite3.connect(base) as connection:
        kinds = "text, unit text, arm text, probability real, reward real, spend real, age real"
        connection.execute(f"create table log (timestamp {kinds})")
        connection.executemany("insert into log values (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    other = sa.analyze(base, covariates=NAMES)
    assert np.allclose(other.intervals.gap_low, usual.intervals.gap_low, rtol=1e-8)
    again = sa.analyze(log, covariates=NAMES, columns={"unit": "unit"}, cluster="unit")
    assert np.allclose(again.estimates, usual.estimates, rtol=1e-9)


def test_intervals_of_adjusted_units_are_right() -> None:
    """Of 30 tests 1 or 2 are wrong; 6 or more would be one chance in three hundred."""
    import polars as pl

    wrong = 0
    for seed in range(30):
        frame = pl.DataFrame(unit_rows(80, True, seed), schema=list(HEADER), orient="row")
        found = sa.analyze(frame, covariates=["spend"], thorough=False).intervals
        other = 1 - int(found.recommended[0])
        gap = 0.5 if other == 0 else -0.5
        wrong += not found.gap_low[0, other] <= gap <= found.gap_high[0, other]
    assert wrong < 6


def test_postgresql_adjusts_alike(tmp_path: Path, postgres: str) -> None:
    import psycopg

    rng, rows, events = np.random.default_rng(4), [], []
    for i in range(1200):
        spend, arm = float(rng.normal()), "AB"[int(rng.integers(2))]
        reward = 2 * spend + (arm == "B") + float(rng.normal())
        time = time_of(i, 1200)
        rows.append([time, i, arm, 0.5, reward, None if i % 9 == 0 else spend, i % 40])
        events.append([time, i, "visit", reward])
    heads = (*HEADER[:5], "spend", "store"), ("timestamp", "unit", "event", "value")
    tables = [("log_of_covariates", heads[0], rows), ("events_of_covariates", heads[1], events)]
    with psycopg.connect(postgres) as server, server.cursor() as cursor:
        for name, head, values in tables:
            own = ["timestamp", "int", "text", *["double precision"] * 4]
            columns = ", ".join(f"{c} {k}" for c, k in zip(head, own, strict=False))
            cursor.execute(f"drop table if exists {name}; create table {name} ({columns})")
            marks = ", ".join(["%s"] * len(head))
            cursor.executemany(f"insert into {name} values ({marks})", values)
    log, other = (write(tmp_path / f"{name}.csv", head, v) for name, head, v in tables)
    whole: dict[str, Any] = {"table": tables[0][0]}
    two: dict[str, Any] = {"metrics": ["value = sum(visit)"]}
    both: tuple[dict[str, Any], dict[str, Any]] = (
        {"exposures": log, "events": other},
        {"exposures": whole["table"], "events": tables[1][0]},
    )
    for options in ({}, {"cluster": "store"}):
        more: dict[str, Any] = {"covariates": ["spend"], **options}
        pairs = [
            (sa.analyze(log, **more), sa.analyze(postgres, **whole, **more)),
            (sa.analyze(**both[0], **two, **more), sa.analyze(postgres, **both[1], **two, **more)),
        ]
        for one, same in pairs:
            np.testing.assert_allclose(same.estimates, one.estimates, rtol=1e-9)
            np.testing.assert_allclose(
                same.intervals.standard_errors, one.intervals.standard_errors, rtol=1e-9
            )


def test_no_number_means_that_nothing_is_known(tmp_path: Path) -> None:
    import polars as pl

    rng = np.random.default_rng(4)
    rows = [[time_of(i, 300), i, "AB"[i % 2], 0.5, float(rng.normal())] for i in range(300)]
    spend = [None if i % 7 == 0 else float(rng.normal()) for i in range(300)]
    frame = pl.DataFrame(rows, schema=HEADER[:5], orient="row").with_columns(
        pl.col("timestamp").str.to_datetime()
    )
    true = sa.analyze(frame.with_columns(spend=pl.Series(spend)), covariates=["spend"])
    nan = frame.with_columns(spend=pl.Series([np.nan if x is None else x for x in spend]))
    log = tmp_path / "log.csv"
    nan.write_csv(log)
    assert "NaN" in log.read_text()
    for source in (nan, log):
        found = sa.analyze(source, covariates=["spend"])
        np.testing.assert_allclose(found.estimates, true.estimates, rtol=1e-12)
