"""Does anything get lost or counted twice when servers crash and requests race?

Under load from 8 client processes the server is killed (kill -9) 20 times at random moments, and
PostgreSQL itself every second time; then 4 workers are asked by 64 clients for the same 1,000 units
at once. What clients were told is compared with what is stored, and the whole test is replayed.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.traffic.crash import crash_under_load
from benchmarks.traffic.race import race_for_units
from benchmarks.traffic.servers import storages


def measure(backend: str, kills: int, units: int) -> bool:
    began = time.perf_counter()
    with storages(backend) as (url, database):
        left = crash_under_load(url, database, kills)
    print(
        f"{backend}: {left.kills} kills of the server, {left.database_kills} of the database, "
        f"{time.perf_counter() - began:.0f} s\n"
        f"  acknowledged: {left.assigned:,} assignments, {left.told:,} rewards; stored: "
        f"{left.stored:,}\n  lost, doubled or changed: {len(left.faults)}"
    )
    with storages(backend) as (url, _):
        race = race_for_units(url, units=units)
    print(
        f"  race: {race.requests:,} requests for {units:,} units at {race.per_second:,.0f}/s; "
        f"faults: {len(race.faults)}"
    )
    for fault in (*left.faults, *race.faults):
        print(f"    {fault}")
    return not left.faults and not race.faults


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of the server")
    parser.add_argument("--units", type=int, default=1000, help="to race for")
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], help="default: both")
    args = parser.parse_args()
    chosen = [args.backend] if args.backend else ["sqlite", "postgresql"]
    safe = [measure(backend, args.kills, args.units) for backend in chosen]
    sys.exit(not all(safe))
