"""The application with service and dashboard; the pages for signing in, actions and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Scope

from steadyarm.dashboard import forms, pages, setup
from steadyarm.dashboard.access import Access, GuardedPage, Page, Viewer, problem_page
from steadyarm.dashboard.pages import ACTIONS, EXPERIMENT, Action, Scorecards
from steadyarm.dashboard.responses import (
    STATIC,
    Files,
    experiment_path,
    local_path,
    render,
    see_other,
    with_headers,
)
from steadyarm.errors import InvalidInputError, StorageError, WrongStateError
from steadyarm.live.after_test import outside_texts
from steadyarm.service import app as service_app
from steadyarm.service.auth import header_of
from steadyarm.service.handlers import move, roll_out_variant
from steadyarm.service.problems import RefusedError, problem_response
from steadyarm.service.service import Service
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages.storage import Storage
from steadyarm.wire.requests import NewRollOut

MOST_NAMES = 500  # that a list offers
EMPTY = "Enter a token. It begins with sa_."
SHOWN = {  # beside the form
    "unauthorized": "This token is unknown, was removed or has expired. A new one works "
    "after a few seconds.",
    "forbidden": "This is a publishable key for pages. Enter a token that begins with sa_.",
}


def create_app(storage: Storage, settings: ServiceSettings | None = None) -> Starlette:
    """Make the service with the dashboard on a storage, which it closes in the end."""
    app = service_app.create_app(storage, settings, _refused)
    service: Service = app.state.service
    access = app.state.access = Access(service)
    app.state.scorecards = Scorecards(service)
    found = (  # the first that fits is taken
        Page("GET", "/sign-in", sign_in_form, None),
        Page("POST", "/sign-in", sign_in, None),
        Page("POST", "/sign-out", sign_out, None),
        *pages.PAGES,
        *forms.PAGES,
        *setup.PAGES,
        *(page for action in ACTIONS for page in action_pages(action)),
        Page("GET", f"{EXPERIMENT}/roll-out", roll_out_form, "admin"),
        Page("POST", f"{EXPERIMENT}/roll-out", roll_out, "admin"),
    )
    app.router.routes.append(Mount("/static", GZipMiddleware(Files(directory=STATIC))))
    app.router.routes.extend(GuardedPage(access, page) for page in found)
    return app


async def _refused(error: Exception, scope: Scope) -> Response:
    """Respond where no route fits: to people with a page, to programs as the service alone does."""
    if scope["path"].startswith("/v1/") or "text/html" not in header_of(scope, b"accept"):
        return problem_response(error, scope)
    access: Access = scope["app"].state.access
    session = access.session(scope)
    viewer = access.nobody(session)
    with suppress(RefusedError, StorageError):
        viewer = await access.service.in_time(access.viewer(scope, session))
    return with_headers(problem_page(error, scope, viewer))


# The pages that begin and end sessions


async def sign_in_form(service: Service, request: Request, viewer: Viewer) -> Response:
    """Ask for a token."""
    path = local_path(request.query_params.get("next", "/"))
    if _is_needless(service, request, viewer):
        return see_other(viewer.root, path)
    return render("sign_in.html", viewer, path=path, error=None)


async def sign_in(service: Service, request: Request, viewer: Viewer) -> Response:
    """Begin a session with the token of the form."""
    form, access = request.state.form, request.app.state.access
    path = local_path(form.get("next", ["/"])[-1])
    if _is_needless(service, request, viewer):
        return see_other(viewer.root, path)
    token, response = form.get("token", [""])[-1].strip(), see_other(viewer.root, path)
    if not token:
        return render("sign_in.html", viewer, 403, path=path, error=EMPTY)
    try:
        found = service.guard.find(token, request.scope)
        await access.sign_in(response, request.scope, found)
    except (RefusedError, InvalidInputError) as error:
        kind = error.kind if isinstance(error, RefusedError) else "unauthorized"
        if kind not in SHOWN:
            raise
        return render("sign_in.html", viewer, 403, path=path, error=SHOWN[kind])
    request.scope["token"] = found.name  # for the access log
    return response


async def sign_out(service: Service, request: Request, viewer: Viewer) -> Response:
    """End the session."""
    response = see_other(viewer.root, "/sign-in")
    await request.app.state.access.sign_out(response, request.scope)
    return response


def _is_needless(service: Service, request: Request, viewer: Viewer) -> bool:
    """Whether sign-in is not required, or the viewer is signed in."""
    if service.guard.open:
        service.guard.check_direct(request.scope)
        return True
    service.guard.check_any_left()
    return viewer.name is not None


def action_pages(action: Action) -> tuple[Page, Page]:
    """The page that asks for confirmation, and the one that acts."""
    path = f"{EXPERIMENT}/{action.name}"

    async def confirm(service: Service, request: Request, viewer: Viewer) -> Response:
        name = (await service.experiment(request)).name
        back = viewer.root + experiment_path(name)
        return render("confirm.html", viewer, action=action, name=name, back=back)

    async def act(service: Service, request: Request, viewer: Viewer) -> Response:
        name, by = request.path_params["name"], viewer.name or ""
        reason = request.state.form.get("reason", [""])[-1] if action.reason else None
        await move(service, name, action.name, by, reason)
        return see_other(viewer.root, "/" if action.name == "delete" else experiment_path(name))

    return Page("GET", path, confirm, "admin"), Page("POST", path, act, "admin")


async def roll_out_form(service: Service, request: Request, viewer: Viewer) -> Response:
    """Ask which variant is rolled out, and to whom."""
    return await _roll_out_page(service, request, viewer, {}, "")


async def roll_out(service: Service, request: Request, viewer: Viewer) -> Response:
    """Roll out a variant."""
    typed = {key: values[-1].strip() for key, values in request.state.form.items()}
    name = request.path_params["name"]
    try:
        wanted = NewRollOut(
            typed.get("variant") or None,
            _share(typed.get("share", "")),
            "stop" in typed,
            "change" in typed,
            typed.get("reason", ""),
        )
        await roll_out_variant(service, name, wanted, viewer.name or "")
    except (InvalidInputError, WrongStateError) as error:
        return await _roll_out_page(service, request, viewer, typed, str(error))
    return see_other(viewer.root, experiment_path(name))


def _share(text: str) -> float:
    """A share from percent."""
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError:
        raise InvalidInputError.of("share", text, "a number of percent, such as 10") from None


async def _roll_out_page(
    service: Service, request: Request, viewer: Viewer, typed: Mapping[str, str], error: str
) -> Response:
    scorecards: Scorecards = request.app.state.scorecards
    card = await scorecards.get(request.path_params["name"])
    status, names = card.status, card.settings.arms.names
    current = status.roll_out
    recommended = card.decision.variant or card.settings.control or ""
    variant = typed.get("variant") or (recommended if current is None else current.variant)
    return render(
        "roll_out.html",
        viewer,
        422 if error else 200,
        name=card.name,
        back=viewer.root + experiment_path(card.name),
        names=list(names) if len(names) <= MOST_NAMES else None,
        variant=variant,
        share=typed.get("share", "100"),
        reason=typed.get("reason", ""),
        stop="stop" in typed,
        change="change" in typed,
        running=status.state in ("running", "paused") and not card.ended,
        changing=current is not None,
        rolled=outside_texts(status.outside),
        error=error,
    )
