"""How long does the dashboard take to answer when millions of assignments are stored?

A test of eight variants over thirty days, served by `steadyarm serve`; the experiment's page, its
charts and the overview in turn with /healthz, which touches nothing. What is printed are medians
and their ratio to that of /healthz. The first look, which others are spared, comes first; while
traffic goes on a page shows a look that is some seconds old.
"""

from __future__ import annotations

import argparse
import statistics
import time

import httpx

from benchmarks.how_does_it_grow import played
from benchmarks.traffic.servers import Service, storages
from steadyarm.storages import open_storage

DAYS = 30
PAGES = (
    "/experiments/grown",
    "/experiments/grown/charts/estimates.json",
    "/experiments/grown/charts/daily.json",
    "/experiments/grown/charts/allocation.json",
    "/",
)


def measure(backend: str, rows: int, repeats: int) -> None:
    with storages(backend) as (url, _):
        storage = open_storage(url)
        began = time.perf_counter()
        storage.restore("grown", *played(rows, days=DAYS))
        storage.close()
        print(f"{backend}: {rows:,} assignments stored in {time.perf_counter() - began:.0f} s")
        with Service(url) as service, httpx.Client(base_url=_url(service), timeout=60) as client:
            for page in PAGES:
                first = _took(client, page)
                print(f"{page:<45}{1000 * first:>9.1f} ms at first")
            times: dict[str, list[float]] = {page: [] for page in ("/healthz", *PAGES)}
            for i in range(repeats):
                if i % 10 == 0:  # something changes, so that there is something to look at
                    made = client.post(
                        "/v1/experiments/grown/assignments", json={"unit": f"new {i}"}
                    ).json()
                    told = {"assignment": made["id"], "reward": 1.0}
                    client.post("/v1/experiments/grown/rewards", json=told).raise_for_status()
                for page, found in times.items():
                    found.append(_took(client, page))
                time.sleep(0.2)
    floor = statistics.median(times["/healthz"])
    print(f"{'':<45}{'median, ms':>11}{'95 %, ms':>10}{'ratio':>8}")
    for page, found in times.items():
        late = statistics.quantiles(found, n=20)[-1]
        middle = statistics.median(found)
        print(f"{page:<45}{1000 * middle:>11.1f}{1000 * late:>10.1f}{middle / floor:>8.1f}")


def _url(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


def _took(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="assignments that are stored")
    parser.add_argument("--repeats", type=int, default=100, help="requests of each page")
    parser.add_argument(
        "--backend", choices=["sqlite", "postgresql"], default="sqlite", help="default: sqlite"
    )
    args = parser.parse_args()
    measure(args.backend, args.rows, args.repeats)


if __name__ == "__main__":
    main()
