"""How fast is `analyze` on two tables, and how much memory does it take?

A tenth as many exposures as events, in Parquet. `analyze` (first exposures, sums of each unit in a
week, SRM, drift, intervals) against the join by hand: events of a week after the exposure, counted
and added up by arm. Each runs in a process of its own, rounds alternate. The aim is 2 at most.
Beside it stand that join without the window, and with sums of each unit, which variances need.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_MEMORY, MEMORY = 4.0, "3GB"
MOST_TABLES = 2.0
INSIDE = "v.timestamp >= e.timestamp AND v.timestamp <= e.timestamp + INTERVAL 7 DAY"
JOINS = {
    "join": "SELECT e.arm, count(*), sum(v.value) FROM '{events}' v JOIN '{exposures}' e ON "
    f"v.unit = e.unit AND {INSIDE} GROUP BY e.arm",
    "join without window": "SELECT e.arm, count(*), sum(v.value) FROM '{events}' v JOIN "
    "'{exposures}' e ON v.unit = e.unit GROUP BY e.arm",
    "join by unit": "SELECT arm, count(*), sum(s), sum(s * s) FROM (SELECT v.unit, "
    "any_value(e.arm) AS arm, sum(v.value) AS s FROM '{events}' v JOIN '{exposures}' e ON "
    f"v.unit = e.unit AND {INSIDE} GROUP BY v.unit) GROUP BY arm",
}


def make_tables(folder: Path, events: int) -> tuple[Path, Path]:
    """Two weeks of exposures, a tenth as many as events; four weeks of events, some by others."""
    import duckdb

    units = events // 10
    sizes = {"exposures": units, "events": events}
    left, right = (folder / f"steadyarm-{name}-{n}.parquet" for name, n in sizes.items())
    selects = (
        f"""SELECT i AS unit, 'variant ' || chr(65 + (hash(3 * i + 1) % 4)::int) AS arm,
          TIMESTAMP '2026-01-01' + to_microseconds((i * 1209600e6 / {units})::bigint) AS "timestamp"
          FROM range({units}) AS t(i)""",
        f"""SELECT (hash(7 * i + 5) % {units + units // 4})::bigint AS unit,
          TIMESTAMP '2026-01-01' + to_microseconds((i * 2419200e6 / {events})::bigint)
            AS "timestamp",
          'purchase' AS event, (hash(5 * i + 2) % 10000) / 100.0 AS value
          FROM range({events}) AS t(i)""",
    )
    for path, select in zip((left, right), selects, strict=True):
        if not path.exists():
            part = path.with_suffix(".part")
            with duckdb.connect() as connection:
                connection.execute("SET memory_limit = '3GB'")
                connection.execute(f"COPY ({select}) TO '{part}' (FORMAT parquet)")
            part.rename(path)
    return left, right


def time_tables(folder: Path, events: int) -> float:
    import steadyarm as sa

    def found(paths: tuple[Path, Path]) -> sa.Analysis:
        metrics = ["revenue = sum(purchase)"]
        return sa.analyze(
            exposures=paths[0],
            events=paths[1],
            metrics=metrics,
            window="7 days",
            split="equal",
            memory=MEMORY,
        )

    with tempfile.TemporaryDirectory() as small:
        found(make_tables(Path(small), 20_000))
    paths, start = make_tables(folder, events), time.perf_counter()
    assert found(paths).rows == events // 10
    return time.perf_counter() - start


def two_tables(folder: Path, events: int, rounds: int) -> None:
    """Seconds and memory of two tables, beside joins by hand."""
    paths = make_tables(folder, events)
    size = sum(path.stat().st_size for path in paths) / 1e9
    print(f"{events:,} events and {events // 10:,} exposures, {size:.2f} GB of Parquet")
    alone("join", folder, events)  # the files are in the system's cache from now on
    ratios: dict[str, list[float]] = {name: [] for name in JOINS}
    peaks = []
    for _ in range(rounds):
        mine, peak = alone("analyze", folder, events)
        peaks.append(peak)
        for name, found in ratios.items():
            base, _ = alone(name, folder, events)
            found.append(mine / base)
            print(f"DuckDB, {name}: {base:.2f} s; analyze: {mine:.2f} s and {peak:.2f} GB")
    for name, found in list(ratios.items())[1:]:
        print(f"beside DuckDB's {name}: median ratio {statistics.median(found):.2f}")
    first = ratios["join"]
    ratio, peak = statistics.median(first), max(peaks)
    good = ratio <= MOST_TABLES and peak < MOST_MEMORY
    print(
        f"two tables: median ratio {ratio:.2f} ({min(first):.2f} to {max(first):.2f}; at most "
        f"{MOST_TABLES:g}), {peak:.2f} GB (below {MOST_MEMORY:g}): {'kept' if good else 'MISSED'}"
    )


def time_join(what: str, folder: Path, events: int) -> float:
    import duckdb

    left, right = make_tables(folder, events)
    query = JOINS[what].format(exposures=left, events=right)
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        start = time.perf_counter()
        connection.execute(query).fetchall()
        return time.perf_counter() - start


def alone(what: str, folder: Path, events: int) -> tuple[float, float]:
    """Seconds, and the peak of memory in GB, in a process of its own."""
    words = ["--only", what, "--folder", str(folder), "--events", str(events)]
    done = subprocess.run(
        [sys.executable, __file__, *words], check=True, capture_output=True, text=True
    )
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--events", type=int, default=5_000_000, help="100_000_000 for the real one"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the tables are kept"
    )
    parser.add_argument("--rounds", type=int, default=3, help="timings of each")
    parser.add_argument("--only", choices=[*JOINS, "analyze"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only is None:
        two_tables(args.folder, args.events, args.rounds)
        return 0
    if args.only == "analyze":
        seconds = time_tables(args.folder, args.events)
    else:
        seconds = time_join(args.only, args.folder, args.events)
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
