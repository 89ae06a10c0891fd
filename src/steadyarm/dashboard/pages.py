"""The pages that show experiments and their charts; they read looks, and change nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Viewer
from steadyarm.dashboard.actions import actions_for
from steadyarm.dashboard.charts import CHARTS, Section, sections_of
from steadyarm.dashboard.guarding import Page
from steadyarm.dashboard.keeping import Kept, Looks
from steadyarm.dashboard.rendering import render
from steadyarm.dashboard.responses import attachment, experiment_path, not_modified
from steadyarm.dashboard.views import (
    MOST_ROWS,
    cards,
    leaderboard,
    rewards_are_shares,
    what_is_tested,
)
from steadyarm.looks import Look
from steadyarm.plot.chart import Chart
from steadyarm.plot.plotly import spec_of
from steadyarm.reports.labels import labelled
from steadyarm.service import reading
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service

__all__ = ["PAGES"]

MOST_LINES = 2000  # of a chart's table on a page; the file has all of them
MOST_CHECKED = 300_000  # assignments up to which a report on a page has the checks of the log
STATES = ("running", "paused", "draft", "stopped", "archived")


def looks_of(request: Request, service: Service) -> Looks:
    """The looks that this process keeps."""
    state = request.app.state
    if not hasattr(state, "looks"):
        state.looks = Looks(service)
    looks: Looks = state.looks
    return looks


async def overview(service: Service, request: Request, viewer: Viewer) -> Response:
    """All experiments."""
    asked, state = request.query_params.get("q", ""), request.query_params.get("state", "")
    summaries = await service.read(service.storage.summaries)
    looks = looks_of(request, service)
    rows = cards((one, looks.glance(one), looks.failed(one.name)) for one in summaries)
    shown = [
        card
        for card in rows
        if asked.casefold() in f"{card.name}\n{card.leader or ''}".casefold()
        and state in ("", card.state)
    ]
    return _kept(
        request,
        render(
            "overview.html",
            viewer,
            cards=shown,
            total=len(rows),
            asked=asked,
            state=state,
            states=STATES,
        ),
    )


async def experiment(service: Service, request: Request, viewer: Viewer) -> Response:
    """One experiment."""
    kept = await looks_of(request, service).at(request.path_params["name"])
    everything = request.query_params.get("all") == "1"
    origin = str(request.base_url).rstrip("/")
    page = await service.glance(_experiment, kept, viewer, everything, origin)
    return _kept(request, page)


def _experiment(kept: Kept, viewer: Viewer, everything: bool, origin: str) -> Response:
    look = kept.look
    rows = leaderboard(look, None if everything else MOST_ROWS)
    return render(
        "experiment.html",
        viewer,
        look=look,
        path=experiment_path(look.name),
        rows=rows,
        more=len(look.names) - len(rows),
        everything=everything,
        origin=origin,
        shares=rewards_are_shares(look),
        tested=kept.once("tested", what_is_tested),
        drift_verdict=kept.once("drift", _drift_verdict),
        sections=kept.once("sections", sections_of),
        actions=actions_for(look.status.state) if viewer.may("admin") else (),
    )


def _drift_verdict(look: Look) -> str:
    short = labelled(look).drift
    return "" if short is None else short.verdict


async def chart_page(service: Service, request: Request, viewer: Viewer) -> Response:
    """One chart with its numbers as a table."""
    kept, section, chart = await _chart(service, request)
    look = kept.look
    return render(
        "chart.html",
        viewer,
        look=look,
        path=experiment_path(look.name),
        section=section,
        chart=chart,
        rows=chart.table.rows[:MOST_LINES],
    )


async def chart_json(service: Service, request: Request, viewer: Viewer) -> Response:
    """One chart as Plotly draws it."""
    kept, section, chart = await _chart(service, request)
    dark = request.query_params.get("dark") == "1"
    columns = 2 if request.query_params.get("wide") == "1" else 1

    def drawn(look: Look) -> tuple[str, str]:
        body = json.dumps(spec_of(chart, dark, columns), allow_nan=False)
        return body, _etag(body)

    body, etag = await service.glance(kept.once, (section.name, dark, columns), drawn)
    return not_modified(request, etag) or Response(
        body, media_type="application/json", headers={"ETag": etag}
    )


async def chart_csv(service: Service, request: Request, viewer: Viewer) -> Response:
    """The numbers of one chart as a file."""
    kept, _, chart = await _chart(service, request)
    text = await service.glance(chart.table.csv)
    return attachment(text, "text/csv", kept.look.name, chart.name, "csv")


async def log_csv(service: Service, request: Request, viewer: Viewer) -> Response:
    """All assignments with their rewards, as a file."""
    return await reading.export(service, request)


async def report(service: Service, request: Request, viewer: Viewer) -> Response:
    """The report as one file; of long tests without the checks that read the whole log.

    One is made at a time: drawing takes seconds, and whoever waits takes no thread.
    """
    from steadyarm.reports import experiment_report  # matplotlib takes a second to come
    from steadyarm.reports.html import page

    found = await service.experiment(request)
    kept = await looks_of(request, service).at(found.name)
    short = kept.look.status.handed <= MOST_CHECKED
    state = request.app.state
    if not hasattr(state, "reports"):
        state.reports = asyncio.Semaphore(1)
    async with state.reports:
        text = await service.read(
            lambda: page(experiment_report(found, kept.look, replay=short, fingerprint=short))
        )
    return attachment(text, "text/html", found.name, "html")


async def _chart(service: Service, request: Request) -> tuple[Kept, Section, Chart]:
    kept = await looks_of(request, service).at(request.path_params["name"])
    section = CHARTS.get(request.path_params["chart"])
    chart = None
    if section is not None:
        chart = await service.glance(kept.once, (section.name, "chart"), section.chart)
    if section is None or chart is None:
        raise RefusedError(
            "not-found",
            "There is no such chart, or nothing to show in it yet.",
            f"Look at {experiment_path(kept.look.name)} for those that are there.",
        )
    return kept, section, chart


def _kept(request: Request, page: Response) -> Response:
    """The page, unless the browser has it already."""
    etag = _etag(bytes(page.body).decode())
    page.headers["ETag"] = etag
    return not_modified(request, etag) or page


def _etag(text: str) -> str:
    return f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


EXPERIMENT = "/experiments/{name}"
PAGES: tuple[Page, ...] = (
    Page("GET", "/", overview, "read"),
    Page("GET", EXPERIMENT, experiment, "read"),
    Page("GET", EXPERIMENT + "/log.csv", log_csv, "read"),
    Page("GET", EXPERIMENT + "/report.html", report, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}.json", chart_json, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}.csv", chart_csv, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}", chart_page, "read"),
)
