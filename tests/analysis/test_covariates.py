"""Covariates in logs: the numbers of a live test, and those of single rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from tests.analysis.logs import write_table

NAMES = ("spend", "age")
START = datetime(2026, 3, 1)


def time_of(i: int, rows: int, days: int = 40) -> str:
    return (START + timedelta(days=days) * (i / rows)).isoformat()


HEADER = ("timestamp", "unit", "arm", "probability", "reward", *NAMES)


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


ALWAYS_ANOTHER = {
    "one probability": lambda i, rng: 0.5,
    "by day": lambda i, rng: 0.3 + 0.4 * ((i // 75) % 2),
    "always another": lambda i, rng: 0.3 + 0.4 * rng.random(),
}


@pytest.mark.parametrize("kind", ALWAYS_ANOTHER)
def test_single_rows_are_adjusted_by_slopes_of_the_other_half(kind: str, tmp_path: Path) -> None:
    """Every row is a unit of its own."""
    rows = plain_rows(1500, ALWAYS_ANOTHER[kind])
    for i, row in enumerate(rows):
        row[1] = f"u{i:05}"
    found = sa.analyze(
        write_table(tmp_path / "log.csv", HEADER, rows), columns=sa.Columns(covariates=NAMES)
    )
    assert found.variance_kept is not None
    assert found.variance_kept < 0.5  # 1 / (1 + 0.8² 2²) with known slopes
    if kind == "one probability":
        seen = adjusted_by_hand(rows)
        scored = sa.analyze(
            write_table(
                tmp_path / "hand.csv",
                HEADER[:5],
                [[*row[:4], r] for row, r in zip(rows, seen, strict=True)],
            )
        )
        np.testing.assert_allclose(found.estimates, scored.estimates, rtol=1e-8)


def test_what_is_refused(tmp_path: Path) -> None:
    rows = plain_rows(300, lambda i, rng: 0.5)
    log = write_table(tmp_path / "log.csv", HEADER, rows)
    for given, message in [
        (["spent"], "has no column 'spent'"),
        (["reward"], "'reward' is the reward;"),
        (list("abcdef"), "at most 5"),
        ("spend", "expected a list of names"),
    ]:
        with pytest.raises(sa.InvalidInputError, match=message):
            sa.analyze(log, columns=sa.Columns(covariates=given))
    rows[4][5] = "inf"
    infinite = write_table(tmp_path / "infinite.csv", HEADER, rows)
    with pytest.raises(sa.InvalidInputError, match="infinite or too large"):
        sa.analyze(infinite, columns=sa.Columns(covariates=["spend"]))
    for i, row in enumerate(rows):
        row[1] = i // 3
    several = write_table(tmp_path / "several.csv", HEADER, rows)
    with pytest.raises(sa.InvalidInputError, match="infinite or too large"):
        sa.analyze(several, columns=sa.Columns(covariates=["spend"]))


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


def adjusted_by_hand(rows: Sequence[Sequence[Any]]) -> Any:
    """Rewards adjusted by slopes of unit sums of the other half."""
    names = sorted({row[1] for row in rows})
    place = {name: i for i, name in enumerate(names)}
    unit = np.array([place[row[1]] for row in rows])
    half, arm = unit % 2, np.array([row[2] == "B" for row in rows]).astype(int)
    r, z = np.array([row[4] for row in rows]), np.array([row[5:7] for row in rows])
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
    return r - np.array([(z[i] - means[h]) @ slopes[1 - h] for i, h in enumerate(half)])


@pytest.mark.parametrize("kept", [True, False])
def test_units_are_adjusted_by_slopes_of_the_other_half(kept: bool, tmp_path: Path) -> None:
    rows = unit_rows(160, kept, seed=2)
    log = write_table(tmp_path / "log.csv", HEADER, rows)
    found = sa.analyze(log, columns=sa.Columns(covariates=NAMES))
    by_hand = [[*row[:4], seen] for row, seen in zip(rows, adjusted_by_hand(rows), strict=True)]
    scored = sa.analyze(write_table(tmp_path / "hand.csv", HEADER[:5], by_hand))
    np.testing.assert_allclose(found.estimates, scored.estimates, rtol=1e-8)
    usual = found
    assert usual.variance_kept is not None
    assert usual.variance_kept < (0.25 if kept else 0.6)
    assert any("slopes for each half of the units" in note for note in usual.notes)
    base = write_table(tmp_path / "log.sqlite", HEADER, rows)
    other = sa.analyze(base, columns=sa.Columns(covariates=NAMES))
    assert np.allclose(other.intervals.gap_low, usual.intervals.gap_low, rtol=1e-8)
    again = sa.analyze(log, columns=sa.Columns(unit="unit", covariates=NAMES, cluster="unit"))
    assert np.allclose(again.estimates, usual.estimates, rtol=1e-9)


def test_intervals_of_adjusted_units_are_right() -> None:
    """Of 8 tests at most 1 is wrong; 4 would be one chance in two thousand."""
    import polars as pl

    wrong = 0
    for seed in range(8):
        frame = pl.DataFrame(unit_rows(80, True, seed), schema=list(HEADER), orient="row")
        found = sa.analyze(frame, columns=sa.Columns(covariates=["spend"])).intervals
        other = 1 - int(found.recommended[0])
        gap = 0.5 if other == 0 else -0.5
        wrong += not found.gap_low[0, other] <= gap <= found.gap_high[0, other]
    assert wrong < 4


def test_postgresql_adjusts_alike(tmp_path: Path, postgres: str) -> None:
    rng, rows, events = np.random.default_rng(4), [], []
    for i in range(1200):
        spend, arm = float(rng.normal()), "AB"[int(rng.integers(2))]
        reward = 2 * spend + (arm == "B") + float(rng.normal())
        time = datetime.fromisoformat(time_of(i, 1200))
        rows.append([time, i, arm, 0.5, reward, None if i % 9 == 0 else spend, i % 40])
        events.append([time, i, "visit", reward])
    heads = (*HEADER[:5], "spend", "store"), ("timestamp", "unit", "event", "value")
    tables = [("log_of_covariates", heads[0], rows), ("events_of_covariates", heads[1], events)]
    for name, head, values in tables:
        write_table(postgres, head, values, name)
    log, other = (write_table(tmp_path / f"{name}.csv", head, v) for name, head, v in tables)
    files, there = (sa.Events(table, ["value = sum(visit)"]) for table in (other, tables[1][0]))
    for cluster in (None, "store"):
        more: dict[str, Any] = {"columns": sa.Columns(covariates=["spend"], cluster=cluster)}
        where: dict[str, Any] = {"query": tables[0][0], **more}
        pairs = [
            (sa.analyze(log, **more), sa.analyze(postgres, **where)),
            (sa.analyze(log, events=files, **more), sa.analyze(postgres, events=there, **where)),
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
    true = sa.analyze(
        frame.with_columns(spend=pl.Series(spend)), columns=sa.Columns(covariates=["spend"])
    )
    nan = frame.with_columns(spend=pl.Series([np.nan if x is None else x for x in spend]))
    log = tmp_path / "log.csv"
    nan.write_csv(log)
    assert "NaN" in log.read_text()
    for source in (nan, log):
        found = sa.analyze(source, columns=sa.Columns(covariates=["spend"]))
        np.testing.assert_allclose(found.estimates, true.estimates, rtol=1e-12)
