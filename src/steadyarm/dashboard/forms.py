"""The page for a new experiment: its form, the same test as a file, its creation, and the planner.

The rules of an experiment stand in its settings. This module reads numbers and lists from what
people type, makes a description of them, and shows errors of the settings at their fields. The
planner beside the form says how many visitors the test needs; it is simulated in a few seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from math import ceil, prod
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.arms import ArmSet
from steadyarm.arms.recipes import check_factors
from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.responses import experiment_path, render, see_other
from steadyarm.errors import ExperimentExistsError, InvalidInputError
from steadyarm.live.lifecycle import check_name, settings_from_description
from steadyarm.live.metrics import usual_grace
from steadyarm.live.settings import Settings
from steadyarm.planning import Line, Plan, Question, plan
from steadyarm.planning.candidates import AB_TEST, SEEN, candidate_from_settings
from steadyarm.planning.planner import LEAST_TRIALS, seconds_for
from steadyarm.planning.text import ALIKE
from steadyarm.plot import sweeps
from steadyarm.plot.spec import for_page, note_of
from steadyarm.service.handlers import create_experiment
from steadyarm.service.problems import json_response
from steadyarm.service.service import Service
from steadyarm.wire.requests import NewExperiment, checked
from steadyarm.wording import counted, toml_of

# The fields: labels, first values and choices, each with a sentence for those who have to choose.

FIELDS = {  # label, and what the field says at first
    "name": ("Name", ""),
    "kind": ("What is tested", "variants"),
    "variants": ("Variants", ""),
    "interactions": ("How parts work together", "2"),
    "budget": ("Visitors in all", ""),
    "policy": ("Method", "steady"),
    "direction": ("What is better", "maximize"),
    "range": ("What a reward is", "click"),
    "range_low": ("Least reward", ""),
    "range_high": ("Largest reward", ""),
    "window": ("How long to wait for a reward", "1"),
    "window_unit": ("Unit of time", "d"),
    "missing": ("If no reward comes", "zero"),
    "sticky": ("Visitors who come again", "unit"),
    "control": ("Control", ""),
    "covariates": ("Covariates", ""),
    "control_share": ("Fixed share of the control", ""),
    "min_share": ("Least share of every variant", ""),
    "stop": ("When it ends", "end"),
    "looks": ("Looks", "weekly"),
    "start": ("Start", "now"),
    "seed": ("Seed", ""),
}
USUAL = {key: value for key, (_, value) in FIELDS.items()}
PLANNED = {  # the planner's own fields, and what they say at first; the form says the rest
    "plan_rate": "5",
    "plan_gap": "1",
    "plan_sd": "",
    "plan_difference": "0.1",
    "plan_correlation": "0.5",
    "plan_rhythm": "none",
    "plan_traffic": "1000",
    "plan_days": "60",
    "plan_error": "5",
    "plan_clear": "80",
}
RHYTHMS = {
    "none": "the same on all days",
    "weekend": "different at weekends: whole weeks are tested",
}
DAY = 86_400  # seconds
IN_DAYS = {"m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0}  # units of the reward window
POLICY_CHOICES = {
    "Steady": "Recommended. Moves visitors to the variants that can still win, and stays right "
    "when visitors change from day to day.",
    "Uniform": "Gives all variants the same share throughout. Stays right when visitors change, "
    "but needs more of them.",
    "G-BAI": "Splits visitors in fixed shares, computed beforehand so that all variants are known "
    "equally well. Learns nothing during the test.",
    "P1-RAGE": "Gives half of the visitors a fixed split and half to the variants that matter. "
    "Steady was developed from this published method.",
    "P1-Peace": "Works like P1-RAGE, with another rule for which variants still matter.",
    "Mixed-Peace": "Drops variants step by step, but keeps half of the visitors for a fixed split.",
    "Peace": "Drops variants for good, step by step. Quick if nothing changes, misled if visitors "
    "change; waits for all rewards of a step.",
    "OD-LinBAI": "Halves the number of variants step by step. Quick if nothing changes, misled if "
    "visitors change; waits for all rewards of a step.",
    "P1": "Gives a variant more visitors the better it looks. Treats every variant by itself.",
    "Adjacent-BAI": "Splits visitors in fixed shares that compare variants with their neighbours "
    "only. Learns nothing during the test.",
    "Sequential-Halving": "Drops the worse half of the variants, again and again. Quick if nothing "
    "changes, misled if visitors change; waits for all rewards of a step.",
    "Linear-Thompson": "Earns while testing: the leader soon gets nearly all visitors. Misled if "
    "visitors change.",
    "Top-Two-Thompson": "Compares the leader with its closest rival most of the time. Misled if "
    "visitors change.",
}
CHOICES: dict[str, dict[str, str]] = {
    "kind": {
        "variants": "Separate variants, such as three headlines",
        "factorial": "Combinations of parts, such as every headline with every picture",
    },
    "interactions": {
        "2": "Parts may work together: a picture can help one headline and harm another",
        "1": "Parts work by themselves: the best headline is best with every picture. "
        "Needs fewer visitors, if it is true",
    },
    "policy": {name.lower(): text for name, text in POLICY_CHOICES.items()},
    "direction": {"maximize": "The more the better", "minimize": "The less the better"},
    "range": {
        "click": "Yes or no, such as a click or a purchase: 1 or 0",
        "custom": "A number between two limits, such as stars from 1 to 5",
        "none": "Any number, such as euros",
    },
    "window_unit": {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"},
    "missing": {
        "zero": "It counts as 0, because nothing happened. Right if you report only clicks and "
        "purchases",
        "drop": "It was lost and counts as the average of the same variant. Right if rewards are "
        "lost regardless of their value",
        "fail": "It must come: there is no verdict without it",
    },
    "sticky": {
        "unit": "A visitor sees the same variant every time",
        "none": "Every request is drawn anew, such as the subject of a mail",
    },
    "stop": {
        "end": "No, it is played to its end",
        "sure": "Yes, it stops itself as soon as it is decided",
        "recommend": "Only I stop it; the page says when it is decided",
    },
    "looks": {
        "weekly": "at the end of every week",
        "daily": "every day",
        "8": "eight times, after equally many visitors",
    },
    "start": {"now": "Start at once", "draft": "Keep it as a draft and start it later"},
}
PLACES = {  # fields of the form, by those of settings and questions
    "rewards.correlation": "plan_correlation",
    "rewards.delay": "window",
    "clear": "plan_clear",
    "reward_range": "range_high",
    "reward_window": "window",
    "effects.smallest_gap": "plan_gap",
}
MOST_VARIANTS = 2000  # as the service has it
LEAST_ROWS = 4  # of parts, for those without JavaScript
TRIED = 300  # variants up to which the settings are made while somebody types
NAMED = 300  # variants that can be chosen as the control
SHOWN = 40  # characters of a wrong value that an error repeats

GROUPED = re.compile(r"\d{1,3}(?:[,_' \u00a0\u202f]\d{3})+", re.ASCII)
DIGITS = re.compile(r"\d{1,30}", re.ASCII)
DECIMAL = re.compile(r"[+-]?(?:\d{1,30}(?:[.,]\d{0,30})?|[.,]\d{1,30})", re.ASCII)
LINES = re.compile(r"\r\n|\r|\n")


class Fields:
    """The fields of a form as they were typed; a field that is missing has its usual value.

    Attributes
    ----------
    values : the text of every field
    errors : what is wrong, by field; the first error of a field stays
    """

    def __init__(self, given: Mapping[str, Sequence[str]], usual: Mapping[str, str]) -> None:
        self.values = {key: given[key][-1] if given.get(key) else usual[key] for key in usual}
        self.errors: dict[str, str] = {}
        for key, choices in CHOICES.items():
            if self.text(key) not in choices:
                self.wrong(key, f"{_quoted(self.text(key))} is not one of the choices.")

    def text(self, key: str) -> str:
        """The text without spaces around it."""
        return self.values[key].strip()

    def wrong(self, key: str, sentence: str) -> None:
        """Note what is wrong with a field."""
        self.errors.setdefault(key, sentence)

    def check(self, key: str, check: Callable[..., object], *given: Any) -> None:
        """Note the error that a check of the library raises."""
        try:
            check(*given)
        except InvalidInputError as error:
            self.wrong(key, sentence_of(error))

    def whole(self, key: str, most: int | None = None) -> int | None:
        """A whole number, perhaps with separators between thousands, from 1 to `most` if given."""
        text = self.text(key)
        digits = re.sub(r"\D", "", text) if GROUPED.fullmatch(text) else text
        if DIGITS.fullmatch(digits) and (most is None or 1 <= int(digits) <= most):
            return int(digits)
        limits = "" if most is None else f" from 1 to {most:,}"
        self._expected(key, f"a whole number{limits}, such as 1,000")
        return None

    def number(self, key: str, positive: bool = False) -> float | None:
        """A number, with a point or a comma before its decimals."""
        text = self.text(key)
        value = float(text.replace(",", ".")) if DECIMAL.fullmatch(text) else None
        if value is not None and (value > 0 or not positive):
            return value
        self._expected(key, "a number above 0" if positive else "a number")
        return None

    def percent(self, key: str) -> float | None:
        """A share, typed in per cent, strictly between 0 and 100."""
        text = self.text(key).removesuffix("%").rstrip()
        if DECIMAL.fullmatch(text) and 0 < (share := Decimal(text.replace(",", ".")) / 100) < 1:
            return float(share)
        self._expected(key, "a share above 0 and below 100 %, such as 5")
        return None

    def _expected(self, key: str, expected: str) -> None:
        given = _quoted(self.text(key)) if self.text(key) else "empty"
        self.wrong(key, f"This is {given}; expected {expected}.")


@dataclass(frozen=True)
class Filled:
    """A form as somebody filled it in.

    Attributes
    ----------
    values : every field but those of parts, as typed
    parts : names and choices of parts, as typed
    errors : what is wrong, by field; empty if all is well
    name, description, start : for `create_from_description`; complete if nothing is wrong
    variants : how many there are, as far as that is known
    settings : what was described, if it was made and is right
    """

    values: Mapping[str, str]
    parts: tuple[tuple[str, str], ...]
    errors: Mapping[str, str]
    name: str
    description: Mapping[str, Any]
    start: bool
    variants: int
    settings: Settings | None = None

    @property
    def names(self) -> Sequence[str]:
        """Variants that can be chosen as the control, as far as they are known."""
        if self.settings is not None:
            return self.settings.arms.names[:NAMED]
        arms = self.description.get("arms")
        return arms[:NAMED] if isinstance(arms, list) else ()

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The parts with empty rows below, so that there is room for more."""
        return self.parts + (("", ""),) * max(LEAST_ROWS - len(self.parts), 0)


BLANK = Filled(USUAL, (), {}, "", {}, True, 0)


def read_form(given: Mapping[str, Sequence[str]]) -> Filled:
    r"""Read the fields of a form.

    Examples
    --------
    >>> found = read_form({"name": ["shop"], "variants": ["A\nB"], "budget": ["20,000"]})
    >>> found.description["arms"], found.description["budget"], dict(found.errors)
    (['A', 'B'], 20000, {})
    >>> read_form({"name": ["shop"], "variants": ["A\nB"], "budget": ["many"]}).errors["budget"]
    'This is “many”; expected a whole number, such as 1,000.'
    """
    typed = Fields(given, USUAL)
    typed.check("name", check_name, typed.text("name"))
    arms, variants = read_arms(typed, given)
    reward_range: list[float | None] | None = None
    if typed.text("range") == "click":
        reward_range = [0.0, 1.0]
    elif typed.text("range") == "custom":
        reward_range = [typed.number("range_low"), typed.number("range_high")]
        reward_range = None if None in reward_range else reward_range
    window = None
    if typed.text("window") and typed.number("window", positive=True) is not None:
        window = typed.text("window").lstrip("+").replace(",", ".") + typed.text("window_unit")
    described = {
        "arms": arms,
        "budget": typed.whole("budget"),
        "policy": typed.text("policy"),
        "direction": typed.text("direction"),
        "sticky": typed.text("sticky"),
        "reward_range": reward_range,
        "reward_window": window,
        "missing": typed.text("missing"),
        "control": _control(typed),
        "min_share": typed.percent("min_share") if typed.text("min_share") else None,
        **_stopping(typed),
        "seed": typed.whole("seed") if typed.text("seed") else None,
        "covariates": _list(typed.text("covariates").split(",")) or None,
    }
    usual = {"direction": "maximize", "sticky": "unit"}
    described = {k: v for k, v in described.items() if v is not None and usual.get(k) != v}
    settings = None
    if variants <= TRIED and not typed.errors.keys() & CHOICES.keys():
        settings = _settings(typed, described)
    return Filled(
        typed.values,
        _rows(given),
        typed.errors,
        typed.text("name"),
        described,
        typed.text("start") != "draft",
        variants,
        settings,
    )


def _stopping(typed: Fields) -> dict[str, Any]:
    """Whether the test may end early, as a description has it."""
    if typed.text("stop") == "end":
        return {}
    looks = typed.text("looks")
    return {
        "stop": "when sure" if typed.text("stop") == "sure" else "recommend",
        "looks": int(looks) if looks.isdecimal() else looks,
    }


def read_arms(typed: Fields, given: Mapping[str, Sequence[str]]) -> tuple[Any, int]:
    """The variants as a description has them, and how many they are."""
    if typed.text("kind") != "factorial":
        names = _list(LINES.split(typed.values["variants"]))
        _check_count(typed, "variants", len(names), "variants")
        typed.check("variants", ArmSet.one_hot, names)
        return names, len(names)
    parts: dict[str, list[str]] = {}
    for i, (name, choices) in enumerate(_rows(given)):
        name = name.strip()
        if not name and not choices.strip():
            continue
        lines = LINES.split(choices.strip())  # where there are lines, a choice may have commas
        levels = _list(lines if len(lines) > 1 else choices.split(","))
        if not name:
            typed.wrong(f"factor-{i}", "This part has no name; give it one, such as headline.")
        elif name in parts:
            typed.wrong(f"factor-{i}", f"There are two parts called {_quoted(name)}; rename one.")
        else:
            typed.check(f"levels-{i}", check_factors, {name: levels}, 1)
        parts[name] = levels
    if not parts:
        typed.wrong("factor-0", "There are no parts yet; give at least one, such as headline.")
    count = prod(map(len, parts.values())) if parts else 0
    _check_count(typed, "factor-0", count, "combinations")
    return {"factorial": parts, "interactions": 2 - (typed.text("interactions") == "1")}, count


def sentence_of(error: InvalidInputError) -> str:
    """An error as a sentence beside the field that it is about."""
    if error.given == "":
        return f"This is empty; expected {error.expected}."
    text = str(error if error.expected is None else error.called("this"))
    return text[:1].upper() + text[1:]


def _settings(typed: Fields, description: Mapping[str, Any]) -> Settings | None:
    """The settings; all errors are noted, for what is wrong is left out of the next attempt."""
    if any(key.startswith(("variants", "factor", "levels")) for key in typed.errors):
        return None
    rest = {"budget": 1, **description}
    while True:
        try:
            return settings_from_description(rest)
        except InvalidInputError as error:
            typed.wrong(_place(error, typed), sentence_of(error))
            if error.field not in rest:
                return None
            rest.pop(error.field)
            rest.setdefault("budget", 1)


def _place(error: InvalidInputError, typed: Fields) -> str:
    """The field at which an error of the settings is shown."""
    if error.field == "arms":
        return "factor-0" if typed.text("kind") == "factorial" else "variants"
    return PLACES.get(error.field or "form", error.field or "form")


def _control(typed: Fields) -> str | dict[str, float] | None:
    """The control as a description has it: its name, or its name with a fixed share."""
    control = typed.text("control")
    if not typed.text("control_share"):
        return control or None
    share = typed.percent("control_share")
    if not control:
        typed.wrong("control", "Choose the control, which gets the fixed share of More settings.")
    return {control: share} if control and share is not None else None


def _check_count(typed: Fields, key: str, count: int, what: str) -> None:
    if count > MOST_VARIANTS:
        typed.wrong(key, f"These are {count:,} {what}; at most {MOST_VARIANTS:,} can be tested.")


def _rows(given: Mapping[str, Sequence[str]]) -> tuple[tuple[str, str], ...]:
    names, levels = list(given.get("factor", ())), list(given.get("levels", ()))
    rows = list(zip_longest(names, levels, fillvalue=""))
    while rows and not "".join(rows[-1]).strip():
        rows.pop()
    return tuple(rows)


def _list(parts: Sequence[str]) -> list[str]:
    return [part.strip() for part in parts if part.strip()]


def _quoted(text: str) -> str:
    """What was typed, cut if it is long."""
    return f"“{text}”" if len(text) <= SHOWN else f"“{text[:SHOWN]}…”"


# The planner: as much as can be simulated while somebody waits.

MOST_PLANNED = 200  # variants
TRIALS = (400, 200)  # simulated tests behind each error; as many as there is time for
SOON, LATE = 2.0, 8.0  # seconds of a processor: the aim, and the limit
SIMPLE = "G-BAI"  # simulated in place of a policy that takes too long
PLANNING = asyncio.Lock()  # one plan at a time in a process


class PlanRequest(NamedTuple):
    """What the fields of form and planner ask together, for `steadyarm.planning.plan`.

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
    """Read the question that the fields of form and planner ask together.

    What a reward is, which variants there are, their control, the window of rewards, covariates and
    looks are those of the form.
    """
    typed = Fields(given, USUAL | PLANNED)
    arms, count = read_arms(typed, given)
    rewards, gap = _rewards(typed)
    error, clear = typed.percent("plan_error"), typed.percent("plan_clear")
    if error is not None and not 0.005 <= error <= 0.4:
        typed.wrong("plan_error", "Expected a share from 0.5 to 40 %; usual are 5 or 10.")
    if clear is not None and not 0.05 <= clear <= 0.99:
        typed.wrong("plan_clear", "Expected a share from 5 to 99 %; usual are 80 or 90.")
    if count > MOST_PLANNED:
        typed.wrong(
            "plan",
            f"{count:,} variants take too long to simulate here, where at most {MOST_PLANNED:,} "
            "are possible; use steadyarm plan on the command line.",
        )
    if typed.text("plan_rhythm") not in RHYTHMS:
        typed.wrong("plan_rhythm", "This is not one of the choices.")
    days = typed.whole("plan_days", 1000)  # with visitors; the last rewards come later
    settings = {
        "traffic_per_day": typed.whole("plan_traffic", 10**9),
        "most_days": None if days is None else days + ceil(rewards.get("delay", 0.0)),
        "error": error,
        "clear": clear,
        "arms": arms if isinstance(arms, dict) else {"one_hot": arms},
        "effects": {"smallest_gap": gap},
        "rewards": rewards,
        "rhythm": {"kind": typed.text("plan_rhythm")},
        "control": typed.text("control") or None,
        **_looks(typed),
    }
    return PlanRequest(settings, typed.text("policy"), typed.errors)


def _rewards(typed: Fields) -> tuple[dict[str, Any], float | None]:
    """How rewards scatter and when they come, and the smallest difference worth finding."""
    rewards: dict[str, Any] = {}
    if typed.text("range") == "click":
        rate, gap = typed.percent("plan_rate"), typed.percent("plan_gap")
        if rate is not None and typed.text("direction") == "minimize":
            rate = 1 - rate  # fewer of something is more of its absence
        rewards["rate"] = rate
    else:
        gap = typed.number("plan_difference", positive=True)
        rewards["sd"] = _spread(typed)
    if typed.text("covariates"):
        rewards["correlation"] = typed.number("plan_correlation")
    if typed.text("window"):
        window = typed.number("window", positive=True) or 0.0
        days = window * IN_DAYS.get(typed.text("window_unit"), 1.0)
        rewards["delay"] = days + usual_grace(days * DAY) / DAY
    return rewards, gap


def _spread(typed: Fields) -> float | None:
    """The standard deviation of a reward; a quarter of its range unless another is given."""
    if typed.text("plan_sd") or typed.text("range") != "custom":
        return typed.number("plan_sd", positive=True)
    low, high = typed.number("range_low"), typed.number("range_high")
    if low is None or high is None:
        return None
    if not low < high:
        typed.wrong("range_high", f"This is {high:g}; expected more than the least, {low:g}.")
        return None
    return (high - low) / 4


def _looks(typed: Fields) -> dict[str, Any]:
    """When the test may stop, as the form says; simulated in any case, to say what it brings."""
    name = typed.text("policy")
    if name not in CHOICES["policy"] or not candidate_from_settings(name, 1.0).policy.unbiased:
        return {}
    if typed.text("stop") == "end":
        return {"stop": "when sure"}
    looks = typed.text("looks")
    return {"stop": "when sure", "looks": int(looks) if looks.isdecimal() else looks}


def planned(asked: PlanRequest) -> dict[str, Any]:
    """Make the plan; returns what the page shows of it."""
    question, trials = _affordable(asked)
    found, label = plan(question, trials, jobs=1), question.candidates[0].label
    line = found.line(label)
    chart = sweeps.plan(found)
    rows = [
        [
            f"{budget:,}",
            *(f"{100 * one.asked.points[i].rate:.2g} %" for one in found.lines),
            *(f"{100 * one.clear.points[i].rate:.2g} %" for one in found.lines if one.clear),
        ]
        for i, budget in enumerate(found.budgets)
    ]
    clear = line.clear
    return {
        "sentence": _sentence(asked, found, line),
        "answers": _answers(found, line),
        "budget": line.asked.need.budget,
        "days": line.asked.need.days,
        "clear_budget": None if clear is None else clear.need.budget,
        "clear_days": None if clear is None else clear.need.days,
        "expected": None if clear is None or clear.need.budget is None else clear.check.visits,
        "looks": str(question.how_often()),
        "policy": label,
        "summary": chart["description"],
        "note": note_of(chart),
        "figure": for_page(chart),
        "dark_figure": for_page(chart, dark=True),
        "table": {
            "header": [
                "visitors",
                *(f"wrong with {one.label}" for one in found.lines),
                *(f"clear with {one.label}" for one in found.lines if one.clear),
            ],
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
        "this takes too long to simulate here; ask for a larger share of wrong picks, test "
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
            "more days or more wrong picks."
        )
    else:
        about = f" ({need.low:,} to {need.high:,})" if need.low and need.high else ""
        text = (
            f"About {need.budget:,} visitors{about} in {counted(need.days, 'day')} are enough: "
            f"then about {100 * found.error:.3g} % of such tests pick a wrong variant."
        ) + _compared(found, need.budget)
    if line.label == SIMPLE and asked.policy != SIMPLE.lower():
        text += (
            f" This is for a fixed split ({SIMPLE}): the chosen method takes too long to simulate "
            "here with so many variants. steadyarm plan on the command line can do it."
        )
    return text


def _answers(found: Plan, line: Line) -> list[str]:
    """How often the answer is clear, and what a clear answer needs, a sentence each."""
    clear = line.clear
    if clear is None or found.clear is None:
        return []
    need = clear.need
    if found.control is None:
        means = "all other variants are ruled out"
    else:
        means = f"the best is shown to beat {found.control}, or {found.control} is kept"
    said = []
    if clear.picked is not None:
        said.append(
            f"In {100 * clear.picked.rate:.2g} % of these tests the answer is also clear: at 95 % "
            f"confidence {means}."
        )
    if need.budget is None or need.days is None:
        return [
            *said,
            f"For clear answers in {100 * found.clear:.3g} % of the tests "
            f"{counted(found.most_days, 'day is', 'days are')} not enough: after "
            f"{need.check.budget:,} visitors {100 * clear.check.rate:.2g} % are clear.",
        ]
    text = (
        f"For clear answers in {100 * found.clear:.3g} % of the tests it takes about "
        f"{need.budget:,} visitors in {counted(need.days, 'day')}"
    )
    if clear.check.visits is not None:
        share = clear.check.visits / need.budget
        text += (
            f"; if the test may stop when it is sure, about {round(clear.check.visits, -2):,.0f} "
            f"on average ({100 * share:.0f} %)"
        )
    return [*said, f"{text}."]


def _compared(found: Plan, budget: int) -> str:
    other = next((line for line in found.lines if line.label == AB_TEST), None)
    if other is None:
        return ""
    needed = other.asked.need.budget
    if needed is None:
        return f" An ordinary A/B test would not be done in {counted(found.most_days, 'day')}."
    alike = max(needed, budget) <= ALIKE * min(needed, budget)
    return f" An ordinary A/B test needs {'about as many' if alike else f'{needed:,}'}."


# The pages


async def shown(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show the empty form."""
    return _page(viewer, BLANK, {})


async def created(service: Service, request: Request, viewer: Viewer) -> Response:
    """Create the experiment, or show the form again with what is wrong."""
    filled = await service.read(read_form, request.state.form)
    if filled.errors:
        return _page(viewer, filled, filled.errors, 422)
    try:
        asked = checked(
            NewExperiment, {"name": filled.name, "start": filled.start, **filled.description}
        )
        experiment, _ = await create_experiment(service, asked, viewer.name or "")
    except ExperimentExistsError:
        taken = f"There is a test called {filled.name} already; choose another name."
        return _page(viewer, filled, {"name": taken}, 409)
    except InvalidInputError as error:  # of tests that are too large to be tried before
        return _page(viewer, filled, {"form": sentence_of(error)}, 422)
    return see_other(viewer.root, experiment_path(experiment.name))


async def previewed(service: Service, request: Request, viewer: Viewer) -> Response:
    """Answer with the same as a file, or with what is wrong; nothing is created."""
    filled = await service.read(read_form, request.state.form)
    cautions = [] if filled.settings is None else filled.settings.cautions()
    answer: dict[str, Any] = {
        "errors": filled.errors,
        "variants": filled.variants,
        "names": filled.names,
        "cautions": [text[:1].upper() + text[1:] for text in cautions],
        "toml": None,
        "command": None,
    }
    if not filled.errors:
        draft = "" if filled.start else " --draft"
        answer["toml"] = toml_of({"name": filled.name, **filled.description})
        answer["command"] = f"steadyarm experiment create {filled.name}.toml{draft}"
    return json_response(answer)


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
        rhythms=RHYTHMS,
    )


def _label(key: str) -> str:
    what, _, number = key.partition("-")
    if number:
        return f"{'Name' if what == 'factor' else 'Choices'} of part {int(number) + 1}"
    return FIELDS[key][0] if key in FIELDS else ""


async def plan_made(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the number of visitors that the test in the form needs."""
    asked = read_question(request.state.form)
    if asked.errors:
        return json_response({"errors": asked.errors}, 422)
    if PLANNING.locked():
        busy = "Somebody else is planning just now; try again in a few seconds."
        response = json_response({"errors": {"plan": busy}}, 429)
        response.headers["Retry-After"] = "5"
        return response
    try:
        async with PLANNING:
            return json_response(await service.read(planned, asked))
    except InvalidInputError as error:
        place = PLACES.get(error.field or "", "plan")
        return json_response({"errors": {place: sentence_of(error)}}, 422)


PAGES = (
    Page("GET", "/new", shown, "admin"),
    Page("POST", "/new", created, "admin"),
    Page("POST", "/new/preview", previewed, "admin"),
    Page("POST", "/new/plan", plan_made, "admin"),
)
