"""How fast is `analyze` on a long log, and how much memory does it take?

Makes a Parquet log once, then analyses it and lets DuckDB count and add up the rewards of each arm,
with as many threads. Each is timed in a process of its own after a warm-up; rounds alternate, and
the ratio is the median over rounds; the aim is 3 at most. Then `steadyarm analyze` takes a CSV file
of 1,000 rows: processor time beyond that of a Python that does nothing; the aim is 0.3 s. Beside it
stands what importing Ibis and connecting to DuckDB take, without which nothing is read.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_RATIO, MOST_MEMORY = 3.0, 4.0
MOST_SECONDS, SMALL_ROWS = 0.3, 1_000
START = "import sys; from steadyarm.cli.main import run; sys.exit(run())"  # as the script does
GROUP_BY = "SELECT arm, count(*), sum(reward) FROM '{path}' GROUP BY arm"


def make_log(path: Path, rows: int) -> None:
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
                10 + 0.1 * k + v + w AS reward FROM drawn
            ) TO '{part}' (FORMAT parquet)""")
    part.rename(path)


def time_query(path: Path) -> tuple[float, float]:
    """Seconds that pass, and seconds of processor time."""
    import duckdb

    with duckdb.connect() as connection:
        start, work = time.perf_counter(), time.process_time()
        connection.execute(GROUP_BY.format(path=path)).fetchall()
        return time.perf_counter() - start, time.process_time() - work


def time_analyze(path: Path) -> tuple[float, float]:
    """The same for `analyze`."""
    import pyarrow.parquet  # noqa: F401  # what a process imports once is not timed

    import steadyarm as sa

    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.parquet")
        make_log(small, 10_000)
        sa.analyze(small)
    start, work = time.perf_counter(), time.process_time()
    found = sa.analyze(path)
    assert found.recommended == "variant D", found
    return time.perf_counter() - start, time.process_time() - work


def alone(what: str, path: Path) -> tuple[float, float, float]:
    """Seconds, those of processor time, and the peak of memory in GB, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--only", what, "--log", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, work, peak = map(float, done.stdout.split())
    return seconds, work, peak


def long_log(rows: int, rounds: int) -> None:
    """Seconds and memory of a long log, beside DuckDB's own sums."""
    path = Path(tempfile.gettempdir(), f"steadyarm-log-{rows}.parquet")
    if not path.exists():
        start = time.perf_counter()
        make_log(path, rows)
        print(f"made {path.name} in {time.perf_counter() - start:.0f} s")
    size = path.stat().st_size / 1e9
    print(f"{rows:,} rows, {size:.2f} GB of Parquet")
    alone("DuckDB", path)  # the file is in the system's cache from now on
    ratios, works, peaks = [], [], []
    for _ in range(rounds):
        base, least, _ = alone("DuckDB", path)
        mine, work, peak = alone("analyze", path)
        print(
            f"DuckDB's GROUP BY arm: {base:.2f} s ({least:.2f} s of processor time); analyze: "
            f"{mine:.2f} s ({work:.2f} s) and {peak:.2f} GB"
        )
        ratios.append(mine / base)
        works.append(work / least)
        peaks.append(peak)
    ratio, peak = statistics.median(ratios), max(peaks)
    good = ratio <= MOST_RATIO and peak < MOST_MEMORY
    print(
        f"median ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; at most "
        f"{MOST_RATIO:g}), {peak:.2f} GB (below {MOST_MEMORY:g}): {'kept' if good else 'MISSED'}"
    )
    print(f"median ratio of processor times {statistics.median(works):.2f}")


def small_log(rounds: int) -> None:
    """Processor time of a small CSV file, as a user analyses it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.csv")
        rows = ["timestamp,unit,arm,probability,reward"]
        for i in range(SMALL_ROWS):
            day, arm = 1 + i * 14 // SMALL_ROWS, "AB"[i * 7 % 5 % 2]
            rows.append(f"2026-03-{day:02} 12:00:00,{i},{arm},0.5,{i * 13 % 17 % 2}")
        path.write_text("\n".join(rows) + "\n")
        bytecode = {"PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | bytecode
        words = {
            "python -c pass": ["-c", "pass"],
            "Ibis and DuckDB": ["-c", "import ibis; ibis.duckdb.connect()"],
            "analyze": ["-c", START, "analyze", str(path)],
        }
        found: dict[str, list[float]] = {name: [] for name in words}
        for number in range(rounds + 1):  # the first writes the bytecode
            for name, given in words.items():
                seconds = processor_time([sys.executable, *given], env)
                found[name] += [seconds] if number else []
    least = {name: min(seconds) for name, seconds in found.items()}
    beyond = {name: least[name] - least["python -c pass"] for name in least}
    print(
        f"{SMALL_ROWS:,} rows of CSV: {beyond['analyze']:.2f} s of processor time beyond Python's "
        f"start, of which Ibis and DuckDB {beyond['Ibis and DuckDB']:.2f} s (least of {rounds}; at "
        f"most {MOST_SECONDS:g}): {'kept' if beyond['analyze'] <= MOST_SECONDS else 'MISSED'}"
    )


def processor_time(command: list[str], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="100_000_000 for the real one")
    parser.add_argument("--rounds", type=int, default=5, help="timings of each")
    parser.add_argument("--only", choices=["DuckDB", "analyze"], help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        seconds = (time_query if args.only == "DuckDB" else time_analyze)(args.log)
        print(*seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
        return 0
    long_log(args.rows, args.rounds)
    small_log(args.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
