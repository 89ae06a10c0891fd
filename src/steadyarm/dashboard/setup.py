"""The page that checks tracking: recent assignments, rewards and events, and refused ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.responses import experiment_path, fill_in, validated
from steadyarm.live.experiment import Experiment
from steadyarm.live.metrics import microseconds
from steadyarm.service.service import Service
from steadyarm.storages.records import REWARD
from steadyarm.storages.service import UNKNOWN_EVENT, Refusal
from steadyarm.storages.traffic import MOST_ARRIVALS, Arrivals
from steadyarm.wording import did_you_mean, listed

LATELY = 3600.0  # seconds
FEW_REWARDS = 100  # up to which the page of an experiment has the panel
REASONS = {  # why events were refused, by the kind of the problem
    UNKNOWN_EVENT: "unknown event name",
    "unknown-assignment": "unknown unit",
    "reward-too-late": "outside the window",
    "reward-conflict": "another value was counted before",
    "invalid-input": "not accepted",
}


@dataclass(frozen=True)
class EventLine:
    """An event, and what became of it.

    Attributes
    ----------
    at : when it arrived
    event : its name; of a counted one the metrics that it counted in
    unit : whose it was; empty if that is not known
    outcome : its outcome, in a few words
    detail : why, in a sentence
    """

    at: int
    event: str
    unit: str
    counted: bool
    outcome: str
    detail: str = ""


@dataclass(frozen=True)
class Setup:
    """The latest assignments, rewards and events of a test.

    Attributes
    ----------
    arrivals : counts of visits and events
    lines : the latest events, the latest first
    expected : the names of the events that the test counts
    """

    arrivals: Arrivals
    lines: tuple[EventLine, ...]
    expected: tuple[str, ...]


def read_setup(experiment: Experiment) -> Setup:
    """Read what has arrived at a test lately."""
    storage, measured = experiment.storage, experiment.settings.measured
    names = dict.fromkeys(metric.event or metric.name for metric in measured.values())
    if REWARD in measured:  # a reward without a name takes events that are named as the test
        names = {experiment.name if name == REWARD else name: None for name in names}
    since = experiment.now() - microseconds(LATELY)
    arrivals = storage.arrivals(experiment.key, tuple(measured), since)
    created = microseconds(experiment.created.timestamp())
    lines = [
        EventLine(
            arrival.at,
            ", ".join(arrival.values),
            arrival.unit,
            True,
            "counted in " + listed([f"{name} ({v:g})" for name, v in arrival.values.items()], 8),
        )
        for arrival in arrivals.latest
    ]
    refusals = storage.refusals(experiment.key, created)
    lines += [_line_of(refusal, tuple(names)) for refusal in refusals]
    lines.sort(key=lambda line: -line.at)
    return Setup(arrivals, tuple(lines[:MOST_ARRIVALS]), tuple(names))


def _line_of(refusal: Refusal, expected: tuple[str, ...]) -> EventLine:
    reason, detail = REASONS.get(refusal.reason, "not counted"), refusal.detail
    if refusal.reason == UNKNOWN_EVENT:
        names = ", ".join(expected) + did_you_mean(refusal.event, expected)
        detail = f"No metric counts it. This test counts {names}"
    elif refusal.reason == "unknown-assignment":
        detail = "The unit has no variant in this test. Ask for one before you send its events."
    return EventLine(refusal.at, refusal.event, refusal.unit, False, reason, detail)


async def setup_page(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show what has arrived at a test lately."""
    experiment = await service.experiment(request)
    setup = await service.read(read_setup, experiment)
    path = viewer.root + experiment_path(experiment.name)
    values: dict[str, Any] = {"name": experiment.name, "path": path, "setup": setup}
    page = await service.run_short(fill_in, "setup.html", viewer, values)
    return validated(request, page.encode(), "text/html")


PAGES = (Page("GET", "/experiments/{name}/setup", setup_page, "read"),)
