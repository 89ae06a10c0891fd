"""The page for a new experiment: form, preview of the same as a file, planner."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Viewer
from steadyarm.dashboard.forms import (
    CHOICES,
    LABELS,
    POLICY_CHOICES,
    USUAL,
    Filled,
    Typed,
    blank,
    form_of,
    read_arms,
    read_form,
)
from steadyarm.dashboard.guard import Page
from steadyarm.dashboard.responses import experiment_path, render, see_other
from steadyarm.errors import ExperimentExistsError, InvalidInputError
from steadyarm.live.description import toml_of
from steadyarm.live.lifecycle import create_from_description
from steadyarm.live.settings import Settings
from steadyarm.planning import Line, Plan, Question, plan
from steadyarm.planning.answer import ALIKE
from steadyarm.planning.candidates import AB_TEST, SEEN, candidate_from_settings
from steadyarm.planning.planner import LEAST_TRIALS, seconds_for
from steadyarm.plot.charts import plan as chart_of
from steadyarm.plot.plotly import spec_of
from steadyarm.service.handlers import make
from steadyarm.service.problems import RefusedError, checked, json_answer
from steadyarm.service.service import Service
from steadyarm.wire import NewExperiment

__all__ = ["PAGES", "PLANNED", "Asked", "BusyError", "answer", "planned", "read_question"]

# The planner beside the form: how many visitors a test needs, simulated in a few seconds.


PLANNED: dict[str, str] = {  # the planner's fields and what they say at first
    "plan_reward": "rate",
    "plan_rate": "5",
    "plan_gap": "1",
    "plan_sd": "1",
    "plan_difference": "0.1",
    "plan_traffic": "1000",
    "plan_days": "60",
    "plan_error": "5",
}
REWARDS = ("rate", "amount")
MOST_PLANNED = 200  # variants
TRIALS = (400, 200)  # simulated tests behind each error; as many as there is time for
SOON, LATE = 1.0, 6.0  # seconds of a processor: what is wanted, and what is put up with
SIMPLE = "G-BAI"  # simulated in place of what takes too long

_one_at_a_time = threading.Lock()


class BusyError(Exception):
    """Another plan is being made in this process."""


@dataclass(frozen=True)
class Asked:
    """What the planner was asked, ready for `steadyarm.planning.plan`.

    Attributes
    ----------
    settings : of the question; None if something is wrong
    policy : that the form chose, by its proper name
    errors : what is wrong, by field
    """

    settings: Mapping[str, Any] | None
    policy: str
    errors: Mapping[str, str]


def read_question(given: Mapping[str, Sequence[str]]) -> Asked:
    """The question that the fields of form and planner ask together."""
    typed = Typed(given, USUAL | PLANNED)
    arms, count = read_arms(typed, given)
    policy = typed.choice("policy", CHOICES["policy"]) or "steady"
    less = typed.choice("direction", CHOICES["direction"]) == "minimize"
    if typed.choice("plan_reward", REWARDS) == "amount":
        sd = typed.number("plan_sd", "a number above 0", above=0)
        gap = typed.number("plan_difference", "a number above 0", above=0)
        rewards = {"sd": sd}
    else:
        rate = typed.percent("plan_rate", "a rate above 0 and below 100 %, such as 5")
        gap = typed.percent("plan_gap", "a difference above 0, such as 1")
        if (
            rate is not None
            and gap is not None
            and not 0 < (rate - gap if less else rate + gap) < 1
        ):
            typed.wrong("plan_gap", "With this difference the rate would leave 0 to 100 %.")
        # Fewer of something is more of its absence.
        rewards = {"rate": None if rate is None else 1 - rate if less else rate}
    error = typed.percent("plan_error", "a share such as 5")
    settings: dict[str, Any] = {
        "traffic_per_day": typed.whole("plan_traffic", "a whole number of at least 1", 1, 10**9),
        "most_days": typed.whole("plan_days", "a number of days from 1 to 1,000", 1, 1000),
        "error": error,
        "arms": arms if isinstance(arms, dict) else {"one_hot": arms},
        "effects": {"smallest_gap": gap},
        "rewards": rewards,
    }
    if error is not None and not 0.005 <= error <= 0.4:
        typed.wrong("plan_error", "Expected a share from 0.5 to 40 %; usual are 5 or 10.")
    if count > MOST_PLANNED:
        typed.wrong(
            "plan",
            f"{count:,} variants take too long to simulate here, at most {MOST_PLANNED:,} do not; "
            "use steadyarm plan on the command line.",
        )
    return Asked(None if typed.errors else settings, policy, typed.errors)


def planned(asked: Asked) -> tuple[Plan, str]:
    """The plan, and the policy that it is about; BusyError while another is being made."""
    if not _one_at_a_time.acquire(blocking=False):
        raise BusyError
    try:
        question, trials = _affordable(asked)
        return plan(question, trials, jobs=1), question.candidates[0].label
    finally:
        _one_at_a_time.release()


def answer(asked: Asked, found: Plan, label: str) -> dict[str, Any]:
    """What the page shows of a plan."""
    line = found.line(label)
    chart = chart_of(found)
    need = line.asked.need
    return {
        "sentence": _sentence(asked, found, line),
        "budget": need.budget,
        "days": need.days,
        "policy": label,
        "summary": chart.summary,
        "note": chart.note,
        "figure": spec_of(chart),
        "dark_figure": spec_of(chart, dark=True),
        "table": _table(found),
    }


def _affordable(asked: Asked) -> tuple[Question, int]:
    """The question and how many tests to simulate, so that the answer comes soon."""
    if asked.settings is None:
        raise InvalidInputError("the question has errors; mend them first.")
    robust = candidate_from_settings(asked.policy, 1.0).robust
    ways = [[asked.policy, AB_TEST] if robust else [asked.policy], [asked.policy], [SIMPLE]]
    least = max(LEAST_TRIALS, ceil(SEEN / asked.settings["error"]))
    for policies in ways:
        question = Question.from_settings(dict(asked.settings) | {"policies": policies})
        fewest = max(TRIALS[-1], least)
        if seconds_for(question, fewest) > LATE:
            continue
        for trials in TRIALS:
            if trials >= fewest and seconds_for(question, trials) <= SOON:
                return question, trials
        return question, fewest
    raise InvalidInputError(
        "this takes too long to simulate here; ask for a larger share of wrong verdicts, test "
        "fewer variants, or use steadyarm plan on the command line."
    )


def _sentence(asked: Asked, found: Plan, line: Line) -> str:
    need, error = line.asked.need, f"{100 * found.error:.3g} %"
    if need.budget is None or need.days is None:
        low, high = (100 * end for end in need.check.interval())
        said = (
            f"{'1 day is' if found.most_days == 1 else f'{found.most_days:,} days are'} not "
            f"enough: after {need.check.budget:,} visitors "
            f"{100 * need.check.rate:.2g} % of the verdicts would still be wrong ({low:.2g} to "
            f"{high:.2g} %). Look for a larger difference, or allow more days or more wrong "
            "verdicts."
        )
    else:
        days = "1 day" if need.days == 1 else f"{need.days:,} days"
        about = f" ({need.low:,} to {need.high:,})" if need.low and need.high else ""
        said = (
            f"About {need.budget:,} visitors{about} in {days} are enough: then about {error} of "
            "such tests name a wrong winner."
        )
        said += _compared(found, need.budget)
    if line.label == SIMPLE and asked.policy != SIMPLE.lower():
        said += (
            f" This is for a fixed split ({SIMPLE}): the chosen method takes too long to simulate "
            "here with so many variants. steadyarm plan on the command line can do it."
        )
    return said


def _compared(found: Plan, budget: int) -> str:
    other = next((line for line in found.lines if line.label == AB_TEST), None)
    if other is None:
        return ""
    needed = other.asked.need.budget
    if needed is None:
        return f" An ordinary A/B test would not be done in {found.most_days:,} days."
    alike = max(needed, budget) <= ALIKE * min(needed, budget)
    return f" An ordinary A/B test needs {'about as many' if alike else f'{needed:,}'}."


def _table(found: Plan) -> dict[str, Any]:
    """Errors by budget, one row a budget, for people to read."""
    rows = []
    for i, budget in enumerate(found.budgets):
        points = [line.asked.points[i] for line in found.lines]
        rows.append([f"{budget:,}", *(f"{100 * point.rate:.2g} %" for point in points)])
    header = ["visitors", *(f"wrong with {line.label}" for line in found.lines)]
    return {"header": header, "rows": rows}


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
                "cautions": [_creating_sentence(text) for text in settings.cautions()],
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
        return json_answer({"errors": {"plan": _creating_sentence(str(error))}}, 422)
    return json_answer(await service.read(answer, asked, found, label))


def _tried(filled: Filled) -> Settings:
    return create_from_description(filled.name, filled.description, "memory", start=False).settings


def _placed(error: InvalidInputError) -> dict[str, str]:
    """An error of the settings at the field that it is about."""
    message = str(error)
    first = message.partition(" ")[0]
    return {FIELDS.get(first, "form"): _creating_sentence(message)}


def _creating_sentence(text: str) -> str:
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
        policies=POLICY_CHOICES,
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
