"""Two tables: exposures joined with events are what a plain join says, wherever they are."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.analysis.event_metrics import event_metrics
from steadyarm.analysis.exposures import join_tables
from steadyarm.analysis.log import Log
from steadyarm.analysis.two_tables import open_tables
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
    write_postgres_tables,
    write_sqlite_tables,
)

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
    contaminated: Any = "first",
) -> list[Unit]:
    """The rows that the expression makes, in order of units."""
    found = event_metrics(metrics, window)
    with closing(open_tables(source, *paths)) as tables:
        joined = join_tables(tables, found, contaminated)
        table, _ = joined.mature(found[0])
        rows = tables.exposures.fetch(table.order_by("unit"))
    each = [tuple(row[f"measure {i}"] for i in range(len(found))) for row in rows]
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
    dropped = units_of(paths, METRICS, "1 day", contaminated="drop")
    assert [unit.arm for unit in dropped] == ["A", "B"]
    endless = units_of(paths, METRICS, None)
    assert [unit.values[2] for unit in endless] == [7.0, 256.0, 24.0, 0.0]  # with the unit late


def test_the_same_rows_everywhere(tmp_path: Path, postgres: str) -> None:
    import duckdb

    exposures, events = random_tables(120)
    csvs, parquets = (
        write_csvs(tmp_path, exposures, events),
        write_parquets(tmp_path, exposures, events),
    )
    database = write_sqlite_tables(tmp_path / "shop.db", exposures, events)
    write_postgres_tables(postgres, exposures, events)
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
        (tmp_path / "shop.duckdb", ("exposures", str(parquets[1]))),
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


Times = st.integers(0, 30).map(at)


@settings(max_examples=15)
@given(
    exposures=st.lists(
        st.tuples(st.sampled_from("abcd"), Times, st.sampled_from("AB"), st.just(0.5)),
        min_size=1,
        max_size=12,
    ),
    events=st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            Times,
            st.sampled_from(["purchase", "view"]),
            st.sampled_from([None, 1.0, 2.5, -4.0]),
        ),
        max_size=25,
    ),
    hours=st.sampled_from([None, 1, 6, 24]),
    drop=st.booleans(),
)
def test_any_two_tables(
    exposures: list[Exposure],
    events: list[Event],
    hours: int | None,
    drop: bool,
    tmp_path_factory: Any,
) -> None:
    # the first event of both kinds makes sure that they are there, and when the data end
    events = [("x", at(60), "purchase", 1.0), ("x", at(60), "view", 1.0), *events]
    window = None if hours is None else timedelta(hours=hours)
    folder = tmp_path_factory.mktemp("tables")
    how = "drop" if drop else "first"
    true = plain_join(exposures, events, MEASURES, window, drop)
    database = write_sqlite_tables(folder / "shop.db", exposures, events)
    assert units_of(write_parquets(folder, exposures, events), METRICS, window, None, how) == true
    assert units_of(("exposures", "events"), METRICS, window, database, how) == true


def as_rows(units: list[Unit], place: int) -> list[Row]:
    return [Row(u.time, i, u.arm, u.probability, u.values[place]) for i, u in enumerate(units)]


def assert_like_units(found: sa.Analysis, units: list[Unit], place: int) -> None:
    rows = sorted(as_rows(units, place), key=lambda row: row.timestamp)
    rounds, scores, squares = true_evidence(rows, ["A", "B"])
    assert found.rows == len(units)
    assert found.evidence.rounds[0].tolist() == rounds.tolist()
    np.testing.assert_allclose(found.evidence.scores[0], scores, rtol=1e-10)
    np.testing.assert_allclose(found.evidence.squares[0], squares, rtol=1e-10, atol=1e-7)


def test_every_place_gives_the_verdict_of_the_plain_join(tmp_path: Path, postgres: str) -> None:
    exposures, events = random_tables(300)
    write_postgres_tables(postgres, exposures, events)
    database = write_sqlite_tables(tmp_path / "shop.db", exposures, events)
    csvs = write_csvs(tmp_path, exposures, events)
    metrics = ["revenue = sum(purchase)", "purchase", "views = count(view) within 5 days"]
    common: dict[str, Any] = {"metrics": metrics, "window": "2 days", "period": "day"}
    found = [
        sa.analyze(exposures=csvs[0], events=csvs[1], **common),
        sa.analyze(database, exposures="exposures", events="events", **common),
        sa.analyze(postgres, exposures="exposures", events="events", **common),
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
    basket = sa.analyze(exposures=paths[0], events=paths[1], metrics=metrics).metrics["basket"]
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
    finding = sa.analyze(**common).health.findings[-1]
    assert (finding.name, finding.status) == ("variants per unit", "warn")
    assert f"{several} of 300 units were exposed to several variants; each counts" in str(finding)
    dropped = sa.analyze(**common, contaminated="drop")
    assert dropped.rows == 300 - several
    assert "left out" in dropped.health.findings[-1].explanation
    assert "biases" in dropped.health.findings[-1].advice


def test_a_condition_leaves_exposures_out(tmp_path: Path, postgres: str) -> None:
    exposures, events = random_tables(200)
    csvs = write_csvs(tmp_path, exposures, events)
    text = csvs[0].read_text().splitlines()
    marked = [f"{line},{i % 10 == 0},{i % 7}" for i, line in enumerate(text[1:])]
    csvs[0].write_text("\n".join([f"{text[0]},is_bot,visits", *marked]))
    write_postgres_tables(postgres, exposures, events)
    kept = [one for i, one in enumerate(exposures) if i % 10 and i % 7 < 5]
    found = sa.analyze(
        exposures=csvs[0],
        events=csvs[1],
        metrics=["purchase"],
        where="not is_bot and visits < 5 -- people",
    )
    assert found.rows == len({one[0] for one in kept})
    out = len(exposures) - len(kept)
    assert f"The condition left out {out} exposures of {len(exposures)}." in found.notes
    other = sa.analyze(
        postgres, exposures="exposures", events="events", metrics=["purchase"], where="variant<>'C'"
    )
    assert "The condition left out 0 exposures of" in str(other.notes)
    with pytest.raises(sa.InvalidInputError, match="the condition 'nonsense = 1' cannot be"):
        sa.analyze(exposures=csvs[0], events=csvs[1], metrics=["purchase"], where="nonsense = 1")


def test_columns_are_mapped_for_one_table_or_both(tmp_path: Path) -> None:
    exposures, events = random_tables(200)
    csvs = write_csvs(tmp_path, exposures, events)
    true = sa.analyze(exposures=csvs[0], events=csvs[1], metrics=["purchase"])
    for path, header in zip(
        csvs, ("who,begin,shown,chance", "login,begin,what,euros"), strict=True
    ):
        path.write_text("\n".join([header, *path.read_text().splitlines()[1:]]))
    columns = {
        "exposures.unit": "who",
        "events.unit": "login",
        "timestamp": "begin",
        "arm": "shown",
        "probability": "chance",
        "event": "what",
        "value": "euros",
    }
    common: dict[str, Any] = {"exposures": csvs[0], "events": csvs[1], "metrics": ["purchase"]}
    found = sa.analyze(**common, columns=columns)
    np.testing.assert_array_equal(found.estimates, true.estimates)
    assert "In events.csv timestamp is begin, unit is login, event is what" in str(found.notes)
    with pytest.raises(sa.InvalidInputError, match="no column who; its columns are login, begin"):
        sa.analyze(**common, columns={"timestamp": "begin", "arm": "shown", "unit": "who"})
    with pytest.raises(sa.InvalidInputError, match=r"--column exposures\.arm=NAME"):
        sa.analyze(**common, columns={"timestamp": "begin", "exposures.unit": "who"})
    with pytest.raises(sa.InvalidInputError, match="there is no column 'reward' of exposures"):
        sa.analyze(**common, columns={"reward": "euros"})


def test_errors_say_what_to_do(tmp_path: Path, postgres: str) -> None:
    exposures, events = random_tables(50)
    paths = write_parquets(tmp_path, exposures, events)
    write_postgres_tables(postgres, exposures, events)
    both = {"exposures": paths[0], "events": paths[1]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"exposures": paths[0], "metrics": ["purchase"]}, "exposures but no events"),
        ({**both}, "metrics is None; expected the name of an event"),
        ({**both, "metrics": ["purchas"]}, "no event 'purchas'.*did you mean purchase"),
        ({**both, "metrics": ["x = median(purchase)"]}, "cannot be read; expected"),
        ({**both, "metrics": ["x = y / count(view)"]}, "neither a measure nor an earlier metric"),
        ({**both, "metrics": ["purchase", "purchase"]}, "two metrics are called 'purchase'"),
        ({**both, "metrics": ["purchase"], "window": "90 days"}, "is over for no unit"),
        ({**both, "metrics": ["purchase"], "window": "a week"}, "window is 'a week'"),
        (
            {"exposures": postgres, "events": paths[1], "metrics": ["purchase"]},
            "both must be in one engine. Load the other table into the database",
        ),
        (
            {"exposures": postgres, "events": postgres, "metrics": ["purchase"]},
            "give the database once, as the log",
        ),
        (
            {"source": postgres, "exposures": "exposures", "events": str(paths[1])}
            | {"metrics": ["purchase"]},
            "both must be in one engine. Load the file into the database",
        ),
        ({"source": paths[0], **both, "metrics": ["purchase"]}, "Give one log, or two tables"),
        ({"source": paths[0], "window": "7d"}, "window is for two tables"),
    ]
    for options, said in cases:
        with pytest.raises(sa.InvalidInputError, match=said):
            sa.analyze(**options)


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
        sa.analyze(**common)
    for part in ("row 4: the time stamp is 'noon'", "row 4: the arm", "row 3: the unit is missing"):
        assert part in str(error.value)
    csvs[0].write_text("\n".join(good[0]))
    csvs[1].write_text("\n".join([*good[1], "u1,2026-03-02,purchase,10 EUR"]))
    with pytest.raises(sa.InvalidInputError, match=f"row {len(good[1])}: the value is '10 EUR'"):
        sa.analyze(**common)


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
    tables |= {"columns": {"exposures.timestamp": "seen"}, "metrics": ["value = sum(visit)"]}
    for more in (
        {},
        {"split": {"A": 0.5, "B": 0.5}, "covariates": ["spend"]},
        {"control": "A", "segments": ["spend"]},
        {"cluster": "store"},
        {"cluster": ["store", "day"]},
    ):
        options: dict[str, Any] = {"split": "equal", **more}
        found, one = sa.analyze(**tables, **options), sa.analyze(paths[2], **options)
        np.testing.assert_allclose(found.estimates, one.estimates, rtol=1e-12)
        np.testing.assert_allclose(
            found.intervals.standard_errors, one.intervals.standard_errors, rtol=1e-9
        )
        assert len(found.segments) == len(one.segments) == len(options.get("segments", ()))
        if found.control is not None:
            assert found.verdict.lifts == pytest.approx(one.verdict.lifts, abs=1e-12)
    ratio = tables | {"metrics": ["visit", "mean = sum(visit) / visit"], "split": "equal"}
    found = sa.analyze(**ratio, control="A", segments=["store"])
    assert len(found.segments) == 1
    assert found.metrics["mean"].segments == ()
    assert "mean is not split by segments" in str(found.metrics["mean"].notes)
    assert found.metrics["mean"].control == "A"
    with pytest.raises(sa.InvalidInputError, match="say so: --split equal"):
        sa.analyze(**tables)
    with pytest.raises(sa.InvalidInputError, match="no column spent"):
        sa.analyze(**tables, split="equal", covariates=["spent"])


def test_frames_are_tables(tmp_path: Path) -> None:
    import polars as pl

    exposures, events = random_tables(200)
    paths = write_parquets(tmp_path, exposures, events)
    true = sa.analyze(exposures=paths[0], events=paths[1], metrics=["purchase"], window="2 days")
    frames = pl.read_parquet(paths[0]), pl.read_parquet(paths[1]).to_pandas()
    for left, right in [frames, (frames[0].to_arrow(), paths[1])]:
        found = sa.analyze(exposures=left, events=right, metrics=["purchase"], window="2 days")
        np.testing.assert_array_equal(found.estimates, true.estimates)
    removed = sa.analyze(
        exposures=frames[0], events=frames[1], metrics=["purchase"], where="user_id <> 'u0'"
    )
    assert removed.rows == 199


def test_units_that_are_numbers_in_one_table_and_text_in_the_other(tmp_path: Path) -> None:
    import polars as pl

    exposures, events = random_tables(100)
    paths = write_parquets(tmp_path, exposures, events)
    true = sa.analyze(exposures=paths[0], events=paths[1], metrics=["purchase"])
    number = pl.col("user_id").str.slice(1).cast(pl.Int64, strict=False)
    left, right = (pl.read_parquet(path).with_columns(user_id=number) for path in paths)
    text = left.with_columns(pl.col("user_id").cast(pl.String))
    fraction = left.with_columns(pl.col("user_id").cast(pl.Float64))
    for frame in (left, text, fraction):
        found = sa.analyze(exposures=frame, events=right, metrics=["purchase"])
        np.testing.assert_array_equal(found.estimates, true.estimates)
        assert "1 event has no unit." in found.notes
    turned = right.with_columns(pl.col("user_id").cast(pl.String))
    found = sa.analyze(exposures=fraction, events=turned, metrics=["purchase"])
    np.testing.assert_array_equal(found.estimates, true.estimates)


def test_ibis_tables_of_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ibis

    cached = Log.cached
    kept: list[list[str]] = []

    def seen(log: Log, expression: Any) -> Any:
        kept.append(list(expression.columns))
        return cached(log, expression)

    monkeypatch.setattr(Log, "cached", seen)

    exposures, events = random_tables(100)
    paths = write_parquets(tmp_path, exposures, events)
    connection, other = ibis.duckdb.connect(), ibis.duckdb.connect()
    left, right = (connection.read_parquet(path) for path in paths)
    found = sa.analyze(exposures=left, events=right, metrics=["purchase"], window="1 day")
    true = sa.analyze(exposures=paths[0], events=paths[1], metrics=["purchase"], window="1 day")
    np.testing.assert_array_equal(found.estimates, true.estimates)
    assert "measure 0" in kept[-1]  # the join is computed once for all queries
    made = connection.con.execute("select table_name from duckdb_tables()").fetchall()
    assert made == []  # nothing is left behind
    for wrong in (other.read_parquet(paths[1]), paths[1]):
        with pytest.raises(sa.InvalidInputError, match="of one"):
            sa.analyze(exposures=left, events=wrong, metrics=["purchase"])
    connection.disconnect()
    other.disconnect()


def test_too_little_for_a_ratio_says_so_and_the_rest_goes_on(tmp_path: Path) -> None:
    exposures, events = random_tables(60)
    paths = write_parquets(tmp_path, exposures, [*events, ("u3", at(1000), "refund", 1.0)])
    metrics = ["purchase", "share = sum(purchase) / count(refund)"]
    found = sa.analyze(exposures=paths[0], events=paths[1], metrics=metrics)
    assert list(found.metrics) == ["purchase"]
    assert "There is no result of share: " in found.notes[-1]
    with pytest.raises(sa.InvalidInputError, match="share is divided by count"):
        sa.analyze(exposures=paths[0], events=paths[1], metrics=metrics[1:])


def test_a_cap_hides_no_value_that_cannot_be_added_up(tmp_path: Path) -> None:
    import polars as pl

    exposures, events = random_tables(60)
    paths = write_parquets(tmp_path, exposures, events)
    for wrong in (float("nan"), float("inf"), 1e200):
        broken = pl.read_parquet(paths[1]).with_columns(
            amount=pl.when(pl.col("event_name") == "view").then(None).otherwise(wrong)
        )
        for metric in ("revenue = sum(purchase) capped at 30", "most = max(purchase) capped at 30"):
            with pytest.raises(sa.InvalidInputError, match=r"the value is (nan|inf|1e\+200); exp"):
                sa.analyze(exposures=paths[0], events=broken, metrics=[metric])
        views = sa.analyze(
            exposures=paths[0], events=broken, metrics=["n = count(view) capped at 3"]
        )
        assert views.rows == 60  # which no value matters to


def test_units_that_match_nothing_are_an_error_with_examples(tmp_path: Path) -> None:
    exposures, events = random_tables(60)
    refund = [*events, ("u3", at(-500), "refund", 1.0)]
    paths = write_parquets(tmp_path, exposures, refund)
    before = [(unit, time - timedelta(days=90), *rest) for unit, time, *rest in events]
    capitals = [(unit and unit.upper(), *rest) for unit, *rest in events]
    cases: list[tuple[list[Any], str]] = [
        (before, "every event purchase of an exposed unit is before its first exposure"),
        (capitals, "is of a unit of exposures.csv. Units are 'U9' and the like there, and 'u9'"),
        ([("stranger", *rest) for _, *rest in events], "Units are 'stranger' and the like there"),
    ]
    for other, said in cases:
        csvs = write_csvs(tmp_path, exposures, other)
        with pytest.raises(sa.InvalidInputError, match=said):
            sa.analyze(exposures=csvs[0], events=csvs[1], metrics=["purchase"])
    csvs = write_csvs(tmp_path, exposures, [])
    with pytest.raises(sa.InvalidInputError, match=r"events.csv has no rows; expected one for"):
        sa.analyze(exposures=csvs[0], events=csvs[1], metrics=["purchase"])
    found = sa.analyze(exposures=paths[0], events=paths[1], metrics=["purchase", "refund"])
    assert list(found.metrics) == ["purchase"]
    assert "no result of refund: every event refund of an exposed unit is before" in found.notes[-1]


def test_notes_say_how_many_events_count(tmp_path: Path) -> None:
    exposures, events = random_tables(120)
    paths = write_parquets(tmp_path, exposures, events)
    found = sa.analyze(exposures=paths[0], events=paths[1], metrics=["purchase"])
    counts = plain_join(exposures, events, [("count", "purchase")], None)
    used = int(sum(unit.values[0] for unit in counts))
    assert f"{used} of {len(events)} events (" in str(found.notes)


def test_a_database_that_lets_nobody_make_tables(postgres: str) -> None:
    import psycopg

    exposures, events = random_tables(120)
    write_postgres_tables(postgres, exposures, events)
    metrics = ["purchase", "revenue = sum(purchase) capped at 30", "basket = revenue / purchase"]
    common: dict[str, Any] = {"exposures": "exposures", "events": "events", "metrics": metrics}
    true = sa.analyze(postgres, **common)
    with psycopg.connect(postgres, autocommit=True) as server:
        [[name]] = server.execute("select current_database()").fetchall()
        server.execute(f'alter database "{name}" set default_transaction_read_only = on')
        try:
            found = sa.analyze(postgres, **common)
        finally:
            server.execute("set default_transaction_read_only = off")
            server.execute(f'alter database "{name}" reset default_transaction_read_only')
    for one in metrics:
        metric = one.split(" ")[0]
        np.testing.assert_allclose(
            found.metrics[metric].estimates, true.metrics[metric].estimates, rtol=1e-12
        )


def test_a_range_is_that_of_the_first_metric(tmp_path: Path) -> None:
    paths = write_parquets(tmp_path, *random_tables(120))
    tables: dict[str, Any] = {"exposures": paths[0], "events": paths[1], "reward_range": (0, 1)}
    metrics = ["purchase", "revenue = sum(purchase)", "basket = revenue / purchase"]
    assert list(sa.analyze(**tables, metrics=metrics).metrics) == ["purchase", "revenue", "basket"]
    with pytest.raises(sa.InvalidInputError, match="expected 0 to 1; correct it"):
        sa.analyze(**tables, metrics=metrics[1:2])
    with pytest.raises(sa.InvalidInputError, match="reward_range is given, but b, the first metri"):
        sa.analyze(**tables, metrics=["b = sum(purchase) / count(purchase)"])


def test_seconds_since_1970_by_a_query_on_files(tmp_path: Path) -> None:
    import polars as pl

    paths = write_parquets(tmp_path, *random_tables(120))
    options: dict[str, Any] = {"metrics": ["purchase"], "window": "2 days"}
    true = sa.analyze(exposures=paths[0], events=paths[1], **options)
    names = {"exposures": "exposed_at", "events": "event_time"}
    numbers: dict[str, Any] = {}
    queries: dict[str, Any] = {}
    for (label, name), path in zip(names.items(), paths, strict=True):
        frame = pl.read_parquet(path).with_columns(pl.col(name).dt.epoch("ms") / 1000)
        frame.write_csv(tmp_path / f"{label}.csv")
        frame.write_parquet(tmp_path / f"{label}.parquet")
        numbers[label] = tmp_path / f"{label}.parquet"
        queries[label] = (
            f"select * replace (to_timestamp({name}::double) as {name}) "
            f"from '{tmp_path / f'{label}.csv'}'"
        )
    found = sa.analyze(**queries, **options)
    np.testing.assert_array_equal(found.estimates, true.estimates)
    for other in (numbers, {label: tmp_path / f"{label}.csv" for label in names}):
        with pytest.raises(sa.InvalidInputError, match="turn seconds since 1970 into times by a q"):
            sa.analyze(**other, **options)


def test_further_metrics_have_their_lifts_in_words(tmp_path: Path) -> None:
    from steadyarm.reports.analysis import analysis_report

    paths = write_parquets(tmp_path, *random_tables(300))
    metrics = ["purchase", *(f"{name} = sum(purchase)" for name in ("a", "b", "c", "d"))]
    found = sa.analyze(exposures=paths[0], events=paths[1], metrics=metrics, control="A")
    further = str(found).partition("a of 300 units")[2]
    assert further.count("against A") == 4
    assert "a is sum(purchase); a unit without such an event counts as 0." in further
    assert "At level 98.8 %" in further
    assert list(found.to_dict()["metrics"]) == ["a", "b", "c", "d"]  # the rest is purchase
    heads = [getattr(block, "text", "") for block in analysis_report(found).blocks]
    assert [text for text in heads if text.startswith("Against A")] == [
        f"Against A: {name}" for name in found.metrics
    ]


def test_names_with_quotes() -> None:
    given = {"m": """count(o'neil "x")""", "n": "count('a b')", "o": 'count("c")'}
    assert [metric.above.event for metric in event_metrics(given)] == [
        *("""o'neil "x\"""", "a b", "c"),
    ]


def test_events_without_names_and_units_that_are_no_number(tmp_path: Path) -> None:
    import polars as pl

    exposures, events = random_tables(60)
    paths = write_parquets(tmp_path, exposures, events)
    number = pl.col("user_id").str.slice(1).cast(pl.Int64, strict=False).cast(pl.Float64)
    left, right = (pl.read_parquet(path).with_columns(user_id=number) for path in paths)
    nameless = right.with_columns(event_name=pl.lit(None, pl.String))
    with pytest.raises(sa.InvalidInputError, match="none of its events has a name"):
        sa.analyze(exposures=left, events=nameless, metrics=["purchase"])
    some = pl.when(pl.col("user_id") < 3).then(float("nan")).otherwise(pl.col("user_id"))
    found = sa.analyze(exposures=left, events=right.with_columns(user_id=some), metrics=["view"])
    lost = right.filter((pl.col("user_id") < 3) | pl.col("user_id").is_null()).height
    assert f"{lost} events have no unit." in found.notes
    with pytest.raises(sa.InvalidInputError, match="rows are counted from 1 in the frame") as error:
        sa.analyze(exposures=left.with_columns(user_id=some), events=right, metrics=["view"])
    assert "row 1, row 2" in str(error.value)
    blank = left.with_columns(variant=pl.lit(""))
    with pytest.raises(sa.InvalidInputError, match="the arm is ''; every row needs one"):
        sa.analyze(exposures=blank, events=right, metrics=["view"])
