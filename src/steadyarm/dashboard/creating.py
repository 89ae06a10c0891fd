"""The page for a new experiment: form, preview of the same as a file, planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Viewer
from steadyarm.dashboard.choices import CHOICES, LABELS, POLICIES
from steadyarm.dashboard.form import Filled, blank, read_form
from steadyarm.dashboard.forms import form_of
from steadyarm.dashboard.guarding import Page
from steadyarm.dashboard.planner import PLANNED, BusyError, answer, planned, read_question
from steadyarm.dashboard.rendering import render
from steadyarm.dashboard.responses import experiment_path, see_other
from steadyarm.description import toml_of
from steadyarm.errors import ExperimentExistsError, InvalidInputError
from steadyarm.lifecycle import create_from_description
from steadyarm.service.asked import NewExperiment
from steadyarm.service.managing import make
from steadyarm.service.plumbing import checked, json_answer
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.settings import Settings

__all__ = ["PAGES"]

TRIED = 300  # variants up to which a description is tried out while somebody types
NAMED = 50  # variants whose names are offered for the control
FIELDS = {  # by the word that errors of settings begin with, or name
    "control": "control",
    "min_share": "min_share",
    "reward_range": "range",
    "reward_window": "window",
    "budget": "budget",
    "policy": "policy",
}


async def shown(service: Service, request: Request, viewer: Viewer) -> Response:
    """The empty form."""
    return _page(viewer, blank(), {})


async def created(service: Service, request: Request, viewer: Viewer) -> Response:
    """Make the experiment, or show the form again with what is wrong."""
    form = await form_of(request, service.settings.max_body)
    filled = read_form(form.values)
    if filled.errors:
        return _page(viewer, filled, filled.errors, 422)
    try:
        asked = checked(
            NewExperiment, {"name": filled.name, "start": filled.start, **filled.description}
        )
        experiment, _ = await make(service, asked, viewer.name or "")
    except ExperimentExistsError:
        taken = f"There is a test called {filled.name} already; choose another name."
        return _page(viewer, filled, {"name": taken}, 409)
    except InvalidInputError as error:
        return _page(viewer, filled, _placed(error), 422)
    except RefusedError as error:
        if error.kind != "invalid-input":
            raise
        return _page(viewer, filled, {"form": str(error)}, 422)
    return see_other(experiment_path(experiment.name))


async def previewed(service: Service, request: Request, viewer: Viewer) -> Response:
    """The same as a file, or what is wrong; nothing is created."""
    form = await form_of(request, service.settings.max_body)
    filled = read_form(form.values)
    told: dict[str, Any] = {
        "errors": dict(filled.errors),
        "variants": filled.variants,
        "names": [],
        "cautions": [],
        "toml": None,
        "command": None,
    }
    if not filled.errors and filled.variants <= TRIED:
        try:
            settings = await service.read(_tried, filled)
        except InvalidInputError as error:
            told["errors"] = _placed(error)
        else:
            told |= {
                "names": settings.arms.names[:NAMED],
                "cautions": [_sentence(text) for text in settings.cautions()],
            }
    if not told["errors"]:
        draft = "" if filled.start else " --draft"
        told |= {
            "toml": toml_of(filled.name, filled.description),
            "command": f"steadyarm experiment create {filled.name}.toml{draft}",
        }
    return json_answer(told)


async def plan_made(service: Service, request: Request, viewer: Viewer) -> Response:
    """How many visitors the test in the form needs."""
    form = await form_of(request, service.settings.max_body)
    asked = read_question(form.values)
    if asked.errors:
        return json_answer({"errors": asked.errors}, 422)
    try:
        found, label = await service.read(planned, asked)
    except BusyError:
        busy = "Somebody else is planning just now; try again in a few seconds."
        response = json_answer({"errors": {"plan": busy}}, 429)
        response.headers["Retry-After"] = "5"
        return response
    except InvalidInputError as error:
        return json_answer({"errors": {"plan": _sentence(str(error))}}, 422)
    return json_answer(await service.read(answer, asked, found, label))


def _tried(filled: Filled) -> Settings:
    return create_from_description(filled.name, filled.description, "memory", start=False).settings


def _placed(error: InvalidInputError) -> dict[str, str]:
    """An error of the settings at the field that it is about."""
    message = str(error)
    first = message.partition(" ")[0]
    return {FIELDS.get(first, "form"): _sentence(message)}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _page(viewer: Viewer, filled: Filled, errors: Mapping[str, str], status: int = 200) -> Response:
    return render(
        "new.html",
        viewer,
        status,
        filled=filled,
        errors=errors,
        summary=[(key, _label(key), text) for key, text in errors.items()],
        choices=CHOICES,
        policies=POLICIES,
        planned=PLANNED,
    )


def _label(key: str) -> str:
    what, _, number = key.partition("-")
    if number:
        return f"{'Name' if what == 'factor' else 'Choices'} of part {int(number) + 1}"
    return LABELS.get(key, "")


PAGES = (
    Page("GET", "/new", shown, "admin"),
    Page("POST", "/new", created, "admin"),
    Page("POST", "/new/preview", previewed, "admin"),
    Page("POST", "/new/plan", plan_made, "admin"),
)
