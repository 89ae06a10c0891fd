"""Whatever is wrong with a log is named with its rows; nothing is guessed."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import steadyarm as sa
from steadyarm.inference import Finding
from tests.analysis.logs import (
    Row,
    random_rows,
    write_csv,
    write_log,
)

ROWS = random_rows(120)


def changed(**values: Any) -> list[Row]:
    """The log with other values in its rows 17 and 20."""
    return [replace(row, **values) if i in (17, 20) else row for i, row in enumerate(ROWS, 1)]


CASES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"probability": 0.0}, {}, "the probability is {}; expected a number above 0 and at most 1"),
    ({"probability": 1.5}, {}, "the probability is {}"),
    ({"probability": -0.25}, {}, "the probability is {}"),
    ({"probability": None}, {}, "the probability is missing"),
    ({"reward": None}, {}, 'the reward is missing; use missing="drop"'),
    ({"reward": float("inf")}, {}, "the reward is {}; expected a finite number"),
    ({"arm": None}, {}, "the arm is missing"),
    ({"timestamp": None}, {}, "the time stamp is missing; expected a time such as"),
]


@pytest.mark.parametrize(("values", "options", "message"), CASES)
def test_wrong_values_are_named(
    values: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "log.csv", changed(**values))
    [value] = values.values()
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(path, **options)
    places = "row 17, row 20: " + message.format(repr(str(value)))
    assert places.lower() in str(error.value).lower()


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "postgresql"])
def test_wrong_values_are_named_everywhere(kind: str, tmp_path: Path, postgres: str) -> None:
    rows = changed(probability=0.0)
    source = write_log(
        postgres if kind == "postgresql" else tmp_path / f"log.{kind}", rows, table="broken"
    )
    place = "row 17, row 20"
    if kind == "postgresql":
        place = r"row 17 \(unit u16\), row 20 \(unit u19\)"
    with pytest.raises(sa.InvalidInputError, match=f"{place}: the probability is '?0.0'?; exp"):
        sa.analyze(source, query=None if kind == "parquet" else "broken")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"timestamp": "foo"}, "row 17, row 20: the time stamp is 'foo'"),
        ({"timestamp": "2026-02-30"}, "row 17, row 20: the time stamp is '2026-02-30'"),
        ({"probability": "half"}, "row 17, row 20: the probability is 'half'"),
        ({"probability": "nan"}, "row 17, row 20: the probability is 'nan'"),
        ({"reward": "NA"}, "row 17, row 20: the reward is 'NA'; expected a number, or nothing"),
        ({"reward": "nan"}, "row 17, row 20: the reward is 'nan'; expected a finite number"),
    ],
)
def test_broken_text_is_named(values: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(write_csv(tmp_path / "log.csv", changed(**values)))
    assert message in str(error.value)


def test_times_that_are_none_are_named_in_text_columns(tmp_path: Path, postgres: str) -> None:
    for time in ("2100-02-29", "soon", ""):
        log = write_log(tmp_path / "log.db", changed(timestamp=time))
        with pytest.raises(
            sa.InvalidInputError, match="row 17, row 20: the time stamp is"
        ) as error:
            sa.analyze(log)
        assert repr(time) in str(error.value)
        log.unlink()
    write_log(postgres, changed(timestamp="soon"), table="times", kinds={"timestamp": "text"})
    with pytest.raises(sa.InvalidInputError, match=r"\(unit u19\): the time stamp is 'soon'"):
        sa.analyze(postgres, query="times")


def test_duplicates(tmp_path: Path) -> None:
    def finding(rows: list[Row]) -> Any:
        found = sa.analyze(write_csv(tmp_path / "log.csv", rows))
        return next(f for f in found.health.findings if f.name == "duplicate rows")

    assert finding(ROWS).status == "ok"
    assert finding([*ROWS, ROWS[-1]]).status == "warn"
    conflicting = finding([*ROWS, replace(ROWS[-1], reward=7)])
    assert conflicting.status == "fail"
    assert "unit u119 at " in conflicting.explanation


def test_missing_rewards_can_be_dropped_or_zero(tmp_path: Path) -> None:
    log = write_csv(tmp_path / "log.csv", changed(reward=None))
    kept = [row for i, row in enumerate(ROWS, 1) if i not in (17, 20)]
    dropped = sa.analyze(log, missing="drop")
    assert (dropped.rows, dropped.rewards) == (120, 118)
    assert dropped.estimates.tolist() == pytest.approx(
        sa.analyze(write_csv(tmp_path / "kept.csv", kept)).estimates.tolist(), rel=1e-12
    )
    assert "2 rows without reward were left out." in str(dropped)
    zero = sa.analyze(log, missing="zero")
    filled = sa.analyze(write_csv(tmp_path / "filled.csv", changed(reward=0.0)))
    assert zero.rewards == 120
    assert zero.estimates.tolist() == pytest.approx(filled.estimates.tolist(), rel=1e-12)
    assert "2 rows without reward were counted as 0." in str(zero)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"columns": sa.Columns(arm="variant")},
            r"no column 'variant'; its columns are 'timestamp', 'unit'",
        ),
        (
            {"columns": sa.Columns(covariates=["Unitt"])},
            r"no column 'Unitt'; .* Did you mean 'unit'\?",
        ),
        (
            {"columns": sa.Columns(reward="rewrd")},
            r"no column 'rewrd'; .* Map it: --column reward=reward ",
        ),
    ],
)
def test_unknown_columns_name_the_nearest(
    asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.analyze(write_csv(tmp_path / "log.csv", ROWS), **asked)


def test_usual_names_of_columns_are_found(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "log.csv", ROWS, ("day", "user_id", "Group", "propensity", "y"))
    with pytest.raises(sa.InvalidInputError, match="--column reward=NAME"):
        sa.analyze(path)
    found = sa.analyze(path, columns=sa.Columns(reward="y"))
    assert found.rows == 120
    assert "arm is 'Group', reward is 'y', probability is 'propensity'" in str(found.notes)
    path = write_csv(tmp_path / "two.csv", ROWS, ("ts", "user", "variant", "revenue", "converted"))
    with pytest.raises(sa.InvalidInputError, match="--metric revenue --metric converted"):
        sa.analyze(path, split="equal")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("none.csv", {}, "none.csv does not exist"),
        ("log.txt", {}, "is not a supported file"),
        (".", {}, "has no file .csv"),
        ("*.jsonl", {}, "no file matches"),
        ("log.csv", {"period": "year"}, "period is 'year'"),
        ("log.csv", {"period": "shares:0"}, "period is 'shares:0'"),
        ("log.csv", {"missing": "guess"}, "missing is 'guess'"),
        ("log.csv", {"direction": "up"}, "direction is 'up'"),
        ("log.csv", {"level": 2}, "level is 2"),
        ("log.csv", {"columns": sa.Columns(event="red")}, "'event' is not a column of a log"),
        ("log.csv", {"columns": sa.Columns(unit="who")}, "has no column 'who'"),
        ("log.csv", {"query": "log"}, "has no tables"),
        ("log.csv", {"query": "select 1 from"}, "the query fails on log.csv"),
        ("log.csv", {"budget": 0}, "budget is 0"),
        ("log.csv", {"events": "events.csv"}, "expected Events"),
        ("broken.parquet", {}, "broken.parquet cannot be read"),
        ("two.db", {}, "has 2 tables (log, other); name one"),
        ("two.db", {"query": "third"}, "has no table 'third'; its tables are log, other"),
        ("empty.csv", {}, "has no rows"),
        ("one.csv", {}, "has 1 arms ('A')"),
        (7, {}, "the log is int"),
        ([], {}, "the log is list"),
        ("sqlite:///nowhere.db", {}, "the file /nowhere.db does not exist"),
    ],
)
def test_bad_requests_are_answered(
    source: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    if source != ".":
        write_csv(tmp_path / "log.csv", ROWS)
        write_csv(tmp_path / "empty.csv", [])
        write_csv(tmp_path / "one.csv", [row for row in ROWS if row.arm == "A"])
        (tmp_path / "log.txt").write_text("x")
        with sqlite3.connect(write_log(tmp_path / "two.db", ROWS)) as connection:
            connection.execute("create table other (x integer)")
        connection.close()
        (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is not parquet")
    if isinstance(source, str) and "://" not in source:
        source = str(tmp_path / source)
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(source, **options)
    assert message in str(error.value)


def test_passwords_are_not_shown() -> None:
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze("postgresql://me:secret%21@localhost:1/shop", query="log")
    assert "secret" not in str(error.value)
    assert "postgresql://localhost:1/shop cannot be opened" in str(error.value)


def test_a_unit_that_carries_the_variance_is_named() -> None:
    random = np.random.default_rng(3)
    users = [f"user {i}" for i in range(2000)]
    exposures = pd.DataFrame(
        {"unit": users, "time": pd.Timestamp("2026-03-01"), "variant": ["A", "B"] * 1000}
    )
    orders = [user for user, count in zip(users, random.poisson(0.5, 2000), strict=True) if count]
    bought = [*orders, *["user 471"] * 300]
    events = pd.DataFrame({"unit": bought, "time": pd.Timestamp("2026-03-02"), "event": "order"})

    def outliers(metric: str) -> Finding:
        found = sa.analyze(exposures, events=sa.Events(events, [metric]), split="equal")
        return next(one for one in found.health.findings if one.name == "outliers")

    found = outliers("orders = count(order)")
    assert found.status == "warn"
    assert found.explanation.startswith("One unit (user 471) accounts for 99 % of the variance")
    assert found.explanation.endswith("of orders.")
    declared = found.advice.partition("--metric '")[2].partition("'")[0]
    assert declared == "orders = count(order) capped at 1"
    assert outliers(declared).status == "ok"


def test_rewards_that_are_all_zero_have_no_best_variant(tmp_path: Path) -> None:
    rows = [replace(row, reward=0.0) for row in ROWS]
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows), control="A")
    assert found.recommended is None
    assert found.summary.endswith("All 120 rewards are 0, so there is no best variant.")
    assert found.health.status == "fail"
    assert found.verdict.decision.word == "unhealthy"
