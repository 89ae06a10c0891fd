"""The pages that show experiments and their charts; they read scorecards and change nothing.

A process keeps the last scorecard of each experiment that somebody watches, so that pages answer at
once however many people watch, and makes a new one when something has changed and somebody asks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.responses import Content, attachment, experiment_path, page
from steadyarm.dashboard.views import (
    CHARTS,
    MOST_ROWS,
    Section,
    leaderboard,
    overview_rows,
    sections_of,
    what_is_tested,
)
from steadyarm.errors import SteadyArmError
from steadyarm.live.after_test import outside_texts
from steadyarm.live.experiment import Experiment
from steadyarm.live.scorecard import Scorecard
from steadyarm.live.scoring import scorecard_of
from steadyarm.live.tables import adjusted_text, metric_rows
from steadyarm.plot.sources import has_rates
from steadyarm.plot.spec import Spec, csv_of, for_page, table_of
from steadyarm.plot.standings import intervals_mean
from steadyarm.service import handlers
from steadyarm.service.problems import RefusedError
from steadyarm.service.routes import document
from steadyarm.service.service import Service
from steadyarm.storages.records import ExperimentState
from steadyarm.wire.requests import ExportQuery

log = logging.getLogger("steadyarm.dashboard")

TTL = 10.0  # seconds for which a scorecard serves while visits and rewards come
OLD = 300.0  # seconds after which time alone makes a new one: paces and windows end
MOST = 500  # scorecards in memory
MOST_DERIVED = 100  # charts and pages made from one of them; each viewer has a page
MOST_LINES = 2000  # of a chart's table on a page; the file has all of them
MOST_CHECKED = 300_000  # assignments up to which a report on a page has the checks of the log
STATES = ("running", "paused", "draft", "stopped", "archived")

T = TypeVar("T")
Mark = tuple[Any, ...]  # see `Summary.mark`; then events that no experiment measures


@dataclass(frozen=True, eq=False)
class Kept:
    """A scorecard, and what was made from it.

    Attributes
    ----------
    mark : of the experiment when the scorecard was made
    made : a time of the monotonic clock
    derived : charts, texts and pages that were made from the scorecard, by key
    """

    card: Scorecard
    mark: Mark
    made: float
    derived: dict[object, Any] = field(default_factory=dict)

    def once(self, key: object, make: Callable[[Scorecard], T]) -> T:
        """Return what `make` makes of the scorecard, made once."""
        if key not in self.derived:
            if len(self.derived) >= MOST_DERIVED:
                self.derived.clear()
            self.derived[key] = make(self.card)
        made: T = self.derived[key]
        return made


class Scorecards:
    """The latest scorecard of each experiment that somebody watches, made once for all viewers.

    Attributes
    ----------
    reports : lets one report be made at a time: drawing takes seconds, and whoever waits for it
        must not take a thread
    """

    def __init__(self, service: Service) -> None:
        self.reports = asyncio.Semaphore(1)
        self._service = service
        self._kept: dict[str, Kept] = {}  # those made last come last
        self._running: dict[str, asyncio.Task[Kept]] = {}
        self._failed: set[str] = set()  # names; tried again when somebody opens their page
        self._renewing: asyncio.Task[None] | None = None

    async def get(self, name: str) -> Kept:
        """Return the scorecard of an experiment.

        Its state is the present one; its numbers are at most TTL seconds older than the request.
        """
        experiment = (await self._service.find(name)).experiment
        while True:
            mark = await self._service.run_short(_mark, experiment)
            kept = self._kept.get(name)
            if kept is not None and self._serves(kept, mark):
                return kept
            if name not in self._running:
                self._running[name] = asyncio.create_task(self._make(experiment))
            kept = await asyncio.shield(self._running[name])
            if kept.mark[0] == mark[0]:  # otherwise it was begun before somebody stopped the test
                return kept

    def peek(self, name: str) -> tuple[Scorecard | None, bool]:
        """Return the scorecard that is there, whatever its age, and whether making one failed."""
        kept = self._kept.get(name)
        return None if kept is None else kept.card, name in self._failed

    def renew(self, names: Sequence[str]) -> None:
        """Make scorecards that are missing or old, one after the other, in the background."""

        async def work() -> None:
            for name in names[:MOST]:
                if name not in self._failed:
                    with suppress(Exception):  # it is logged
                        await self.get(name)

        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(work())

    def _serves(self, kept: Kept, mark: Mark) -> bool:
        """Whether a scorecard may be shown for an experiment that has this mark now."""
        if kept.mark[0] != mark[0]:
            return False
        return time.monotonic() - kept.made < (OLD if kept.mark == mark else TTL)

    async def _make(self, experiment: Experiment) -> Kept:
        name = experiment.name
        try:
            kept = await self._service.read(_make_scorecard, experiment)
        except Exception as error:
            unforeseen = None if isinstance(error, SteadyArmError) else error
            self._failed.add(name)
            log.error("the scorecard of %r failed: %s", name, error, exc_info=unforeseen)
            raise
        finally:
            del self._running[name]
        self._failed.discard(name)
        self._kept.pop(name, None)
        self._kept[name] = kept
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]
        return kept


def _mark(experiment: Experiment) -> Mark:
    (summary,) = experiment.storage.summaries(experiment.key)
    return *summary.mark, experiment.storage.unmatched()


def _make_scorecard(experiment: Experiment) -> Kept:
    mark = _mark(experiment)
    return Kept(scorecard_of(experiment), mark, time.monotonic())


# What can be done with an experiment, which its page offers; each is confirmed, then done.


@dataclass(frozen=True)
class Action:
    """What can be done with an experiment.

    Attributes
    ----------
    name : the last part of its address, as in the service
    verb : on the button
    effect : what happens then
    when : states in which it can be done
    final : whether there is no way back
    """

    name: str
    verb: str
    effect: str
    when: tuple[ExperimentState, ...]
    final: bool = False


ACTIONS = (
    Action("start", "Start", "It begins to assign variants.", ("draft",)),
    Action(
        "pause",
        "Pause",
        "It assigns nothing until it is resumed; rewards still count.",
        ("running",),
    ),
    Action("resume", "Resume", "It assigns variants again.", ("paused",)),
    Action(
        "stop",
        "Stop",
        "It assigns nothing any more and cannot be resumed. Rewards of earlier visits still count.",
        ("running", "paused"),
        final=True,
    ),
    Action(
        "archive",
        "Archive",
        "It accepts neither visits nor rewards any more. Its results stay.",
        ("draft", "stopped"),
        final=True,
    ),
)


def may_roll_out(card: Scorecard) -> bool:
    """Whether the page offers to roll a variant out: it is decided, or the test is over."""
    state = card.status.state
    over = card.ended or state in ("stopped", "archived") or card.status.outside is not None
    return state != "draft" and (over or card.decision.word in ("ship", "keep"))


def actions_of(card: Scorecard) -> list[Action]:
    """What can be done now; where all visits are assigned there is nothing to pause or resume."""
    possible = (action for action in ACTIONS if card.status.state in action.when)
    return [one for one in possible if not (card.ended and one.name in ("pause", "resume"))]


# The pages


async def overview(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show all experiments."""
    asked, state = request.query_params.get("q", ""), request.query_params.get("state", "")
    cards: Scorecards = request.app.state.scorecards
    summaries = await service.read(service.storage.summaries)
    rows = overview_rows((summary, *cards.peek(summary.name)) for summary in summaries)
    cards.renew([row.summary.name for row in rows])
    shown = [
        row
        for row in rows
        if asked.casefold() in f"{row.summary.name}\n{row.leader or ''}".casefold()
        and state in ("", row.summary.state)
    ]

    def filled() -> Content:
        values = {"asked": asked, "state": state, "states": STATES}
        return page("overview.html", viewer, rows=shown, total=len(rows), **values)

    return await _made(service, request, filled)


async def experiment(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show one experiment."""
    kept = await _scorecard(request)
    everything = request.query_params.get("all") == "1"
    origin = _origin(service, request)

    def filled(card: Scorecard) -> Content:
        return _experiment(kept, viewer, everything, origin)

    return await _made(service, request, kept.once, (viewer, everything, origin), filled)


def _experiment(kept: Kept, viewer: Viewer, everything: bool, origin: str) -> Content:
    card = kept.card
    rows = leaderboard(card, None if everything else MOST_ROWS)
    measured = [] if card.verdict is None else metric_rows(card.verdict)
    return page(
        "experiment.html",
        viewer,
        card=card,
        path=viewer.root + experiment_path(card.name),
        rows=rows,
        guardrails=[row for row in measured if row.role == "guardrail"],
        metrics=[row for row in measured if row.role == "secondary"],
        more=len(card.names) - len(rows),
        everything=everything,
        origin=origin,
        rates=has_rates(card),
        unit=f" {card.settings.primary.unit}".rstrip(),
        meaning="" if card.verdict is None else intervals_mean(card.verdict),
        adjusted=_adjusted(card),
        tested=kept.once("tested", what_is_tested),
        sections=kept.once("sections", sections_of),
        actions=actions_of(card) if viewer.may("admin") else (),
        rolled=outside_texts(card.status.outside),
        may_roll_out=viewer.may("admin") and may_roll_out(card),
    )


def _origin(service: Service, request: Request) -> str:
    """The address at which programs reach the service, as the viewer does."""
    scheme = "https" if service.settings.https else request.url.scheme
    return f"{scheme}://{request.url.netloc}{service.settings.root_path}"


async def docs(service: Service, request: Request, viewer: Viewer) -> Response:
    """Describe the interface for programs."""
    return await _made(service, request, _docs, service.settings.root_path)


@cache
def _docs(root: str) -> Content:
    """The same page for everybody: whoever asks for it again and again takes no time."""
    described, routes = document(), dict[str, list[tuple[str, str, str]]]()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            row = method.upper(), path, operation["summary"]
            routes.setdefault(operation["tags"][0], []).append(row)
    viewer = Viewer(None, None, "", root)
    return page("docs.html", viewer, tags=described["tags"], routes=routes)


def _adjusted(card: Scorecard) -> str:
    return "" if card.verdict is None else adjusted_text(card.verdict, card.settings.covariates)


async def chart_page(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show one chart with its numbers as a table."""
    kept, section, chart = await _chart(service, request)

    def filled() -> Content:
        path = viewer.root + experiment_path(kept.card.name)
        header, rows = table_of(chart)
        values = {"card": kept.card, "path": path, "section": section, "chart": chart}
        counts = {"header": header, "rows": rows[:MOST_LINES], "total": len(rows)}
        return page("chart.html", viewer, **values, **counts)

    return await _made(service, request, filled)


async def chart_json(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the specification of one chart."""
    kept, section, chart = await _chart(service, request)
    dark = request.query_params.get("dark") == "1"

    def drawn(card: Scorecard) -> Content:
        return Content.of(msgspec.json.encode(for_page(chart, dark)), "application/json")

    return await _made(service, request, kept.once, (section.name, dark), drawn)


async def chart_csv(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the numbers of one chart as a file."""
    kept, _, chart = await _chart(service, request)
    text = await service.run_short(csv_of, chart)
    return attachment(text, "text/csv", kept.card.name, chart["name"], "csv")


async def log_zip(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with all assignments and their rewards, and the description of the test."""
    return await handlers.export(service, request, ExportQuery(format="zip"))


async def report(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the report as one file; for long tests it does not check the whole log."""
    from steadyarm.reports import experiment_report

    found = await service.experiment(request)
    card = (await _scorecard(request)).card
    short = card.status.total_assigned <= MOST_CHECKED
    async with request.app.state.scorecards.reports:
        text = await service.read(
            lambda: experiment_report(found, card, replay=short, fingerprint=short)
        )
    return attachment(text, "text/html", found.name, "html")


async def _made(
    service: Service, request: Request, make: Callable[..., Content], *given: Any
) -> Response:
    """Fill in a page, or draw a chart, beside the requests that come meanwhile."""
    return (await service.run_short(make, *given)).response(request.scope)


async def _scorecard(request: Request) -> Kept:
    cards: Scorecards = request.app.state.scorecards
    return await cards.get(request.path_params["name"])


async def _chart(service: Service, request: Request) -> tuple[Kept, Section, Spec]:
    kept = await _scorecard(request)
    section = CHARTS.get(request.path_params["chart"])
    chart = None
    if section is not None:
        chart = await service.run_short(kept.once, (section.name, "chart"), section.chart)
    if section is None or chart is None:
        raise RefusedError(
            "not-found",
            "There is no such chart, or nothing to show in it yet.",
            f"{service.settings.root_path}{experiment_path(kept.card.name)} shows the charts that "
            "there are.",
        )
    return kept, section, chart


EXPERIMENT = "/experiments/{name}"
PAGES: tuple[Page, ...] = (
    Page("GET", "/", overview, "read"),
    Page("GET", "/docs", docs, None, anonymous=True),  # as anybody may read openapi.json
    Page("GET", EXPERIMENT, experiment, "read"),
    Page("GET", EXPERIMENT + "/log.zip", log_zip, "read"),
    Page("GET", EXPERIMENT + "/report.html", report, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}.json", chart_json, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}.csv", chart_csv, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}", chart_page, "read"),
)
