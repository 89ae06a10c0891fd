"""Starting, pausing, stopping: each is asked about once more, then done by `service.managing`."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Viewer
from steadyarm.dashboard.guarding import Page
from steadyarm.dashboard.rendering import render
from steadyarm.dashboard.responses import experiment_path, see_other
from steadyarm.service.managing import move
from steadyarm.service.service import Service
from steadyarm.storages.records import ExperimentState

__all__ = ["ACTIONS", "PAGES", "Action", "actions_for"]


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


PAGES: tuple[Page, ...] = tuple(page for action in ACTIONS for page in _pages(action))
