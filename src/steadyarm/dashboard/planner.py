"""The planner beside the form: how many visitors a test needs, simulated in a few seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.forms import PLANNED, USUAL, Fields, read_arms, sentence_of
from steadyarm.errors import InvalidInputError
from steadyarm.planning import Line, Plan, Question, plan
from steadyarm.planning.answer import ALIKE
from steadyarm.planning.candidates import AB_TEST, SEEN, candidate_from_settings
from steadyarm.planning.planner import LEAST_TRIALS, seconds_for
from steadyarm.plot.charts import plan as chart_of
from steadyarm.plot.plotly import spec_of
from steadyarm.service.problems import json_response
from steadyarm.service.service import Service
from steadyarm.wording import counted

MOST_PLANNED = 200  # variants
TRIALS = (400, 200)  # simulated tests behind each error; as many as there is time for
SOON, LATE = 1.0, 6.0  # seconds of a processor: the aim, and the limit
SIMPLE = "G-BAI"  # simulated in place of a policy that takes too long
PLACES = {"effects.smallest_gap": "plan_gap"}  # fields of the planner, by those of the question

_one_at_a_time = threading.Lock()


class BusyError(Exception):
    """Another plan is being made in this process."""


@dataclass(frozen=True)
class PlanRequest:
    """What the fields ask, ready for `steadyarm.planning.plan`.

    Attributes
    ----------
    settings : of the question; complete if nothing is wrong
    policy : that the form chose, by its name in lower case
    errors : what is wrong, by field
    """

    settings: Mapping[str, Any]
    policy: str
    errors: Mapping[str, str]


def read_question(given: Mapping[str, Sequence[str]]) -> PlanRequest:
    """Read the question that the fields of form and planner ask together."""
    typed = Fields(given, USUAL | PLANNED)
    arms, count = read_arms(typed, given)
    if typed.text("plan_reward") == "amount":
        rewards = {"sd": typed.number("plan_sd", positive=True)}
        gap = typed.number("plan_difference", positive=True)
    else:
        rate, gap = typed.percent("plan_rate"), typed.percent("plan_gap")
        if rate is not None and typed.text("direction") == "minimize":
            rate = 1 - rate  # fewer of something is more of its absence
        rewards = {"rate": rate}
    error = typed.percent("plan_error")
    if error is not None and not 0.005 <= error <= 0.4:
        typed.wrong("plan_error", "Expected a share from 0.5 to 40 %; usual are 5 or 10.")
    if count > MOST_PLANNED:
        typed.wrong(
            "plan",
            f"{count:,} variants take too long to simulate here, where at most {MOST_PLANNED:,} "
            "are possible; use steadyarm plan on the command line.",
        )
    settings = {
        "traffic_per_day": typed.whole("plan_traffic", 10**9),
        "most_days": typed.whole("plan_days", 1000),
        "error": error,
        "arms": arms if isinstance(arms, dict) else {"one_hot": arms},
        "effects": {"smallest_gap": gap},
        "rewards": rewards,
    }
    return PlanRequest(settings, typed.text("policy"), typed.errors)


def planned(asked: PlanRequest) -> tuple[Plan, str]:
    """Make the plan, and name the policy that it is about; BusyError while another is made."""
    if not _one_at_a_time.acquire(blocking=False):
        raise BusyError
    try:
        question, trials = _affordable(asked)
        return plan(question, trials, jobs=1), question.candidates[0].label
    finally:
        _one_at_a_time.release()


def answer(asked: PlanRequest, found: Plan, label: str) -> dict[str, Any]:
    """Return what the page shows of a plan."""
    line = found.line(label)
    chart = chart_of(found)
    rows = [
        [f"{budget:,}", *(f"{100 * one.asked.points[i].rate:.2g} %" for one in found.lines)]
        for i, budget in enumerate(found.budgets)
    ]
    return {
        "sentence": _sentence(asked, found, line),
        "budget": line.asked.need.budget,
        "days": line.asked.need.days,
        "policy": label,
        "summary": chart.summary,
        "note": chart.note,
        "figure": spec_of(chart),
        "dark_figure": spec_of(chart, dark=True),
        "table": {
            "header": ["visitors", *(f"wrong with {one.label}" for one in found.lines)],
            "rows": rows,
        },
    }


def _affordable(asked: PlanRequest) -> tuple[Question, int]:
    """The question and how many tests to simulate, so that the answer comes soon."""
    robust = candidate_from_settings(asked.policy, 1.0).robust
    least = max(LEAST_TRIALS, ceil(SEEN / asked.settings["error"]), TRIALS[-1])
    for policies in ([asked.policy, *[AB_TEST] * robust], [asked.policy], [SIMPLE]):
        question = Question.from_settings({**asked.settings, "policies": policies})
        if seconds_for(question, least) <= LATE:
            soon = (n for n in TRIALS if n >= least and seconds_for(question, n) <= SOON)
            return question, next(soon, least)
    raise InvalidInputError(
        "this takes too long to simulate here; ask for a larger share of wrong verdicts, test "
        "fewer variants, or use steadyarm plan on the command line."
    )


def _sentence(asked: PlanRequest, found: Plan, line: Line) -> str:
    need = line.asked.need
    if need.budget is None or need.days is None:
        low, high = (100 * end for end in need.check.interval())
        text = (
            f"{counted(found.most_days, 'day is', 'days are')} not enough: after "
            f"{need.check.budget:,} visitors {100 * need.check.rate:.2g} % of the verdicts would "
            f"still be wrong ({low:.2g} to {high:.2g} %). Look for a larger difference, or allow "
            "more days or more wrong verdicts."
        )
    else:
        about = f" ({need.low:,} to {need.high:,})" if need.low and need.high else ""
        text = (
            f"About {need.budget:,} visitors{about} in {counted(need.days, 'day')} are enough: "
            f"then about {100 * found.error:.3g} % of such tests name a wrong winner."
        ) + _compared(found, need.budget)
    if line.label == SIMPLE and asked.policy != SIMPLE.lower():
        text += (
            f" This is for a fixed split ({SIMPLE}): the chosen method takes too long to simulate "
            "here with so many variants. steadyarm plan on the command line can do it."
        )
    return text


def _compared(found: Plan, budget: int) -> str:
    other = next((line for line in found.lines if line.label == AB_TEST), None)
    if other is None:
        return ""
    needed = other.asked.need.budget
    if needed is None:
        return f" An ordinary A/B test would not be done in {counted(found.most_days, 'day')}."
    alike = max(needed, budget) <= ALIKE * min(needed, budget)
    return f" An ordinary A/B test needs {'about as many' if alike else f'{needed:,}'}."


async def plan_made(service: Service, request: Request, viewer: Viewer) -> Response:
    """Answer how many visitors the test in the form needs."""
    asked = read_question(request.state.form)
    if asked.errors:
        return json_response({"errors": asked.errors}, 422)
    try:
        found, label = await service.read(planned, asked)
    except BusyError:
        busy = "Somebody else is planning just now; try again in a few seconds."
        response = json_response({"errors": {"plan": busy}}, 429)
        response.headers["Retry-After"] = "5"
        return response
    except InvalidInputError as error:
        place = PLACES.get(error.field or "", "plan")
        return json_response({"errors": {place: sentence_of(error)}}, 422)
    return json_response(await service.read(answer, asked, found, label))


PAGES = (Page("POST", "/new/plan", plan_made, "admin"),)
