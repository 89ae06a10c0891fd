"""The pages that show experiments and their charts; they read looks, and change nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Access, Viewer
from steadyarm.dashboard.cache import Kept, Looks
from steadyarm.dashboard.forms import SMALL, form_of
from steadyarm.dashboard.guard import Page
from steadyarm.dashboard.responses import (
    attachment,
    experiment_path,
    local_path,
    not_modified,
    render,
    see_other,
)
from steadyarm.dashboard.views import (
    CHARTS,
    MOST_ROWS,
    Section,
    cards,
    leaderboard,
    rewards_are_shares,
    sections_of,
    what_is_tested,
)
from steadyarm.errors import InvalidInputError
from steadyarm.live.scorecard import Scorecard
from steadyarm.plot.chart import Chart
from steadyarm.plot.plotly import spec_of
from steadyarm.reports.experiment import labelled
from steadyarm.service import handlers
from steadyarm.service.handlers import move
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.storages.records import ExperimentState

__all__ = ["ACTIONS", "ACTION_PAGES", "PAGES", "Action", "actions_for", "sign_in_pages"]

# The pages for signing in and out; `access` knows tokens and cookies.


EMPTY = "Enter a token; it begins with sa_."
WRONG = "This token is not known, or was removed. A new one counts after a few seconds."


def sign_in_pages(access: Access) -> tuple[Page, ...]:
    """The pages that begin and end sessions."""

    async def asked(service: Service, request: Request, viewer: Viewer) -> Response:
        path = local_path(request.query_params.get("next", "/"))
        if _is_needless(service, request, viewer):
            return see_other(path)
        return render("sign_in.html", viewer, path=path, error=None)

    async def sign_in(service: Service, request: Request, viewer: Viewer) -> Response:
        form = await form_of(request, SMALL)
        path = local_path(form.text("next", "/"))
        if _is_needless(service, request, viewer):
            return see_other(path)
        token, response = form.text("token").strip(), see_other(path)
        if not token:
            return render("sign_in.html", viewer, 403, path=path, error=EMPTY)
        try:
            found = service.guard.find(token, request.scope)
            await access.sign_in(response, request.scope, found)
        except (RefusedError, InvalidInputError) as error:
            if isinstance(error, RefusedError) and error.kind != "unauthorized":
                raise
            return render("sign_in.html", viewer, 403, path=path, error=WRONG)
        request.scope["token"] = found.name  # for the access log
        return response

    async def sign_out(service: Service, request: Request, viewer: Viewer) -> Response:
        response = see_other("/sign-in")
        await access.sign_out(response, request.scope, access.session(request.scope))
        return response

    return (
        Page("GET", "/sign-in", asked, None),
        Page("POST", "/sign-in", sign_in, None),
        Page("POST", "/sign-out", sign_out, None),
    )


def _is_needless(service: Service, request: Request, viewer: Viewer) -> bool:
    if service.guard.open:
        service.guard.check_direct(request.scope)
        return True
    service.guard.check_any_left()
    return viewer.signed_in


# Starting, pausing, stopping: each is asked about once more, then done by `service.managing`.


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
    Action("start", "Start", "It begins to hand out variants.", ("draft",)),
    Action(
        "pause",
        "Pause",
        "It hands out nothing until it is resumed; rewards still count.",
        ("running",),
    ),
    Action("resume", "Resume", "It hands out variants again.", ("paused",)),
    Action(
        "stop",
        "Stop",
        "It hands out nothing any more and cannot be resumed. Rewards of what was handed out "
        "still count.",
        ("running", "paused"),
        final=True,
    ),
    Action(
        "archive",
        "Archive",
        "Its books are closed: neither variants nor rewards any more. What was found stays.",
        ("draft", "stopped"),
        final=True,
    ),
)


def actions_for(state: ExperimentState) -> tuple[Action, ...]:
    """What can be done in a state.

    Examples
    --------
    >>> [action.name for action in actions_for("paused")]
    ['resume', 'stop']
    """
    return tuple(action for action in ACTIONS if state in action.when)


def _pages(action: Action) -> tuple[Page, Page]:
    path = f"/experiments/{{name}}/{action.name}"

    async def confirm(service: Service, request: Request, viewer: Viewer) -> Response:
        name = (await service.experiment(request)).name
        back = experiment_path(name)
        return render("confirm.html", viewer, action=action, name=name, back=back)

    async def act(service: Service, request: Request, viewer: Viewer) -> Response:
        experiment = await move(
            service, request.path_params["name"], action.name, viewer.name or ""
        )
        return see_other(experiment_path(experiment.name))

    return Page("GET", path, confirm, "admin"), Page("POST", path, act, "admin")


ACTION_PAGES: tuple[Page, ...] = tuple(page for action in ACTIONS for page in _pages(action))


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
    card = kept.card
    rows = leaderboard(card, None if everything else MOST_ROWS)
    return render(
        "experiment.html",
        viewer,
        card=card,
        path=experiment_path(card.name),
        rows=rows,
        more=len(card.names) - len(rows),
        everything=everything,
        origin=origin,
        shares=rewards_are_shares(card),
        tested=kept.once("tested", what_is_tested),
        drift_verdict=kept.once("drift", _drift_verdict),
        sections=kept.once("sections", sections_of),
        actions=actions_for(card.status.state) if viewer.may("admin") else (),
    )


def _drift_verdict(card: Scorecard) -> str:
    short = labelled(card).drift
    return "" if short is None else short.verdict


async def chart_page(service: Service, request: Request, viewer: Viewer) -> Response:
    """One chart with its numbers as a table."""
    kept, section, chart = await _chart(service, request)
    card = kept.card
    return render(
        "chart.html",
        viewer,
        card=card,
        path=experiment_path(card.name),
        section=section,
        chart=chart,
        rows=chart.table.rows[:MOST_LINES],
    )


async def chart_json(service: Service, request: Request, viewer: Viewer) -> Response:
    """One chart as Plotly draws it."""
    kept, section, chart = await _chart(service, request)
    dark = request.query_params.get("dark") == "1"
    columns = 2 if request.query_params.get("wide") == "1" else 1

    def drawn(card: Scorecard) -> tuple[str, str]:
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
    return attachment(text, "text/csv", kept.card.name, chart.name, "csv")


async def log_csv(service: Service, request: Request, viewer: Viewer) -> Response:
    """All assignments with their rewards, as a file."""
    return await handlers.export(service, request)


async def report(service: Service, request: Request, viewer: Viewer) -> Response:
    """The report as one file; of long tests without the checks that read the whole log.

    One is made at a time: drawing takes seconds, and whoever waits takes no thread.
    """
    from steadyarm.reports import experiment_report  # matplotlib takes a second to come
    from steadyarm.reports.render import page

    found = await service.experiment(request)
    kept = await looks_of(request, service).at(found.name)
    short = kept.card.status.total_assigned <= MOST_CHECKED
    state = request.app.state
    if not hasattr(state, "reports"):
        state.reports = asyncio.Semaphore(1)
    async with state.reports:
        text = await service.read(
            lambda: page(experiment_report(found, kept.card, replay=short, fingerprint=short))
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
            f"Look at {experiment_path(kept.card.name)} for those that are there.",
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
