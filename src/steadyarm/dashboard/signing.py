"""The pages for signing in and out; `access` knows tokens and cookies."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Access, Viewer
from steadyarm.dashboard.forms import SMALL, form_of
from steadyarm.dashboard.guarding import Page
from steadyarm.dashboard.rendering import render
from steadyarm.dashboard.responses import local_path, see_other
from steadyarm.errors import InvalidInputError
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service

__all__ = ["sign_in_pages"]

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
