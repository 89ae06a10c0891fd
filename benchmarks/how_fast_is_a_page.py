"""How long does a page of the dashboard take, and how many bytes go over the wire?

A test of eight variants over thirty days, served by `steadyarm serve`. First the service is started
again and again: the first view of the experiment's page, as a browser asks for it once the service
says that it is ready, beside the same view a second time. A view is the page, the files it names
and its charts; a browser keeps files whose address changes with their content, and asks whether
the others have changed. Then, with a few requests of traffic between, every page in turn with
/healthz, which reads nothing. Printed are medians, and their ratio to that of /healthz.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx2

from benchmarks.how_does_it_grow import played
from benchmarks.traffic.servers import Service, storages
from steadyarm.storages import open_storage

DAYS = 30
PAGE = "/experiments/grown"
PAGES = (
    PAGE,
    f"{PAGE}/charts/estimates.json",
    f"{PAGE}/charts/daily.json",
    f"{PAGE}/charts/allocation.json",
    "/",
)
KINDS = {  # of what a page names, by where
    "files": re.compile(r'(?:src|href)="(/static/[^"]+)"'),
    "charts": re.compile(r'data-chart="([^"]+)"'),
    "library": re.compile(r'data-plotly="([^"]+)"'),
}


@dataclass
class Browser:
    """What a browser keeps from one view of a page to the next.

    Attributes
    ----------
    kept : files that stay as they are
    tags : of what has to be asked for again, by address
    """

    client: httpx2.Client
    kept: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    page: str = ""

    def view(self, address: str) -> tuple[dict[str, float], Counter[str]]:
        """Seconds until the page, and until all of it but the library; bytes by kind."""
        began, sent = time.perf_counter(), Counter[str]()
        text = self._get(address, "page", sent)
        seconds = {"page": time.perf_counter() - began}
        self.page = text or self.page
        for kind, pattern in KINDS.items():
            for found in dict.fromkeys(pattern.findall(self.page)):
                self._get(f"{found}?dark=0&wide=0" if kind == "charts" else found, kind, sent)
            if kind == "charts":
                seconds["whole"] = time.perf_counter() - began
        return seconds, sent

    def _get(self, address: str, kind: str, sent: Counter[str]) -> str:
        if address in self.kept:
            return ""
        tag = self.tags.get(address)
        response = self.client.get(address, headers={"If-None-Match": tag} if tag else {})
        assert response.status_code in (200, 304), response.text
        heads = sum(len(name) + len(value) + 4 for name, value in response.headers.raw)
        sent[kind] += heads + response.num_bytes_downloaded
        if "immutable" in response.headers.get("cache-control", ""):
            self.kept.add(address)
        elif "etag" in response.headers:
            self.tags[address] = response.headers["etag"]
        return response.text


def first_views(url: str, restarts: int) -> None:
    """Print how long the first view takes after a restart, and what each view sends."""
    firsts, seconds, floors = [], [], []
    for _ in range(restarts):
        with Service(url, warm=True) as service, _client(service) as client:
            floors.append(_took(client, "/healthz"))
            browser = Browser(client)
            first, sent = browser.view(PAGE)
            second, again = browser.view(PAGE)
            firsts.append(first)
            seconds.append(second)
        with Service(url) as service, _client(service) as client:  # ready before it is warm
            floors.append(_took(client, "/healthz"))
            cold = Browser(client).view(PAGE)[0]
            firsts[-1] |= {"cold": cold["page"]}
    with Service(url) as service, _client(service) as client:
        client.headers["accept-encoding"] = "identity"
        plain = Browser(client).view(PAGE)[1]
    print(f"{'after a restart':<45}{'median, ms':>11}{'most, ms':>10}")
    for what, found in (
        ("/healthz", floors),
        ("the page, not warmed up", [one["cold"] for one in firsts]),
        ("the page, as soon as the service is ready", [one["page"] for one in firsts]),
        ("with its files and charts", [one["whole"] for one in firsts]),
        ("the page again", [one["page"] for one in seconds]),
        ("with its files and charts", [one["whole"] for one in seconds]),
    ):
        print(f"{what:<45}{1000 * statistics.median(found):>11.1f}{1000 * max(found):>10.1f}")
    print(f"{'kB over the wire':<45}{'packed':>11}{'plain':>10}{'again':>8}")
    for kind in ("page", *KINDS):
        sizes = (sent[kind] / 1000, plain[kind] / 1000, again[kind] / 1000)
        print(f"{kind:<45}{sizes[0]:>11.1f}{sizes[1]:>10.1f}{sizes[2]:>8.1f}")


def many_views(url: str, repeats: int) -> None:
    """Print how long each page takes in a service that runs, while things change."""
    times: dict[str, list[float]] = {page: [] for page in ("/healthz", *PAGES)}
    with Service(url) as service, _client(service) as client:
        for page in PAGES:
            client.get(page).raise_for_status()
        for i in range(repeats):
            if i % 10 == 0:  # something changes, so that there is something new to show
                body = {"unit": f"new {i}"}
                made = client.post(f"/v1{PAGE}/assignments", json=body).json()
                reward = {"assignment": made["id"], "reward": 1.0}
                client.post(f"/v1{PAGE}/rewards", json=reward).raise_for_status()
            for page, found in times.items():
                found.append(_took(client, page))
            time.sleep(0.2)
    floor = statistics.median(times["/healthz"])
    print(f"{'in a service that runs':<45}{'median, ms':>11}{'95 %, ms':>10}{'ratio':>8}")
    for page, found in times.items():
        late = statistics.quantiles(found, n=20)[-1]
        middle = statistics.median(found)
        print(f"{page:<45}{1000 * middle:>11.1f}{1000 * late:>10.1f}{middle / floor:>8.1f}")


def _client(service: Service) -> httpx2.Client:
    return httpx2.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60)


def _took(client: httpx2.Client, path: str) -> float:
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="assignments that are stored")
    parser.add_argument("--restarts", type=int, default=5, help="first views")
    parser.add_argument("--repeats", type=int, default=100, help="requests of each page")
    parser.add_argument(
        "--backend", choices=["sqlite", "postgresql"], default="sqlite", help="default: sqlite"
    )
    args = parser.parse_args()
    with storages(args.backend) as (url, _):
        storage = open_storage(url)
        began = time.perf_counter()
        storage.restore("grown", *played(args.rows, days=DAYS))
        storage.close()
        took = time.perf_counter() - began
        print(f"{args.backend}: {args.rows:,} assignments stored in {took:.0f} s")
        first_views(url, args.restarts)
        many_views(url, args.repeats)


if __name__ == "__main__":
    main()
