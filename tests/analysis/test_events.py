"""Two tables: exposures joined with events are what a plain join says, wherever they are."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.analysis.events import join_tables, parse_metrics
from steadyarm.analysis.source import Columns, open_tables
from tests.analysis.logs import Row, true_evidence
from tests.analysis.tables import (
    Event,
    Exposure,
    Unit,
    at,
    plain_join,
    random_tables,
    write_csvs,
    write_parquets,
    write_tables,
)


def analyze(
    exposures: Any,
    events: Any,
    metrics: Any,
    *,
    source: Any = None,
    window: Any = None,
    of_events: sa.Columns | None = None,
    **options: Any,
) -> sa.Analysis:
    """The analysis of two tables, of files or of a database."""
    asked = sa.Events(events, metrics, window, of_events or sa.Columns())
    if source is None:
        return sa.analyze(exposures, events=asked, **options)
    return sa.analyze(source, query=exposures, events=asked, **options)


METRICS = [
    "purchase",
    "orders = count(purchase)",
    "revenue = sum(purchase)",
    "most = max(purchase)",
]
MEASURES = [(kind, "purchase") for kind in ("conversion", "count", "sum", "max")]
TINY: tuple[list[Exposure], list[Event]] = (
    [
        ("first", at(0), "A", 0.5),
        ("first", at(5), "A", 0.5),  # again: the first counts
        ("moved", at(1), "B", 0.5),
        ("moved", at(2), "A", 0.5),
        ("torn", at(3), "A", 0.5),
        ("torn", at(3), "B", 0.5),  # nobody knows which was first
        ("quiet", at(4), "B", 0.5),
        ("late", at(30), "A", 0.5),
    ],
    [
        ("first", at(-1), "purchase", 100.0),  # before the exposure
        ("first", at(0), "purchase", 1.0),  # at the same time
        ("first", at(24), "purchase", 2.0),  # the last moment of the window
        ("first", at(24.001), "purchase", 4.0),  # too late
        ("moved", at(1.5), "purchase", 8.0),
        ("moved", at(2.5), "purchase", 16.0),
        ("moved", at(2.6), "view", None),
        ("torn", at(4), "purchase", 32.0),
        ("stranger", at(4), "purchase", 64.0),
        (None, at(4), "purchase", 128.0),
        ("late", at(31), "purchase", 256.0),
        ("stranger", at(50), "view", None),  # the data end here
    ],
)


def units_of(
    paths: tuple[Any, Any],
    metrics: list[str],
    window: Any,
    source: Any = None,
) -> list[Unit]:
    """The rows that the expression makes, in order of units."""
    left, right = paths
    first, query = (left, None) if source is None else (source, left)
    exposures, events = open_tables(first, query, right, [Columns(), Columns()], {})
    try:
        measured = parse_metrics(metrics, window)
        joined = join_tables(exposures, events, measured)
        table, _ = joined._mature(measured.metrics[0])
        rows = exposures.fetch(table.order_by("unit"))
    finally:
        exposures.close()
    each = [tuple(row[f"measure {i}"] for i in range(len(measured.measures))) for row in rows]
    return [
        Unit(_time(row["timestamp"]), row["arm"], float(row["probability"]), values)
        for row, values in zip(rows, each, strict=True)
    ]


def _time(value: Any) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def test_by_hand(tmp_path: Path) -> None:
    paths = write_parquets(tmp_path, *TINY)
    assert units_of(paths, METRICS, "1 day") == [
        Unit(at(0), "A", 0.5, (1.0, 2.0, 3.0, 2.0)),
        Unit(at(1), "B", 0.5, (1.0, 2.0, 24.0, 16.0)),
        Unit(at(4), "B", 0.5, (0.0, 0.0, 0.0, 0.0)),
    ]
    endless = units_of(paths, METRICS, None)
    assert [unit.values[2] for unit in endless] == [7.0, 256.0, 24.0, 0.0]  # with the unit late


def test_the_same_rows_everywhere(tmp_path: Path, postgres: str) -> None:
    import duckdb

    exposures, events = random_tables(120)
    csvs = write_csvs(tmp_path, exposures, events)
    parquets = write_parquets(tmp_path, exposures, events)
    database = tmp_path / "shop.db"
    for place in (database, postgres):
        write_tables(place, exposures, events)
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        for name, path in zip(("exposures", "events"), parquets, strict=True):
            connection.execute(f"create table {name} as select * from '{path}'")
    true = plain_join(exposures, events, MEASURES, timedelta(days=5))
    assert 0 < len(true) < 120  # the windows of some are open
    for source, paths in [
        (None, csvs),
        (None, parquets),
        (None, (csvs[0], parquets[1])),
        (database, ("exposures", "events")),
        (f"sqlite://{database}", ("exposures", "events")),
        (tmp_path / "shop.duckdb", ("exposures", "events")),
        (postgres, ("exposures", "events")),
        (postgres, ("select * from exposures", "with e as (select * from events) select * from e")),
    ]:
        found = units_of(paths, METRICS, "5 days", source)
        assert [(u.time, u.arm, u.probability) for u in found] == [
            (u.time, u.arm, u.probability) for u in true
        ], source
        np.testing.assert_allclose(
            [unit.values for unit in found], [unit.values for unit in true], rtol=1e-12
        )


def as_rows(units: list[Unit], place: int) -> list[Row]:
    return [Row(u.time, i, u.arm, u.probability, u.values[place]) for i, u in enumerate(units)]


def assert_like_units(found: sa.Analysis, units: list[Unit], place: int) -> None:
    rows = sorted(as_rows(units, place), key=lambda row: row.timestamp)
    rounds, scores, squares = true_evidence(rows, ["A", "B"])
    assert found.rows == len(units)
    days = slice(0, 4)  # few units of a last day are joined with those of the day before
    assert found.evidence.rounds[0, days].tolist() == rounds[days].tolist()
    np.testing.assert_allclose(found.evidence.scores[0, days], scores[days], rtol=1e-10)
    np.testing.assert_allclose(found.evidence.squares[0, days], squares[days], rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(found.evidence.scores[0].sum(axis=0), scores.sum(axis=0))


def test_every_place_gives_the_verdict_of_the_plain_join(tmp_path: Path, postgres: str) -> None:
    exposures, events = random_tables(300)
    database = tmp_path / "shop.db"
    for place in (database, postgres):
        write_tables(place, exposures, events)
    csvs = write_csvs(tmp_path, exposures, events)
    metrics = ["revenue = sum(purchase)", "purchase", "views = count(view) within 5 days"]
    common: dict[str, Any] = {"metrics": metrics, "window": "2 days", "period": "day"}
    found = [
        analyze(exposures=csvs[0], events=csvs[1], **common),
        analyze(source=database, exposures="exposures", events="events", **common),
        analyze(source=postgres, exposures="exposures", events="events", **common),
    ]
    measures = [("sum", "purchase"), ("conversion", "purchase"), ("count", "view")]
    soon, later = (plain_join(exposures, events, measures, timedelta(days=d)) for d in (2, 5))
    assert len(later) < len(soon)
    for one in found:
        assert (one.metric, list(one.metrics)) == ("revenue", ["revenue", "purchase", "views"])
        assert_like_units(one, soon, 0)
        assert_like_units(one.metrics["purchase"], soon, 1)
        assert_like_units(one.metrics["views"], later, 2)
        assert one.intervals.level == 0.95
        assert one.metrics["views"].intervals.level == pytest.approx(0.975)
        assert f"{300 - len(later)} units were exposed less than 5d" in str(
            one.metrics["views"].notes
        )
        assert one.to_dict()["metrics"]["views"]["rows"] == len(later)


def test_a_ratio_has_the_error_of_the_delta_method(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    exposures: list[Exposure] = []
    events: list[Event] = []
    for i in range(4000):
        exposures.append((f"u{i}", at(0), "AB"[i % 2], 0.5))
        for _ in range(int(rng.poisson(1.5))):
            events.append((f"u{i}", at(1), "order", float(rng.gamma(2, 10 + i % 2))))
    paths = write_parquets(tmp_path, exposures, events)
    metrics = ["orders = count(order)", "basket = sum(order) / orders"]
    basket = analyze(exposures=paths[0], events=paths[1], metrics=metrics).metrics["basket"]
    units = plain_join(exposures, events, [("sum", "order"), ("count", "order")], None)
    for k, arm in enumerate("AB"):
        a, b = np.array([unit.values for unit in units if unit.arm == arm]).T
        ratio = a.sum() / b.sum()
        # n Var = (Var a - 2 R Cov(a, b) + R² Var b) / B²
        residual = a - ratio * b
        error = np.sqrt(residual @ residual / len(a)) / b.mean() / np.sqrt(len(a))
        assert basket.means[k] == pytest.approx(ratio)
        assert basket.estimates[k] == pytest.approx(ratio, rel=1e-3)
        assert basket.intervals.standard_errors[0, k] == pytest.approx(error, rel=0.01)


def test_a_cap_and_metrics_of_all_rows(tmp_path: Path) -> None:
    paths = write_parquets(tmp_path, *TINY)
    found = units_of(paths, ["sum = sum(purchase) capped at 5", "n = count()"], "1 day")
    assert [unit.values for unit in found] == [(3.0, 2.0), (5.0, 3.0), (0.0, 0.0)]


def test_contamination_is_reported(tmp_path: Path) -> None:
    exposures, events = random_tables(300)
    moved = [
        (unit, time + timedelta(hours=1), "AB"[arm == "A"], p)
        for unit, time, arm, p in exposures[:40]
    ]
    tied = [(unit, time, "AB"[arm == "A"], p) for unit, time, arm, p in exposures[-1:]]
    paths = write_parquets(tmp_path, [*exposures, *moved, *tied], events)
    common: dict[str, Any] = {"exposures": paths[0], "events": paths[1], "metrics": ["purchase"]}
    several = len({one[0] for one in [*moved, *tied]})
    finding = analyze(**common).health.findings[-1]
    assert (finding.name, finding.status) == ("variants per unit", "warn")
    assert f"{several} of 300 units were exposed to several variants; each counts" in str(finding)


def test_columns_are_mapped_for_one_table_or_both(tmp_path: Path) -> None:
    exposures, events = random_tables(200)
    csvs = write_csvs(tmp_path, exposures, events)
    true = analyze(exposures=csvs[0], events=csvs[1], metrics=["purchase"])
    for path, header in zip(
        csvs, ("who,begin,shown,chance", "login,begin,what,euros"), strict=True
    ):
        path.write_text("\n".join([header, *path.read_text().splitlines()[1:]]))
    own = sa.Columns(unit="who", timestamp="begin", arm="shown", probability="chance")
    theirs = sa.Columns(unit="login", timestamp="begin", event="what", value="euros")
    common: dict[str, Any] = {"exposures": csvs[0], "events": csvs[1], "metrics": ["purchase"]}
    found = analyze(**common, columns=own, of_events=theirs)
    np.testing.assert_array_equal(found.estimates, true.estimates)
    assert "In events.csv timestamp is 'begin', unit is 'login', event is 'what'" in str(
        found.notes
    )
    with pytest.raises(
        sa.InvalidInputError, match="no column 'who'; its columns are 'login', 'begin'"
    ):
        analyze(**common, columns=own, of_events=replace(theirs, unit="who"))
    with pytest.raises(sa.InvalidInputError, match=r"--column exposures\.arm=NAME"):
        analyze(**common, columns=sa.Columns(timestamp="begin", unit="who"))
    with pytest.raises(sa.InvalidInputError, match="'reward' is not a column"):
        analyze(**common, columns=sa.Columns(reward="euros"))


def test_broken_rows_are_named(tmp_path: Path) -> None:
    exposures, events = random_tables(60)
    csvs = write_csvs(tmp_path, exposures, events)
    good = [path.read_text().splitlines() for path in csvs]
    common: dict[str, Any] = {
        "exposures": csvs[0],
        "events": csvs[1],
        "metrics": ["revenue = sum(purchase)"],
    }
    csvs[0].write_text("\n".join([*good[0][:3], ",2026-03-02,A,0.5", "u9,noon,,0.5"]))
    with pytest.raises(sa.InvalidInputError) as error:
        analyze(**common)
    for part in ("row 4: the time stamp is 'noon'", "row 4: the arm", "row 3: the unit is missing"):
        assert part in str(error.value)
    csvs[0].write_text("\n".join(good[0]))
    csvs[1].write_text("\n".join([*good[1], "u1,2026-03-02,purchase,10 EUR"]))
    with pytest.raises(sa.InvalidInputError, match=f"row {len(good[1])}: the value is '10 EUR'"):
        analyze(**common)


def test_splits_covariates_and_clusters_are_columns_of_exposures(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    lines, events, log = ["user,seen,variant,spend,store"], ["user,time,event,value"], []
    for i in range(3000):
        arm, spend, day = "AB"[int(rng.integers(2))], float(rng.normal()), 1 + i // 300
        lines.append(f"{i},2026-03-{day:02} 10:00:00,{arm},{spend},{i % 60}")
        value = round(5 + 3 * spend + (arm == "B") + float(rng.normal()), 6)
        events.append(f"{i},2026-03-{day:02} 11:00:00,visit,{value}")
        log.append(f"{i},2026-03-{day:02} 10:00:00,{arm},{spend},{i % 60},{value}")
    paths = [tmp_path / name for name in ("exposures.csv", "events.csv", "log.csv")]
    head = "unit,timestamp,arm,spend,store,reward"
    for path, rows in zip(paths, (lines, events, [head, *log]), strict=True):
        path.write_text("\n".join(rows))
    tables: dict[str, Any] = {"exposures": paths[0], "events": paths[1]}
    tables |= {"metrics": ["value = sum(visit)"]}
    seen = sa.Columns(timestamp="seen")
    for columns, options in (
        (sa.Columns(), {"split": "equal"}),
        (sa.Columns(covariates=["spend"]), {"split": {"A": 0.5, "B": 0.5}}),
        (sa.Columns(segments=["store"]), {"split": "equal", "control": "A"}),
        (sa.Columns(cluster="store"), {"split": "equal"}),
        (sa.Columns(cluster=["store", "day"]), {"split": "equal"}),
    ):
        found = analyze(**tables, columns=replace(columns, timestamp="seen"), **options)
        one = sa.analyze(paths[2], columns=columns, **options)
        np.testing.assert_allclose(found.estimates, one.estimates, rtol=1e-12)
        np.testing.assert_allclose(
            found.intervals.standard_errors, one.intervals.standard_errors, rtol=1e-9
        )
        assert len(found.segments) == len(one.segments) == len(columns.segments)
        if found.control is not None:
            assert found.verdict.lifts == pytest.approx(one.verdict.lifts, abs=1e-12)
    ratio = tables | {"metrics": ["visit", "mean = sum(visit) / visit"], "split": "equal"}
    found = analyze(**ratio, control="A", columns=replace(seen, segments=["store"]))
    assert len(found.segments) == 1
    assert found.metrics["mean"].segments == ()
    assert "mean has no results by segment" in str(found.metrics["mean"].notes)
    assert found.metrics["mean"].control == "A"
    with pytest.raises(sa.InvalidInputError, match="fixed shares of the arms: --split equal"):
        analyze(**tables, columns=seen)
    with pytest.raises(sa.InvalidInputError, match="no column 'spent'"):
        analyze(**tables, split="equal", columns=replace(seen, covariates=["spent"]))


def test_units_that_are_numbers_in_one_table_and_text_in_the_other(tmp_path: Path) -> None:
    import polars as pl

    exposures, events = random_tables(100)
    paths = write_parquets(tmp_path, exposures, events)
    true = analyze(exposures=paths[0], events=paths[1], metrics=["purchase"])
    number = pl.col("user_id").str.slice(1).cast(pl.Int64, strict=False)
    left, right = (pl.read_parquet(path).with_columns(user_id=number) for path in paths)
    text = left.with_columns(pl.col("user_id").cast(pl.String))
    fraction = left.with_columns(pl.col("user_id").cast(pl.Float64))
    for frame in (left, text, fraction):
        found = analyze(exposures=frame, events=right, metrics=["purchase"])
        np.testing.assert_array_equal(found.estimates, true.estimates)
        assert "1 event has no unit." in found.notes
    turned = right.with_columns(pl.col("user_id").cast(pl.String))
    found = analyze(exposures=fraction, events=turned, metrics=["purchase"])
    np.testing.assert_array_equal(found.estimates, true.estimates)


def test_too_little_for_a_ratio_says_so_and_the_rest_goes_on(tmp_path: Path) -> None:
    exposures, events = random_tables(60)
    paths = write_parquets(tmp_path, exposures, [*events, ("u3", at(1000), "refund", 1.0)])
    metrics = ["purchase", "share = sum(purchase) / count(refund)"]
    found = analyze(exposures=paths[0], events=paths[1], metrics=metrics)
    assert list(found.metrics) == ["purchase"]
    assert "There is no result of share: " in found.notes[-1]
    with pytest.raises(sa.InvalidInputError, match="share is divided by count"):
        analyze(exposures=paths[0], events=paths[1], metrics=metrics[1:])


def test_units_that_match_nothing_are_an_error_with_examples(tmp_path: Path) -> None:
    exposures, events = random_tables(60)
    refund = [*events, ("u3", at(-500), "refund", 1.0)]
    paths = write_parquets(tmp_path, exposures, refund)
    before = [(unit, time - timedelta(days=90), *rest) for unit, time, *rest in events]
    capitals = [(unit and unit.upper(), *rest) for unit, *rest in events]
    cases: list[tuple[list[Any], str]] = [
        (before, "conversion.purchase. is 0 for every unit of exposures.csv. Compare the units"),
        (capitals, "Compare the units of both tables .'u9' and 'U9'., the zones of their times"),
    ]
    for other, said in cases:
        csvs = write_csvs(tmp_path, exposures, other)
        with pytest.raises(sa.InvalidInputError, match=said):
            analyze(exposures=csvs[0], events=csvs[1], metrics=["purchase"])
    csvs = write_csvs(tmp_path, exposures, [])
    with pytest.raises(sa.InvalidInputError, match=r"events.csv has no rows; expected one for"):
        analyze(exposures=csvs[0], events=csvs[1], metrics=["purchase"])
    found = analyze(exposures=paths[0], events=paths[1], metrics=["purchase", "refund"])
    assert list(found.metrics) == ["purchase"]
    assert "no result of refund: conversion(refund) is 0 for every unit" in found.notes[-1]


def test_a_database_that_lets_nobody_make_tables(postgres: str) -> None:
    import psycopg

    exposures, events = random_tables(120)
    write_tables(postgres, exposures, events)
    metrics = ["purchase", "revenue = sum(purchase) capped at 30", "basket = revenue / purchase"]
    common: dict[str, Any] = {"exposures": "exposures", "events": "events", "metrics": metrics}
    true = analyze(source=postgres, **common)
    with psycopg.connect(postgres, autocommit=True) as server:
        [[name]] = server.execute("select current_database()").fetchall()
        server.execute(f'alter database "{name}" set default_transaction_read_only = on')
        try:
            found = analyze(source=postgres, **common)
        finally:
            server.execute("set default_transaction_read_only = off")
            server.execute(f'alter database "{name}" reset default_transaction_read_only')
    for one in metrics:
        metric = one.split(" ")[0]
        np.testing.assert_allclose(
            found.metrics[metric].estimates, true.metrics[metric].estimates, rtol=1e-12
        )


def test_metrics_are_those_of_live_tests() -> None:
    given = {"m": """count(o'neil "x")""", "n": "count('a b')", "o": 'count("c")'}
    events = [one.of for one in parse_metrics(given).measures.values()]
    assert events == ["""o'neil "x\"""", "a b", "c"]
    metric = sa.Metric("purchase", kind="money", several="sum", window="7d", cap=500)
    [measure] = parse_metrics([metric]).measures.values()
    assert measure.text == "sum(purchase) within 7d capped at 500"
    assert (measure.metric, measure.of) == (metric, "purchase")
    with pytest.raises(sa.InvalidInputError, match='support "sum" and "max"'):
        parse_metrics([sa.Metric("price", kind="money")])


def test_ibis_tables_of_one_connection(tmp_path: Path) -> None:
    import ibis

    paths = write_parquets(tmp_path, *random_tables(100))
    connection, other = ibis.duckdb.connect(), ibis.duckdb.connect()
    left, right = (connection.read_parquet(path) for path in paths)
    found = analyze(left, right, ["purchase"], window="1 day")
    true = analyze(paths[0], paths[1], ["purchase"], window="1 day")
    np.testing.assert_array_equal(found.estimates, true.estimates)
    made = connection.con.execute("select table_name from duckdb_tables()").fetchall()
    assert made == []  # nothing is left behind
    for wrong in (other.read_parquet(paths[1]), paths[1]):
        with pytest.raises(sa.InvalidInputError, match="two"):
            analyze(left, wrong, ["purchase"])
    connection.disconnect()
    other.disconnect()


def test_errors_say_what_to_do(tmp_path: Path, postgres: str) -> None:
    exposures, events = random_tables(50)
    paths = write_parquets(tmp_path, exposures, events)
    cases: list[tuple[Any, Any, str]] = [
        (None, None, "metrics is None; expected a column, the name of an event"),
        (["purchas"], None, "no event 'purchas'.*did you mean purchase"),
        (["x = median(purchase)"], None, "cannot be read; expected"),
        (["x = y / count(view)"], None, "neither a measure nor a metric"),
        (["purchase", "purchase"], None, "two metrics are called 'purchase'"),
        (["purchase"], "90 days", "is over for no unit"),
        (["purchase"], "a week", "window is 'a week'"),
    ]
    for metrics, window, said in cases:
        with pytest.raises(sa.InvalidInputError, match=said):
            analyze(*paths, metrics, window=window)
    with pytest.raises(sa.InvalidInputError, match="expected a table of"):
        analyze("select 1 as unit", paths[1], ["purchase"], source=postgres)


def test_a_bot_widens_a_count_but_never_below_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    exposures = [(f"u{i}", at(i / 100), "AB"[int(rng.integers(2))], 0.5) for i in range(3000)]
    events: list[Event] = [(f"u{i}", at(31), "order", None) for i in range(0, 3000, 17)]
    events += [("u7", at(32), "order", None)] * 1000
    paths = write_parquets(tmp_path, exposures, events)
    columns = sa.Columns(probability=None)
    metrics = ["orders = count(order)"]
    found = analyze(*paths, metrics, columns=columns, split="equal", control="A")
    (outlier,) = [finding for finding in found.health.findings if finding.name == "outliers"]
    assert "One unit (u7) accounts for 100 % of the variance of orders" in outlier.explanation
    low, high = found.intervals.low[0], found.intervals.high[0]
    assert (low >= 0).all()
    bot = found.arms.names.index(exposures[7][2])
    assert np.isinf(high).tolist() == [bot == 0, bot == 1]
    assert found.verdict.decision.text == "No clear winner."  # no forecast from refused limits
    assert "0 to ∞" in str(found)
