"""The pages that show experiments and their charts. They read scorecards and change nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.responses import (
    attachment,
    experiment_path,
    fill_in,
    render,
    see_other,
    validated,
)
from steadyarm.dashboard.setup import FEW_REWARDS, read_setup
from steadyarm.dashboard.views import TITLES, chart_of, experiment_values
from steadyarm.errors import InvalidInputError
from steadyarm.live.experiment import Experiment
from steadyarm.live.metrics import microseconds, seconds_of
from steadyarm.live.scorecard import Scorecard, compute_scorecard
from steadyarm.live.settings import variants_in
from steadyarm.plot.spec import Spec, csv_of, for_page, table_of
from steadyarm.service import handlers
from steadyarm.service.auth import check_token_name, new_token
from steadyarm.service.problems import RefusedError
from steadyarm.service.routes import document
from steadyarm.service.service import Service
from steadyarm.storages.records import ExperimentState, Summary
from steadyarm.storages.service import Scope
from steadyarm.wire.requests import ExportQuery

log = logging.getLogger("steadyarm.dashboard")

TTL = 10.0  # seconds for which a scorecard is shown
COST = 10.0  # times as long as it took to compute is it shown at least
MOST = 500  # scorecards in memory
MOST_LINES = 2000  # of a chart's table on a page; the file has all of them
MOST_CHECKED = 300_000  # assignments up to which a report on a page has the checks of the log
ROWS = 100  # experiments on a page of the overview
TOKEN_SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
STATES = ("running", "paused", "draft", "stopped", "archived")

# Scorecards


@dataclass(eq=False)
class Entry:
    """A scorecard that is computed, or was.

    Attributes
    ----------
    standing : what operators change: an older scorecard is not shown once they have
    card : the newest there is; the overview shows it while another one is computed
    expires : a time of the monotonic clock
    """

    standing: Any
    card: Scorecard | None
    failed: bool = False
    expires: float = inf
    task: asyncio.Task[Scorecard] | None = None


class Scorecards:
    """The latest scorecard of each experiment that is watched, computed once for all viewers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._entries: dict[str, Entry] = {}  # the newest come last
        self._renewing: asyncio.Task[None] | None = None

    async def get(self, name: str) -> Scorecard:
        """Return the scorecard of an experiment: of its present state, with recent numbers."""
        experiment = (await self._service.find(name)).experiment
        standing = await self._service.run_short(_standing, experiment)
        entry = self._entries.get(name)
        if entry is None or entry.standing != standing or time.monotonic() >= entry.expires:
            entry = Entry(standing, None if entry is None else entry.card)
            entry.task = asyncio.create_task(self._compute(experiment, entry))
            self._entries.pop(name, None)
            self._entries[name] = entry
            if len(self._entries) > MOST:
                del self._entries[next(iter(self._entries))]
        assert entry.task is not None
        return await asyncio.shield(entry.task)

    def peek(self, name: str) -> tuple[Scorecard | None, bool]:
        """Return the newest scorecard that there is, and whether computing one has failed."""
        entry = self._entries.get(name)
        return (None, False) if entry is None else (entry.card, entry.failed)

    def renew(self, names: Sequence[str]) -> None:
        """Compute scorecards that are missing or old, one after the other, in the background."""

        async def work() -> None:
            for name in names[:MOST]:
                with suppress(Exception):  # it is logged
                    await self.get(name)

        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(work())

    async def _compute(self, experiment: Experiment, entry: Entry) -> Scorecard:
        began = time.monotonic()
        try:
            entry.card = await self._service.read(compute_scorecard, experiment)
            return entry.card
        except Exception as error:
            entry.failed = True
            log.error("the scorecard of %r failed: %s", experiment.name, error)
            raise
        finally:
            now = time.monotonic()
            entry.expires = now + max(TTL, COST * (now - began))


def _standing(experiment: Experiment) -> Any:
    (summary,) = experiment.storage.summaries(experiment.key)
    return summary.key, summary.state, summary.outside


# Actions: what can be done with an experiment. Each is confirmed on a page of its own.


@dataclass(frozen=True)
class Action:
    """An action on an experiment.

    Attributes
    ----------
    name : the last part of its address, as in the service
    effect : what happens then
    when : states in which it can be done
    final : whether there is no way back
    reason : whether it needs one, for the audit log
    """

    name: str
    effect: str
    when: tuple[ExperimentState, ...]
    final: bool = False
    reason: bool = False


ACTIONS = (
    Action("start", "It begins to assign variants.", ("draft",)),
    Action(
        "pause",
        "It assigns no variants until you resume it. Rewards still count.",
        ("running",),
    ),
    Action("resume", "It assigns variants again.", ("paused",)),
    Action(
        "stop",
        "It stops assigning variants. Rewards of earlier visits still count.",
        ("running", "paused"),
        final=True,
    ),
    Action("reopen", "It assigns variants again, as if not stopped.", ("stopped",), reason=True),
    Action(
        "archive",
        "It no longer accepts visits or rewards. Its results stay.",
        ("draft", "stopped"),
        final=True,
    ),
    Action("delete", "The draft is gone for good, and its name is free again.", ("draft",), True),
)


def may_roll_out(card: Scorecard) -> bool:
    """Whether the page offers to roll a variant out: it is decided, or the test is over."""
    over = card.ended or card.status.outside is not None
    decided = card.decision.word in ("ship", "keep")
    return card.status.state != "draft" and (over or decided)


def actions_of(card: Scorecard) -> list[Action]:
    """What can be done now; where all visits are assigned there is nothing to pause or resume."""
    possible = [action for action in ACTIONS if card.status.state in action.when]
    spent = card.status.total_assigned >= card.status.budget
    useless = {"pause", "resume"} if card.ended else set()
    if spent or card.status.roll_out is not None:
        useless.add("reopen")
    return [action for action in possible if action.name not in useless]


# The overview


@dataclass(frozen=True)
class Row:
    """One experiment of the overview.

    Attributes
    ----------
    card : its scorecard; None if none was computed so far
    failed : whether computing one failed
    """

    summary: Summary
    card: Scorecard | None
    failed: bool

    @property
    def variants(self) -> int:
        """The number of variants."""
        return variants_in(self.summary.config)

    @property
    def over(self) -> bool:
        """Whether nothing more will be assigned."""
        config: Any = self.summary.config
        spent = self.summary.assigned >= config["budget"]
        stopped = self.summary.state in ("stopped", "archived")
        return stopped or spent or (self.card is not None and self.card.ended)

    @property
    def searched(self) -> str:
        """The text in which searches look, in small letters."""
        about: Mapping[str, Any] = self.summary.config.get("about") or {}
        tags = "\n".join(about.get("tags", ()))
        return f"{self.summary.name}\n{self.leader or ''}\n{tags}".casefold()

    @property
    def leader(self) -> str | None:
        """The recommended variant; None if none is known yet."""
        if self.card is None or self.card.verdict is None:
            return None
        return self.card.labels[self.card.verdict.row]


def overview_rows(found: Iterable[tuple[Summary, Scorecard | None, bool]]) -> list[Row]:
    """The rows of the overview: running experiments first, then the newest."""

    def place(row: Row) -> tuple[bool, int, int]:
        return row.over, STATES.index(row.summary.state), -row.summary.created

    return sorted((Row(*parts) for parts in found), key=place)


async def overview(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show experiments, some at a time."""
    query, state = request.query_params.get("q", ""), request.query_params.get("state", "")
    cards: Scorecards = request.app.state.scorecards
    summaries = await service.read(service.storage.summaries)
    rows = overview_rows((summary, *cards.peek(summary.name)) for summary in summaries)
    matching = [
        row for row in rows if query.casefold() in row.searched and state in ("", row.summary.state)
    ]
    number = request.query_params.get("page", "1")
    page, pages = int(number) if number.isdecimal() else 1, max(-(-len(matching) // ROWS), 1)
    page = min(max(page, 1), pages)
    shown = matching[ROWS * (page - 1) : ROWS * page]
    cards.renew([row.summary.name for row in shown])
    values = {"query": query, "state": state, "states": STATES, "rows": shown, "total": len(rows)}
    values |= {"page": page, "pages": pages}
    return await _render(service, request, viewer, "overview.html", values)


# Tokens


async def show_tokens(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show who may use the service, but no token."""
    return await _tokens_page(service, viewer)


async def change_tokens(service: Service, request: Request, viewer: Viewer) -> Response:
    """Create a token and show it, once; or remove one."""
    typed = {key: values[-1].strip() for key, values in request.state.form.items()}
    if "remove" in typed:
        return await _remove_token(service, viewer, typed["remove"])
    scope, expires = typed.get("scope"), typed.get("expires")
    try:
        if scope not in TOKEN_SCOPES or (service.guard.open and scope != "admin"):
            raise InvalidInputError.of("scope", scope, "admin for the first token")
        if service.settings.clock_from is not None:
            raise InvalidInputError("A rehearsal has no tokens: its clock is not the real one.")
        check_token_name(typed.get("name", ""), "name")
        lasts = None if not expires else seconds_of(expires, "expires")
        token, record = new_token(typed["name"], scope, lasts)
        await service.write(partial(service.storage.tokens.add, record, by=viewer.name or ""))
    except InvalidInputError as error:
        return await _tokens_page(service, viewer, typed, error=str(error))
    await service.read(service.guard.reload)
    return await _tokens_page(service, viewer, token=token)


async def _remove_token(service: Service, viewer: Viewer, name: str) -> Response:
    """Remove a token, and end the sessions of those who signed in with it."""
    remove, now = service.storage.tokens.remove, microseconds(time.time())
    try:
        await service.write(partial(remove, name, now=now, by=viewer.name or ""))
    except InvalidInputError as error:
        return await _tokens_page(service, viewer, error=str(error))
    await service.read(service.guard.reload)
    return see_other(viewer.root, "/tokens")


async def _tokens_page(
    service: Service,
    viewer: Viewer,
    typed: Mapping[str, str] | None = None,
    token: str = "",
    error: str = "",
) -> Response:
    values: dict[str, Any] = {
        "tokens": await service.run_short(service.storage.tokens.all),
        "now": microseconds(time.time()),
        "first": service.guard.open,
        "typed": typed or {},
        "token": token,
        "error": error,
    }
    return render("tokens.html", viewer, 422 if error else 200, **values)


# One experiment


async def experiment(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show one experiment."""
    card = await _scorecard(request)
    everything = request.query_params.get("all") == "1"
    origin = _origin(service, request)
    values = await service.run_short(experiment_values, card, everything)
    admin, setup = viewer.may("admin"), None
    if card.status.state != "draft" and card.status.total_rewarded < FEW_REWARDS:
        setup = await service.read(read_setup, await service.experiment(request))
    values |= {
        "setup": setup,
        "origin": origin,
        "path": viewer.root + experiment_path(card.name),
        "actions": actions_of(card) if admin else (),
        "may_roll_out": admin and may_roll_out(card),
    }
    return await _render(service, request, viewer, "experiment.html", values)


def _origin(service: Service, request: Request) -> str:
    """The address at which programs reach the service, as the viewer does."""
    scheme = "https" if service.settings.https else request.url.scheme
    return f"{scheme}://{request.url.netloc}{service.settings.root_path}"


# Charts


async def _chart(service: Service, request: Request) -> tuple[Scorecard, Spec]:
    card, name = await _scorecard(request), request.path_params["chart"]
    chart = await service.run_short(chart_of, card, name) if name in TITLES else None
    if chart is None:
        raise RefusedError(
            "not-found",
            "There is no such chart, or it has nothing to show yet.",
            "The page of the experiment links to its charts.",
        )
    return card, chart


async def chart_page(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show the numbers of one chart as a table."""
    card, chart = await _chart(service, request)
    header, rows = table_of(chart)
    values = {
        "card": card,
        "path": viewer.root + experiment_path(card.name),
        "title": TITLES[request.path_params["chart"]],
        "chart": chart,
        "header": header,
        "rows": rows[:MOST_LINES],
        "total": len(rows),
    }
    return await _render(service, request, viewer, "chart.html", values)


async def chart_json(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the specification of one chart."""
    _, chart = await _chart(service, request)
    spec = for_page(chart, request.query_params.get("dark") == "1")
    content = await service.run_short(msgspec.json.encode, spec)
    return validated(request, content, "application/json")


async def chart_csv(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the numbers of one chart as a file."""
    card, chart = await _chart(service, request)
    text = await service.run_short(csv_of, chart)
    return attachment(text, "text/csv", card.name, chart["name"], "csv")


# Files, and the interface for programs


async def log_zip(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with all assignments and their rewards, and the description of the test."""
    return await handlers.export(service, request, ExportQuery(format="zip"))


async def report(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the report as one file; for long tests it does not check the whole log."""
    from steadyarm.reports import experiment_report

    experiment = await service.experiment(request)
    card = await _scorecard(request)
    short = card.status.total_assigned <= MOST_CHECKED
    text = await service.read(experiment_report, experiment, card, short, short)
    return attachment(text, "text/html", experiment.name, "html")


interface = cache(document)


async def docs(service: Service, request: Request, viewer: Viewer) -> Response:
    """Describe the interface for programs."""
    return await _render(service, request, viewer, "docs.html", {"described": interface()})


async def _render(
    service: Service, request: Request, viewer: Viewer, template: str, values: dict[str, Any]
) -> Response:
    """Fill in a page in a thread, beside the requests that come meanwhile."""
    page = await service.run_short(fill_in, template, viewer, values)
    return validated(request, page.encode(), "text/html")


async def _scorecard(request: Request) -> Scorecard:
    cards: Scorecards = request.app.state.scorecards
    return await cards.get(request.path_params["name"])


EXPERIMENT = "/experiments/{name}"
PAGES: tuple[Page, ...] = (
    Page("GET", "/", overview, "read"),
    Page("GET", "/tokens", show_tokens, "admin"),
    Page("POST", "/tokens", change_tokens, "admin"),
    Page("GET", "/docs", docs, None),  # as anybody may read openapi.json
    Page("GET", EXPERIMENT, experiment, "read"),
    Page("GET", EXPERIMENT + "/log.zip", log_zip, "read"),
    Page("GET", EXPERIMENT + "/report.html", report, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}.json", chart_json, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}.csv", chart_csv, "read"),
    Page("GET", EXPERIMENT + "/charts/{chart}", chart_page, "read"),
)
