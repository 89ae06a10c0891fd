"""How fast is `analyze` on a long log, and how much memory does it take?

Makes a Parquet log with DuckDB once, then analyses it and, in the same run and with the same
number of threads, lets DuckDB count and add up the rewards of each arm, which reads two of the
four columns and weighs nothing. Each is timed in a process of its own after a warm-up on a small
log; rounds alternate, and the ratio is the median over rounds. The aim is 3 at most.
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

MOST_RATIO, MOST_MEMORY = 3.0, 4.0
REWARDS = {"amounts": "10 + 0.1 * k + v + w", "clicks": "(v < 0.10 + 0.01 * k)::double"}

SUMS = "count(*), count(reward), sum(reward), sum(reward * reward) FROM '{path}' GROUP BY ALL"
QUERIES = {
    "arm": "SELECT arm, count(*), sum(reward) FROM '{path}' GROUP BY arm",
    "no group": "SELECT sum(reward), sum(probability), count(*) FILTER (timestamp > TIMESTAMP "
    "'2026-01-07') FROM '{path}'",
    "arm, p": f"SELECT arm, probability, {SUMS}",
    "day, arm, p": f'SELECT "timestamp"::DATE AS day, arm, probability, {SUMS}',
}


def make_log(path: Path, rows: int, rewards: str) -> None:
    """Fourteen days; the probabilities of four arms change every day."""
    import duckdb

    part = path.with_suffix(".part")
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '3GB'")
        connection.execute(f"""
            COPY (
              WITH raw AS (
                SELECT i, i * 14 // {rows} AS day, hash(3 * i + 1) / 18446744073709551616.0 AS u,
                  hash(7 * i + 5) / 18446744073709551616.0 AS v,
                  hash(5 * i + 2) / 18446744073709551616.0 AS w FROM range({rows}) AS t(i)
              ), drawn AS (
                SELECT *, CASE WHEN u < 0.30 + 0.01 * day THEN 0 WHEN u < 0.55 THEN 1
                  WHEN u < 0.75 THEN 2 ELSE 3 END AS k FROM raw
              )
              SELECT TIMESTAMP '2026-01-01' + to_microseconds((i * 1209600e6 / {rows})::bigint)
                  AS "timestamp",
                i AS unit, 'variant ' || chr(65 + k::int) AS arm,
                (CASE k WHEN 0 THEN 0.30 + 0.01 * day WHEN 1 THEN 0.25 - 0.01 * day
                  WHEN 2 THEN 0.20 ELSE 0.25 END)::double AS probability,
                ({REWARDS[rewards]})::double AS reward FROM drawn
            ) TO '{part}' (FORMAT parquet)""")
    part.rename(path)


def time_query(query: str, path: Path) -> float:
    import duckdb

    with duckdb.connect() as connection:
        start = time.perf_counter()
        connection.execute(query.format(path=path)).fetchall()
        return time.perf_counter() - start


def time_analyze(path: Path) -> float:
    import steadyarm as sa

    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.parquet")
        make_log(small, 10_000, "amounts")
        sa.analyze(small)
    start = time.perf_counter()
    found = sa.analyze(path)
    assert found.recommended == "variant D", found
    return time.perf_counter() - start


def alone(what: str, path: Path) -> tuple[float, float]:
    """Seconds, and the peak of memory in GB, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--only", what, "--log", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="100_000_000 for the real one")
    parser.add_argument(
        "--rewards", choices=list(REWARDS), default="amounts", help="default: amounts"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the log is kept"
    )
    parser.add_argument("--rounds", type=int, default=5, help="timings of each")
    parser.add_argument("--steps", action="store_true", help="say where the time goes")
    parser.add_argument("--only", choices=[*QUERIES, "analyze"], help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        query = QUERIES.get(args.only)
        seconds = time_query(query, args.log) if query else time_analyze(args.log)
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
        return 0
    path = args.folder / f"steadyarm-log-{args.rewards}-{args.rows}.parquet"
    if not path.exists():
        start = time.perf_counter()
        make_log(path, args.rows, args.rewards)
        print(f"made {path.name} in {time.perf_counter() - start:.0f} s")
    size = path.stat().st_size / 1e9
    print(f"{args.rows:,} rows of {args.rewards}, {size:.2f} GB of Parquet")
    alone("arm", path)  # the file is in the system's cache from now on
    ratios, peaks = [], []
    steps: dict[str, list[float]] = {name: [] for name in list(QUERIES)[1:] if args.steps}
    for _ in range(args.rounds):
        (base, _), (mine, peak) = alone("arm", path), alone("analyze", path)
        print(f"DuckDB's GROUP BY arm: {base:.2f} s; analyze: {mine:.2f} s and {peak:.2f} GB")
        ratios.append(mine / base)
        peaks.append(peak)
        for name, found in steps.items():
            found.append(alone(name, path)[0] / base)
    for name, found in steps.items():
        print(f"DuckDB, {name}: median ratio {statistics.median(found):.2f}")
    ratio, peak = statistics.median(ratios), max(peaks)
    good = ratio <= MOST_RATIO and peak < MOST_MEMORY
    print(
        f"median ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; at most "
        f"{MOST_RATIO:g}), {peak:.2f} GB (below {MOST_MEMORY:g}): {'kept' if good else 'MISSED'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
