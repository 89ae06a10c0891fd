"""The planner beside the form: how many visitors a test needs, simulated in a few seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from steadyarm.dashboard.choices import CHOICES, USUAL
from steadyarm.dashboard.form import read_arms
from steadyarm.dashboard.typed import Typed
from steadyarm.errors import InvalidInputError
from steadyarm.planning import Line, Plan, Question, plan
from steadyarm.planning.answer import ALIKE
from steadyarm.planning.candidates import AB_TEST, SEEN, candidate_from_settings
from steadyarm.planning.planner import LEAST_TRIALS, seconds_for
from steadyarm.plot.charts import plan as chart_of
from steadyarm.plot.plotly import spec_of

__all__ = ["PLANNED", "Asked", "BusyError", "answer", "planned", "read_question"]

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
