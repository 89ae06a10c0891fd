"""Whatever is wrong with a log is named with its rows; nothing is guessed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import steadyarm as sa
from steadyarm.analysis import Missing
from steadyarm.inference import Finding
from tests.analysis.logs import (
    START,
    Row,
    random_rows,
    write_csv,
    write_parquet,
    write_postgres,
    write_sqlite,
)

ROWS = random_rows(120)


def changed(**values: Any) -> list[Row]:
    """The log with other values in its rows 17 and 20."""
    return [replace(row, **values) if i in (17, 20) else row for i, row in enumerate(ROWS, 1)]


CASES = [
    ({"probability": 0.0}, {}, "the probability is {}; expected a number above 0 and at most 1"),
    ({"probability": 1.5}, {}, "the probability is {}"),
    ({"probability": -0.25}, {}, "the probability is {}"),
    ({"probability": None}, {}, "the probability is missing"),
    ({"reward": None}, {}, 'the reward is missing; say missing="drop"'),
    ({"reward": float("inf")}, {}, "the reward is {}; expected a finite number"),
    ({"reward": 99.0}, {"reward_range": (-10, 10)}, "the reward is {}; expected -10 to 10"),
    ({"arm": None}, {}, "the arm is missing"),
    (
        {"arm": "Z"},
        {"arms": ["A", "B", "C"]},
        "the arm 'Z' was never possible; the arms are 'A', 'B'",
    ),
    ({"timestamp": None}, {}, "the time stamp is missing; expected ISO 8601"),
]


@pytest.mark.parametrize(("values", "options", "message"), CASES)
@pytest.mark.parametrize("kind", ["csv", "parquet", "sqlite"])
def test_wrong_values_are_named(
    values: dict[str, Any], options: dict[str, Any], message: str, kind: str, tmp_path: Path
) -> None:
    write: dict[str, Callable[..., Path]] = {
        "csv": write_csv,
        "parquet": write_parquet,
        "sqlite": write_sqlite,
    }
    path = write[kind](tmp_path / f"log.{kind}", changed(**values))
    [value] = values.values()
    shown = repr(value) if kind == "parquet" else repr(str(value))
    places = "row 17, row 20: "
    if kind == "sqlite":  # rows have no order but that of time
        first, second = (119, 120) if "timestamp" in values else (17, 20)
        places = f"row {first} (unit u16), row {second} (unit u19): "
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(path, **options)
    assert (places + message.format(shown)).lower() in str(error.value).lower()


@pytest.mark.parametrize(("values", "options", "message"), CASES)
def test_wrong_values_are_named_on_postgres(
    values: dict[str, Any], options: dict[str, Any], message: str, postgres: str
) -> None:
    write_postgres(postgres, changed(**values), "broken")
    [value] = values.values()
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(postgres, table="broken", **options)
    assert "(unit u16)" in str(error.value)
    assert message.format(repr(value)) in str(error.value)


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
@pytest.mark.parametrize("missing", ["fail", "drop", "zero"])
def test_broken_text_is_named(
    values: dict[str, str], message: str, missing: Missing, tmp_path: Path
) -> None:
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(write_csv(tmp_path / "log.csv", changed(**values)), missing=missing)
    assert message in str(error.value)


def test_the_query_for_seconds_since_1970_works_as_printed(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = [f"u{i},{1772323200 + i},{'AB'[i % 2]},0.5,{i % 3}" for i in range(40)]
    log.write_text("\n".join(["unit,when,arm,probability,reward", *rows]))
    columns = {"timestamp": "when"}  # a word of SQL
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(log, columns=columns)
    (query,) = re.findall(r"--query '(.*)'", str(error.value))
    assert sa.analyze(log, columns=columns, query=query).rows == 40


NO_TIMES = [
    "2026-02-30",
    "2026-02-29 12:00:00",
    "2100-02-29",
    "2026-04-31T10:00:00Z",
    "2026-03-01 24:00",
    "2026-03-01 12:00:00+19:00",
    "01.03.2026",
    "1772323200",
    "soon",
    "",
]


@pytest.mark.parametrize("time", NO_TIMES)
def test_times_that_are_none_are_named_in_text_columns(
    time: str, tmp_path: Path, postgres: str
) -> None:
    rows = changed(timestamp=time)
    write_postgres(postgres, rows, "times", time="text")
    for source, table in (
        (write_sqlite(tmp_path / "log.db", rows), None),
        (postgres, "times"),
    ):
        with pytest.raises(sa.InvalidInputError) as error:
            sa.analyze(source, table=table)
        assert "(unit u16), row" in str(error.value)
        assert "(unit u19): the time stamp is " + (repr(time) if time else "") in str(error.value)


@pytest.mark.parametrize("time", ["2028-02-29", "2000-02-29T23:30:00-02:00", "2026-12-31 23:59"])
def test_days_there_are_stay_what_they_are(time: str, tmp_path: Path, postgres: str) -> None:
    rows = [replace(row, timestamp=time) for row in ROWS]
    write_postgres(postgres, rows, "days", time="text")
    day = "2000-03-01" if "T" in time else time[:10]
    for source, table in (
        (write_csv(tmp_path / "log.csv", rows), None),
        (write_sqlite(tmp_path / "log.db", rows), None),
        (postgres, "days"),
    ):
        assert sa.analyze(source, period="day", table=table).drift.periods == (day,)


def test_text_in_a_column_of_numbers_is_found_in_sqlite(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "log.db", changed(reward="abc"))
    with pytest.raises(sa.InvalidInputError, match=r"row 17 \(unit u16\).* reward is 'abc'"):
        sa.analyze(path)


def test_everything_is_said_at_once(tmp_path: Path) -> None:
    rows = [replace(ROWS[0], reward="x"), replace(ROWS[1], probability=2), *ROWS[2:]]
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(write_csv(tmp_path / "log.csv", rows))
    assert "row 2: the probability is '2'" in str(error.value)
    assert "row 1: the reward is 'x'" in str(error.value)


def test_rows_of_several_files_are_counted_by_file(tmp_path: Path) -> None:
    rows = changed(probability=0)
    write_csv(tmp_path / "a.csv", rows[:18])
    write_csv(tmp_path / "b.csv", rows[18:])
    with pytest.raises(sa.InvalidInputError, match=r"a\.csv row 17, b\.csv row 2: the prob"):
        sa.analyze(tmp_path)


def test_many_faults_are_counted(tmp_path: Path) -> None:
    rows = [replace(row, probability=0) for row in ROWS]
    with pytest.raises(sa.InvalidInputError, match=r"row 5: the probability.* 120 rows in all"):
        sa.analyze(write_csv(tmp_path / "log.csv", rows))


def test_time_that_goes_back_is_a_warning_with_rows(tmp_path: Path) -> None:
    rows = list(ROWS)
    rows[16] = replace(rows[16], timestamp=START - timedelta(hours=2))
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows))
    [finding] = [f for f in found.health.findings if f.name == "order of rows"]
    assert (finding.status, "row 17" in finding.explanation) == ("warn", True)
    quick = sa.analyze(tmp_path / "log.csv", thorough=False)
    assert "order of rows" not in [f.name for f in quick.health.findings]


def _later(rows: list[Row], start: int, back: timedelta) -> list[Row]:
    """The rows from some place on with time stamps that are set back."""
    return [
        row if i < start else replace(row, timestamp=row.timestamp - back)
        for i, row in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("rows", "status", "says"),
    [
        (ROWS, "ok", "are in order of time"),
        (sorted(ROWS, key=lambda row: str(row.unit)), "ok", "another order than their times"),
        (ROWS[::2] + ROWS[1::2], "ok", "another order than their times"),  # two workers
        (ROWS[::-1], "ok", "another order than their times"),
        (_later(ROWS, 30, timedelta(seconds=90)), "ok", "another order"),  # by half a minute
        (_later(ROWS, 30, timedelta(hours=1)), "warn", "goes back in row 31 (by "),
    ],
)
def test_only_a_clock_that_was_set_back_is_a_warning(
    rows: list[Row], status: str, says: str, tmp_path: Path
) -> None:
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows))
    [finding] = [f for f in found.health.findings if f.name == "order of rows"]
    assert (finding.status, says in finding.explanation) == (status, True), finding


def test_the_order_of_row_groups_is_looked_at_in_any_parquet_file(tmp_path: Path) -> None:
    def finding(name: str, rows: list[Row]) -> Any:
        path = write_parquet(tmp_path / name, rows, group=40)
        found = sa.analyze(path, thorough=False)
        assert "Duplicates were not searched for." in found.notes
        return next(f for f in found.health.findings if f.name == "order of rows")

    fine = finding("sorted.parquet", ROWS)
    assert (fine.status, "Row groups are in order" in fine.explanation) == ("ok", True)
    rows = [*ROWS[80:], *ROWS[:80]]
    back = finding("rotated.parquet", rows)
    assert back.status == "ok"
    assert "Time goes back in rows 41 to 80, rows 81 to 120, which changes" in back.explanation
    numbers = [replace(row, timestamp=i) for i, row in enumerate(rows)]
    assert finding("numbers.parquet", numbers).status == "ok"


def test_duplicates(tmp_path: Path) -> None:
    def finding(rows: list[Row]) -> Any:
        found = sa.analyze(write_csv(tmp_path / "log.csv", rows))
        return next(f for f in found.health.findings if f.name == "duplicate rows")

    assert finding(ROWS).status == "ok"
    assert finding([*ROWS, ROWS[-1]]).status == "warn"
    conflicting = finding([*ROWS, replace(ROWS[-1], reward=7)])
    assert conflicting.status == "fail"
    assert "row 120 and row 121 (unit u119)" in conflicting.explanation


def test_duplicates_are_named_across_files_and_in_databases(tmp_path: Path, postgres: str) -> None:
    twice = replace(ROWS[7], arm="B" if ROWS[7].arm == "A" else "A")
    folder = tmp_path / "logs"
    folder.mkdir()
    write_csv(folder / "a.csv", ROWS)
    write_csv(folder / "b.csv", [ROWS[3], twice])
    write_postgres(postgres, [*ROWS, twice], "twice")
    places = "row 8 and row 9 (unit u7)"
    for source, table, text in (
        (folder, None, "a.csv row 8 and b.csv row 2 (unit u7)"),
        (write_sqlite(tmp_path / "log.db", [*ROWS, twice]), None, places),
        (postgres, "twice", places),
    ):
        found = sa.analyze(source, table=table)
        finding = next(f for f in found.health.findings if f.name == "duplicate rows")
        assert finding.status == "fail"
        assert finding.explanation.endswith(f"differ in arm or reward: {text}.")


def test_duplicates_at_times_with_a_zone(tmp_path: Path) -> None:
    import polars as pl

    twice = replace(ROWS[7], reward=7.5)
    frame = pl.DataFrame([asdict(row) for row in [*ROWS, twice]]).with_columns(
        pl.col("timestamp").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    )
    frame.write_parquet(tmp_path / "log.parquet")
    for source in (frame, frame.to_pandas(), tmp_path / "log.parquet"):
        found = sa.analyze(source)
        finding = next(f for f in found.health.findings if f.name == "duplicate rows")
        assert finding.explanation.endswith("row 8 and row 121 (unit u7).")


def test_booleans_are_rewards_on_postgres(postgres: str) -> None:
    write_postgres(postgres, [replace(row, reward=float(row.reward > 0)) for row in ROWS], "yes")
    whole = sa.analyze(postgres, table="yes")
    found = sa.analyze(
        postgres, query="select timestamp, unit, arm, probability, reward > 0 as reward from yes"
    )
    assert found.estimates.tolist() == whole.estimates.tolist()


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
    ("columns", "message", "advice"),
    [
        (
            ("timestamp", "unit", "variant", "probability", "reward"),
            "has no column arm; its",
            "If arm is called variant there, map it: --column arm=variant (in Python",
        ),
        (
            ("timestamp", "unit", "arm", "propensity", "reward"),
            "has no column probability; its",
            "--column probability=propensity",
        ),
        (
            ("day", "unit", "arm", "probability", "y"),
            "has no column timestamp, reward; its",
            'columns={"timestamp": "day"}). If reward is called y there',
        ),
    ],
)
def test_missing_columns_are_listed(
    columns: tuple[str, ...], message: str, advice: str, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "log.csv", ROWS, columns)
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(path)
    assert message in str(error.value)
    assert f"columns are {', '.join(columns)}. " in str(error.value)
    assert advice in str(error.value)
    ours = ("timestamp", "unit", "arm", "probability", "reward")
    mapped = {a: b for a, b in zip(ours, columns, strict=True) if a != b}
    assert sa.analyze(path, columns=mapped).rows == 120


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("none.csv", {}, "there is no file"),
        ("log.txt", {}, "is none of .csv"),
        (".", {}, "has no file .csv"),
        ("*.parquet", {}, "no file matches"),
        ("log.csv", {"period": "year"}, "period is 'year'"),
        ("log.csv", {"period": "shares:0"}, "at least one share"),
        ("log.csv", {"missing": "guess"}, "missing is 'guess'"),
        ("log.csv", {"direction": "up"}, "direction is 'up'"),
        ("log.csv", {"level": 2}, "level is 2"),
        ("log.csv", {"reward_range": (1, 0)}, "reward_range is (1, 0)"),
        ("log.csv", {"columns": {"colour": "red"}}, "no column 'colour' to map"),
        ("log.csv", {"columns": {"unit": "who"}}, "has no column who"),
        ("log.csv", {"table": "log"}, "is a file"),
        ("log.csv", {"table": "a", "query": "b"}, "both a table and a query"),
        ("log.csv", {"query": "selekt"}, "cannot be read"),
        ("log.csv", {"memory": "lots"}, "does not start with memory 'lots'"),
        ("log.duckdb", {"memory": "lots"}, "log.duckdb cannot be opened: "),
        ("two.db", {}, "has 2 tables (log, other); say which"),
        ("two.db", {"table": "third"}, "has no table 'third'; there is log, other"),
        ("empty.csv", {}, "has no rows"),
        ("one.csv", {}, "has 1 arms ('A')"),
        (7, {}, "the log is 7"),
        ([], {}, "the list of files is empty"),
        ("sqlite:///nowhere.db", {}, "there is no file /nowhere.db"),
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
        with sqlite3.connect(write_sqlite(tmp_path / "two.db", ROWS)) as connection:
            connection.execute("create table other (x integer)")
        connection.close()
        duckdb.connect(str(tmp_path / "log.duckdb")).close()
    if isinstance(source, str) and "://" not in source:
        source = str(tmp_path / source)
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(source, **options)
    assert message in str(error.value)


def test_passwords_are_not_shown() -> None:
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze("postgresql://me:secret%21@localhost:1/shop", table="log")
    assert "secret" not in str(error.value)
    assert "postgresql://localhost:1/shop cannot be opened" in str(error.value)


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(b"PAR1 this is not parquet")
    with pytest.raises(sa.InvalidInputError, match=r"log\.parquet cannot be read"):
        sa.analyze(path)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"covariates": ["Unitt"]}, r"no column Unitt; .* Did you mean --covariate unit\?"),
        ({"covariates": ["height"]}, r"--covariate must name one of them"),
        ({"columns": {"reward": "rewrd"}}, r"no column rewrd; .* Did you mean --column reward="),
        ({"columns": {"variant": "arm"}}, r"Our name comes first: --column arm=variant"),
        ({"columns": {"rewards": "y"}}, r"no column 'rewards' to map; .*did you mean reward\?"),
    ],
)
def test_unknown_columns_name_the_nearest(
    asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.analyze(write_csv(tmp_path / "log.csv", ROWS), **asked)


def test_unknown_tables_name_the_nearest(tmp_path: Path) -> None:
    log = write_sqlite(tmp_path / "log.db", ROWS)
    with pytest.raises(sa.InvalidInputError, match=r"no table 'logs'; there is log; did you mean"):
        sa.analyze(log, table="logs")


def test_empty_text_is_no_arm(tmp_path: Path) -> None:
    for arms in (None, ["A", "B", "C"]):
        with pytest.raises(sa.InvalidInputError, match="row 17, row 20: the arm is ''; every row"):
            sa.analyze(write_parquet(tmp_path / "log.parquet", changed(arm="")), arms=arms)


def test_units_that_are_no_number_are_none(tmp_path: Path) -> None:
    import polars as pl

    frame = pl.DataFrame([asdict(row) for row in ROWS]).with_columns(
        unit=pl.when(pl.int_range(len(ROWS)) < 50)
        .then(float("nan"))
        .otherwise(pl.int_range(len(ROWS)) // 2)
    )
    found = sa.analyze(frame)
    assert found.units is not None
    assert (found.units.units, found.units.nameless) == (50 + 35, 50)


@pytest.mark.parametrize("name", ["varient", "varaint", "experiment_variant", "VariantShown"])
def test_a_misspelt_usual_name_is_near(name: str, tmp_path: Path) -> None:
    log = write_csv(tmp_path / "log.csv", ROWS)
    log.write_text(log.read_text().replace("arm", name, 1))
    with pytest.raises(sa.InvalidInputError, match=f"--column arm={name} "):
        sa.analyze(log)


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
        tables: Any = {"exposures": exposures, "events": events, "split": "equal"}
        found = sa.analyze(**tables, metrics=[metric])
        return next(one for one in found.health.findings if one.name == "outliers")

    found = outliers("orders = count(order)")
    assert found.status == "warn"
    assert found.explanation.startswith("One unit (user 471) accounts for 99 % of the variance")
    assert found.explanation.endswith("of orders.")
    assert "Declare a cap or exclude it" in found.advice
    assert outliers("orders = count(order) capped at 5").status == "ok"


def test_rewards_that_are_all_zero_have_no_best_variant(tmp_path: Path) -> None:
    rows = [replace(row, reward=0.0) for row in ROWS]
    found = sa.analyze(write_csv(tmp_path / "log.csv", rows), control="A")
    assert found.recommended is None
    assert found.summary.endswith("All 120 rewards are 0, so there is no best variant.")
    assert found.health.status == "fail"
    assert found.verdict.decision.word == "unhealthy"
