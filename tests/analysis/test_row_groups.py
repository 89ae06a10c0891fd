"""Sums by pieces of Parquet files are those of one query, whatever statistics the files have."""

from __future__ import annotations

import struct
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import steadyarm as sa
from steadyarm.analysis import row_groups
from steadyarm.analysis.log import Log, open_log
from steadyarm.analysis.result import Analysis
from steadyarm.analysis.row_groups import RowGroup, pieces_of
from steadyarm.analysis.sums import UNITS, Plan, plan_periods

ROWS, GROUP = 6_000, 500
START = datetime(2026, 3, 1)


def columns(seed: int = 1, rows: int = ROWS, fixed: bool = False) -> dict[str, Any]:
    """A sorted log of five days; the split changes every day and is one within it."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, 5 * 86_400_000_000, rows))
    day = at // 86_400_000_000
    share = np.full(rows, 0.3) if fixed else np.array([0.3, 0.25, 0.4, 0.2, 0.35])[day]
    first = rng.random(rows) < share
    second = rng.random(rows) < 0.5
    return {
        "timestamp": np.array([START + timedelta(microseconds=int(t)) for t in at]),
        "unit": np.arange(rows),
        "arm": np.where(first, "A", np.where(second, "B", "C")),
        "probability": np.where(first, share, (1 - share) / 2),
        "reward": 3.0 + first + rng.normal(size=rows),
    }


def write(path: Path, found: dict[str, Any], **options: Any) -> Path:
    table = pa.table({name: pa.array(list(values)) for name, values in found.items()})
    pq.write_table(table, path, **{"row_group_size": GROUP} | options)
    return path


class Ways:
    """Analyses by pieces and by one query."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch, self.used = monkeypatch, False
        inner = row_groups.sums_by_piece

        def spied(*args: Any) -> Any:
            found = inner(*args)
            self.used = found is not None
            return found

        monkeypatch.setattr(row_groups, "sums_by_piece", spied)

    def by_piece(self, source: Any, **options: Any) -> Analysis:
        self.used = False
        self.patch.setattr(row_groups, "WORTH", 1)
        return sa.analyze(source, **options)

    def at_once(self, source: Any, **options: Any) -> Analysis:
        self.patch.setattr(row_groups, "WORTH", 10**12)
        return sa.analyze(source, **options)

    def same(self, source: Any, used: bool = True, **options: Any) -> Analysis:
        """The analysis, after a look at whether both ways agree."""
        one = self.by_piece(source, **options)
        assert self.used is used
        other = self.at_once(source, **options)
        for name in ("rounds", "scores", "squares"):
            ours, theirs = getattr(one.evidence, name), getattr(other.evidence, name)
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-9)
        np.testing.assert_array_equal(one.counts, other.counts)
        np.testing.assert_allclose(one.means, other.means, rtol=1e-12)
        assert (one.rows, one.rewards, one.notes) == (other.rows, other.rewards, other.notes)
        assert one.drift.periods == other.drift.periods
        assert [f.status for f in one.health.findings] == [f.status for f in other.health.findings]
        return one


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.mark.parametrize("period", ["auto", "day", "week", "month", "hour", "shares:5"])
def test_a_sorted_log(ways: Ways, tmp_path: Path, period: str) -> None:
    fixed = period in ("week", "month")
    size = 5 if period in ("hour", "shares:5") else GROUP
    path = write(tmp_path / "log.parquet", columns(fixed=fixed), row_group_size=size)
    assert ways.same(path, period=period).rows == ROWS


def test_several_files_and_other_names(ways: Ways, tmp_path: Path) -> None:
    for number in range(3):
        found = columns(seed=number)
        found["unit"] = found["unit"] + number * ROWS
        renamed = {"variant" if name == "arm" else name: found[name] for name in found}
        write(tmp_path / f"{number}.parquet", renamed)
    assert ways.same(tmp_path, columns={"arm": "variant"}).rows == 3 * ROWS


def test_files_of_another_writer(ways: Ways, tmp_path: Path) -> None:
    table = pa.table(
        {name: pa.array(list(values)) for name, values in columns(rows=30_000).items()}
    )
    path = tmp_path / "log.parquet"
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    ways.same(path)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("unit", ["ms", "us"])
def test_time_zones(ways: Ways, tmp_path: Path, zone: str, unit: str) -> None:
    found = columns()
    micros = pa.array(list(found["timestamp"]), pa.timestamp("us"))
    times = micros.cast(pa.timestamp(unit), safe=False).cast(pa.timestamp(unit, zone))
    table = pa.table({name: list(values) for name, values in found.items() if name != "timestamp"})
    path = tmp_path / "log.parquet"
    pq.write_table(table.append_column("timestamp", times), path, row_group_size=GROUP)
    ways.same(path)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.date32(), pa.string(), pa.int64(), pa.float64()]
)
def test_times_of_other_types_are_read(ways: Ways, tmp_path: Path, kind: pa.DataType) -> None:
    found = columns()
    times = pa.array(list(found["timestamp"]), pa.timestamp("us"))
    if pa.types.is_floating(kind):
        times = times.cast(pa.int64())
    if pa.types.is_date(kind):
        times = times.cast(pa.timestamp("s"), safe=False)
    times = times.cast(kind, safe=False)
    table = pa.table({name: list(values) for name, values in found.items() if name != "timestamp"})
    path = tmp_path / "log.parquet"
    pq.write_table(table.append_column("timestamp", times), path, row_group_size=GROUP)
    ways.same(path, used=False)


@pytest.mark.parametrize("which", [[], ["arm", "reward"]])
def test_without_statistics(ways: Ways, tmp_path: Path, which: list[str]) -> None:
    path = write(tmp_path / "log.parquet", columns(), write_statistics=which or False)
    ways.same(path, used=False)


def test_disorder_within_and_across_row_groups(ways: Ways, tmp_path: Path) -> None:
    found, rng = columns(), np.random.default_rng(5)
    within = np.concatenate([i + rng.permutation(GROUP) for i in range(0, ROWS, GROUP)])
    path = write(tmp_path / "within.parquet", {n: v[within] for n, v in found.items()})
    ways.same(path)  # row groups at midnight cannot be cut, and are grouped by their times
    across = rng.permutation(ROWS)
    path = write(tmp_path / "across.parquet", {n: v[across] for n, v in found.items()})
    ways.same(path, used=False)
    swapped = np.concatenate([np.arange(3000, ROWS), np.arange(3000)])
    path = write(tmp_path / "swapped.parquet", {n: v[swapped] for n, v in found.items()})
    ways.same(path)


def test_probabilities_that_change_within_a_day(ways: Ways, tmp_path: Path) -> None:
    found = columns()
    days = np.array([time.day for time in found["timestamp"]])
    some = np.flatnonzero(days == 1 + np.bincount(days)[1:].argmin())[::2]
    found["probability"][some] = found["probability"][some] * 0.9
    ways.same(write(tmp_path / "once.parquet", found))
    found["probability"] = found["probability"] * (1 - 0.001 * (np.arange(ROWS) % 7))
    ways.same(write(tmp_path / "always.parquet", found), used=False)


def test_missing_rewards_and_ranges(ways: Ways, tmp_path: Path) -> None:
    found = columns()
    found["reward"] = np.where(np.arange(ROWS) % 11 == 0, None, found["reward"])
    path = write(tmp_path / "log.parquet", found)
    ways.same(path, missing="drop", reward_range=(-10.0, 20.0))
    ways.same(path, missing="zero")
    with pytest.raises(sa.InvalidInputError, match="the reward is missing"):
        ways.by_piece(path)


def test_excluded_rows_and_covariates(ways: Ways, tmp_path: Path) -> None:
    found = columns()
    found["excluded"] = np.where(np.arange(ROWS) % 13 == 0, "bot", "")
    found["spend"] = found["reward"] + np.arange(ROWS) % 3
    path = write(tmp_path / "log.parquet", found)
    assert ways.same(path).rows < ROWS
    ways.same(path, covariates=["spend"])


@pytest.mark.parametrize("wrong", [None, float("nan"), 0.0, -0.5, 1.5])
@pytest.mark.parametrize("some", [slice(0, 10), slice(None)])
def test_unusable_probabilities(ways: Ways, tmp_path: Path, wrong: Any, some: slice) -> None:
    found = columns()
    p = found["probability"].astype(object)
    p[some] = wrong
    path = write(tmp_path / "log.parquet", found | {"probability": p})
    messages = []
    for way in (ways.by_piece, ways.at_once):
        with pytest.raises(sa.InvalidInputError, match="the probability is") as refused:
            way(path)
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_missing_times_and_arms(ways: Ways, tmp_path: Path) -> None:
    for name in ("timestamp", "arm"):
        found = columns()
        values = found[name].astype(object)
        values[[100, 4000]] = None
        path = write(tmp_path / f"{name}.parquet", found | {name: values})
        messages = []
        for way in (ways.by_piece, ways.at_once):
            with pytest.raises(sa.InvalidInputError, match="row 101, row 4001") as refused:
                way(path)
            messages.append(str(refused.value))
        assert messages[0] == messages[1]


def test_starts_of_buckets_are_those_of_duckdb() -> None:
    rng = np.random.default_rng(3)
    times = [START + timedelta(microseconds=int(t)) for t in rng.integers(-(10**16), 10**16, 200)]
    names = {"s": "second", "m": "minute", "h": "hour", "D": "day", "W": "week", "M": "month"}
    assert set(UNITS.values()) <= set(names)
    with duckdb.connect() as connection:
        for unit, name in names.items():
            query = f"SELECT date_trunc('{name}', ?::TIMESTAMP)::TIMESTAMP"
            for time in times:
                [[there]] = connection.execute(query, [time]).fetchall()
                assert Plan("day", unit).start_of(time) == there


def test_pieces() -> None:
    def group(first: int, low: int, high: int, part: int = 0, nulls: int | None = 0) -> RowGroup:
        hours = [START + timedelta(hours=h) for h in (low, high)]
        return RowGroup(part, first, first + 9, hours[0], hours[1], nulls)

    groups = [group(0, 0, 5), group(10, 6, 23), group(20, 23, 25), group(30, 25, 30)]
    groups += [group(40, 26, 27, nulls=None), group(0, 28, 29, part=1)]
    plan = plan_periods("day", START, START + timedelta(days=3))
    days = [START, None, START + timedelta(days=1), None, START + timedelta(days=1)]
    found = pieces_of(groups, plan)
    assert [piece.at for piece in found] == days
    assert [(p.part, p.first, p.last) for p in found] == [
        *((0, 0, 19), (0, 20, 29), (0, 30, 39), (0, 40, 49), (1, 0, 9))
    ]


def test_hashes_of_doubles_are_one_to_one() -> None:
    """DuckDB's hash of a double can be undone, so that equal hashes are equal numbers."""
    rng = np.random.default_rng(8)
    numbers = np.concatenate([rng.random(500), 10.0 ** -rng.uniform(0, 300, 500), [1.0, 0.5, 0.25]])
    numbers = np.concatenate([numbers, np.nextafter(numbers, 2.0)])
    inverse = pow(0xD6E8FEB86659FD93, -1, 2**64)

    def undone(code: int) -> float:
        for _ in range(2):
            code = (code ^ (code >> 32)) * inverse % 2**64
        [number] = struct.unpack("<d", struct.pack("<Q", code ^ (code >> 32)))
        return float(number)

    with duckdb.connect() as connection:
        for number in numbers.tolist():
            [[code]] = connection.execute("SELECT hash(?::DOUBLE)", [number]).fetchall()
            assert undone(code) == number


# Units.


@pytest.fixture
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "LEAST_GROUPS", 8)


def repeats(path: Path) -> bool | None:
    log = open_log(path)
    try:
        return row_groups.no_unit_repeats(log, log.table)
    finally:
        log.close()


@pytest.mark.usefixtures("few_groups")
def test_units_that_are_in_no_two_row_groups(tmp_path: Path) -> None:
    found = columns()
    assert repeats(write(tmp_path / "once.parquet", found)) is True
    twice = write(tmp_path / "twice.parquet", found | {"unit": np.arange(ROWS) // 2})
    assert repeats(twice) is False
    analysis = sa.analyze(twice, thorough=False)
    assert analysis.units is not None
    assert analysis.units.units == ROWS // 2


@pytest.mark.usefixtures("few_groups")
def test_units_of_which_statistics_say_nothing(tmp_path: Path) -> None:
    found = columns()
    across = found | {"unit": np.arange(ROWS) % (ROWS // 2)}
    assert repeats(write(tmp_path / "across.parquet", across)) is None
    texts = found | {"unit": [f"u{i:05}" for i in range(ROWS)]}
    assert repeats(write(tmp_path / "texts.parquet", texts)) is None
    assert repeats(write(tmp_path / "none.parquet", found, write_statistics=False)) is None
    few = write(tmp_path / "few.parquet", found, row_group_size=ROWS)
    assert repeats(few) is None
    analysis = sa.analyze(tmp_path / "across.parquet", thorough=False)
    assert analysis.units is not None


def test_segments_ask_for_sums_again(ways: Ways, tmp_path: Path) -> None:
    found = columns()
    found["country"] = np.where(np.arange(ROWS) % 3 == 0, "FR", "DE")
    path = write(tmp_path / "log.parquet", found)
    one = ways.by_piece(path, segments=["country"], control="A").to_dict()
    assert ways.used
    other = ways.at_once(path, segments=["country"], control="A").to_dict()
    levels = one["segments"][0]["levels"], other["segments"][0]["levels"]
    for ours, theirs in zip(*levels, strict=True):
        assert ours["name"] == theirs["name"]
        for arm, same in zip(ours["arms"], theirs["arms"], strict=True):
            assert arm.pop("name") == same.pop("name")
            assert arm == pytest.approx(same, rel=1e-9, abs=1e-9)


def test_names_with_quotes_and_no_pandas(tmp_path: Path) -> None:
    """Statistics are read with names that SQL would misread, and without importing pandas."""
    found = columns()
    name = "it's when"
    found[name] = found.pop("timestamp")
    path = write(tmp_path / "it's {a} log.parquet", found)
    code = (
        "import sys, steadyarm as sa\n"
        "from steadyarm.analysis import row_groups\n"
        "row_groups.WORTH = 1\n"
        f"names = {{'timestamp': {name!r}}}\n"
        f"found = sa.analyze({str(path)!r}, columns=names, thorough=False)\n"
        "print(found.rows, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(ROWS), "False"]


@pytest.mark.parametrize("lost", ["units", "times", "nothing"])
def test_totals_of_events_by_statistics(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What statistics tell of events is what a query tells, which missing times still need."""
    rng, n = np.random.default_rng(6), 4000
    exposed = [START + timedelta(minutes=int(i)) for i in range(1000)]
    exposures = pa.table(
        {"unit": np.arange(1000), "arm": np.where(rng.random(1000) < 0.5, "A", "B"), "ts": exposed}
    )
    units: list[int | None] = [int(u) for u in rng.integers(0, 1200, n)]
    times: list[datetime | None] = [START + timedelta(minutes=int(m)) for m in rng.permutation(n)]
    if lost == "units":
        units[7::500] = [None] * len(units[7::500])
    if lost == "times":
        times[11] = None
    events = pa.table({"unit": units, "ts": times, "event": ["buy"] * n})
    pq.write_table(exposures, tmp_path / "exposures.parquet")
    pq.write_table(events, tmp_path / "events.parquet", row_group_size=GROUP)
    told: list[Any] = []
    by_statistics = row_groups.totals

    def noted(log: Log) -> Any:
        told.append(by_statistics(log))
        return told[-1]

    monkeypatch.setattr(row_groups, "totals", noted)

    def found() -> Any:
        return sa.analyze(
            exposures=tmp_path / "exposures.parquet",
            events=tmp_path / "events.parquet",
            metrics=["bought = count(buy)"],
            window="1 day",
            split="equal",
            columns={"timestamp": "ts"},
        )

    if lost == "times":
        with pytest.raises(sa.InvalidInputError, match="row 12"):
            found()
        assert told == [None]
        return
    mine = found()
    assert told[0]["nobody"] == (8 if lost == "units" else 0)
    monkeypatch.setattr(row_groups, "totals", lambda log: None)
    assert mine.to_dict() == found().to_dict()
