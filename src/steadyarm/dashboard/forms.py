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
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.arms import ArmSet
from steadyarm.arms.recipes import check_factors
from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.responses import experiment_path, render, see_other
from steadyarm.errors import ExperimentExistsError, InvalidInputError
from steadyarm.live.lifecycle import check_name, settings_from_description
from steadyarm.live.metrics import seconds_of, usual_grace
from steadyarm.live.settings import Settings
from steadyarm.planning import Question, plan
from steadyarm.planning.question import LEAST_WRONG
from steadyarm.planning.search import LEAST_TRIALS, seconds_for
from steadyarm.plot import sweeps
from steadyarm.plot.spec import for_page, note_of
from steadyarm.service.handlers import create_experiment
from steadyarm.service.problems import json_response
from steadyarm.service.service import Service
from steadyarm.wire.requests import NewExperiment, checked
from steadyarm.wording import toml_of

FIELDS = {  # label, and what the field says at first
    "name": ("Name", ""),
    "kind": ("Kind of test", "variants"),
    "variants": ("Variants", ""),
    "interactions": ("How parts work together", "2"),
    "control": ("Control", ""),
    "budget": ("Visitors in total", ""),
    "stop": ("When it ends", "end"),
    "looks": ("Interim analyses", "weekly"),
    "range": ("What a reward is", "click"),
    "range_low": ("Smallest reward", ""),
    "range_high": ("Largest reward", ""),
    "direction": ("What is better", "maximize"),
    "window": ("How long to wait for a reward", "1"),
    "window_unit": ("Unit of time", "d"),
    "missing": ("If no reward comes", "zero"),
    "policy": ("Method", "steady"),
    "covariates": ("Covariates", ""),
    "start": ("Start", "now"),
}
USUAL = {key: value for key, (_, value) in FIELDS.items()}
PLANNER = {  # the planner's own fields, and what they say at first; the form says the rest
    "plan_rate": "5",
    "plan_gap": "1",
    "plan_sd": "",
    "plan_difference": "0.1",
    "plan_correlation": "0.5",
    "plan_traffic": "1000",
    "plan_days": "60",
    "plan_error": "5",
    "plan_clear": "80",
}
CHOICES: dict[str, dict[str, str]] = {
    "kind": {
        "variants": "Separate variants, such as three headlines",
        "factorial": "Combinations of parts, such as every headline with every picture",
    },
    "interactions": {
        "2": "Parts may work together: a picture can help one headline and harm another",
        "1": "Parts work independently: the best headline is best with every picture. "
        "Needs fewer visitors, if true",
    },
    "stop": {
        "end": "No, it runs until all visitors have come",
        "sure": "Yes, it stops itself as soon as it is decided",
        "recommend": "I stop it; the page says when it is decided",
    },
    "looks": {"weekly": "weekly", "daily": "daily", "8": "eight, after equally many visitors"},
    "range": {
        "click": "Yes or no, such as a click or a purchase: 1 or 0",
        "custom": "A number between two limits, such as stars from 1 to 5",
        "none": "Any number, such as euros",
    },
    "direction": {"maximize": "Larger rewards", "minimize": "Smaller rewards"},
    "window_unit": {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"},
    "missing": {
        "zero": "It counts as 0, because nothing happened. Right if you report only clicks and "
        "purchases",
        "drop": "It was lost and counts as the average of the same variant. Right if rewards are "
        "lost regardless of their value",
        "fail": "It must come: there is no verdict without it",
    },
    "policy": {
        "steady": "Steady (recommended): moves visitors to the variants that can still win, and "
        "stays accurate when user behaviour changes",
        "uniform": "Equal split: all variants keep the same share; needs more visitors",
    },
    "start": {"now": "Start now", "draft": "Save as a draft and start later"},
}
DAY = 86_400  # seconds
PLACES = {  # fields of the form, by those of settings and questions
    "rewards.correlation": "plan_correlation",
    "rewards.delay": "window",
    "clear": "plan_clear",
    "reward_range": "range_high",
    "reward_window": "window",
    "effects.smallest_gap": "plan_gap",
}
MOST_VARIANTS = 2000  # as the service has it
TRIED = 300  # variants up to which the settings are made while somebody types
NAMED = 300  # variants that can be chosen as the control

GROUPED = re.compile(r"\d{1,3}(?:[,_' \u00a0\u202f]\d{3})+", re.ASCII)
DIGITS = re.compile(r"\d{1,30}", re.ASCII)
DECIMAL = re.compile(r"[+-]?(?:\d{1,30}(?:[.,]\d{0,30})?|[.,]\d{1,30})", re.ASCII)
LINES = re.compile(r"\r\n|\r|\n")

Sent = Mapping[str, Sequence[str]]  # all values of each field


class Fields:
    """The fields of a form as they were typed; a field that is missing has its usual value.

    Attributes
    ----------
    values : the text of every field
    errors : what is wrong, by field; the first error of a field stays
    """

    def __init__(self, sent: Sent, usual: Mapping[str, str]) -> None:
        self.values = {key: sent[key][-1] if sent.get(key) else usual[key] for key in usual}
        self.errors: dict[str, str] = {}
        for key, choices in CHOICES.items():
            if self.text(key) not in choices:
                self.wrong(key, "This is not one of the choices.")

    def text(self, key: str) -> str:
        """The text without spaces around it."""
        return self.values[key].strip()

    def wrong(self, key: str, sentence: str) -> None:
        """Note what is wrong with a field."""
        self.errors.setdefault(key, sentence)

    def check(self, key: str, check: Callable[..., object], *args: Any) -> None:
        """Note the error that a check of the library raises."""
        try:
            check(*args)
        except InvalidInputError as error:
            self.wrong(key, sentence_of(error))

    def whole(self, key: str, most: int | None = None) -> int | None:
        """A whole number, perhaps with separators between thousands, from 1 to `most` if given."""
        text = self.text(key)
        digits = re.sub(r"\D", "", text) if GROUPED.fullmatch(text) else text
        if DIGITS.fullmatch(digits) and (most is None or 1 <= int(digits) <= most):
            return int(digits)
        limits = "" if most is None else f" from 1 to {most:,}"
        self.wrong(key, f"Enter a whole number{limits}, e.g. 1000.")
        return None

    def number(self, key: str, positive: bool = False) -> float | None:
        """A number, with a point or a comma before its decimals."""
        text = self.text(key)
        value = float(text.replace(",", ".")) if DECIMAL.fullmatch(text) else None
        if value is not None and (value > 0 or not positive):
            return value
        self.wrong(key, "Enter a number above 0." if positive else "Enter a number.")
        return None

    def percent(self, key: str) -> float | None:
        """A share, typed in per cent, strictly between 0 and 100."""
        text = self.text(key).removesuffix("%").rstrip()
        if DECIMAL.fullmatch(text) and 0 < (share := Decimal(text.replace(",", ".")) / 100) < 1:
            return float(share)
        self.wrong(key, "Enter a share above 0 and below 100 %, e.g. 5.")
        return None


@dataclass(frozen=True)
class FilledForm:
    """A form as somebody filled it in.

    Attributes
    ----------
    values : every field but those of parts, as typed
    parts : names and choices of parts, as typed
    errors : what is wrong, by field; empty if all is well
    description : for `create_from_description`, beside the name; complete if nothing is wrong
    variants : how many there are, as far as that is known
    settings : what was described, if it was made and is right
    """

    values: Mapping[str, str]
    parts: list[tuple[str, str]]
    errors: Mapping[str, str]
    description: Mapping[str, Any]
    variants: int
    settings: Settings | None

    @property
    def name(self) -> str:
        """Of the experiment."""
        return self.values["name"].strip()

    @property
    def start(self) -> bool:
        """Whether it starts at once."""
        return self.values["start"] != "draft"

    @property
    def names(self) -> Sequence[str]:
        """Variants that can be chosen as the control, as far as they are known."""
        if self.settings is not None:
            return self.settings.arms.names[:NAMED]
        arms = self.description.get("arms")
        return arms[:NAMED] if isinstance(arms, list) else ()


def read_form(sent: Sent) -> FilledForm:
    r"""Read the fields of a form.

    Examples
    --------
    >>> form = read_form({"name": ["shop"], "variants": ["A\nB"], "budget": ["20,000"]})
    >>> form.description["arms"], form.description["budget"], dict(form.errors)
    (['A', 'B'], 20000, {})
    >>> read_form({"name": ["shop"], "variants": ["A\nB"], "budget": ["many"]}).errors["budget"]
    'Enter a whole number, e.g. 1000.'
    """
    typed = Fields(sent, USUAL)
    typed.check("name", check_name, typed.text("name"))
    arms, variants = read_arms(typed, sent)
    reward_range: Sequence[float | None] | None = None
    if typed.text("range") == "click":
        reward_range = [0.0, 1.0]
    elif typed.text("range") == "custom":
        limits = [typed.number("range_low"), typed.number("range_high")]
        reward_range = None if None in limits else limits
    described = {
        "arms": arms,
        "budget": typed.whole("budget"),
        "policy": typed.text("policy"),
        "direction": typed.text("direction"),
        "reward_range": reward_range,
        "reward_window": _window(typed),
        "missing": typed.text("missing"),
        "control": typed.text("control") or None,
        "covariates": _list(typed.text("covariates").split(",")) or None,
        **_stopping(typed),
    }
    described = {key: value for key, value in described.items() if value is not None}
    settings = None
    if variants <= TRIED and not typed.errors.keys() & CHOICES.keys():
        settings = _settings(typed, described)
    return FilledForm(typed.values, _rows(sent), typed.errors, described, variants, settings)


def _window(typed: Fields) -> str | None:
    """How long rewards may take, such as "1.5h"."""
    if not typed.text("window") or typed.number("window", positive=True) is None:
        return None
    return typed.text("window").lstrip("+").replace(",", ".") + typed.text("window_unit")


def _stopping(typed: Fields) -> dict[str, Any]:
    """Whether the test may end early, as a description has it."""
    if typed.text("stop") == "end":
        return {}
    looks = typed.text("looks")
    return {
        "stop": "when sure" if typed.text("stop") == "sure" else "recommend",
        "looks": int(looks) if looks.isdecimal() else looks,
    }


def read_arms(typed: Fields, sent: Sent) -> tuple[Any, int]:
    """The variants as a description has them, and how many they are."""
    if typed.text("kind") != "factorial":
        names = _list(LINES.split(typed.values["variants"]))
        _check_count(typed, "variants", len(names), "variants")
        typed.check("variants", ArmSet.one_hot, names)
        return names, len(names)
    parts: dict[str, list[str]] = {}
    for i, (name, choices) in enumerate(_rows(sent)):
        name = name.strip()
        if not name and not choices.strip():
            continue
        lines = LINES.split(choices.strip())  # where there are lines, a choice may have commas
        levels = _list(lines if len(lines) > 1 else choices.split(","))
        if not name:
            typed.wrong(f"factor-{i}", "Enter a name for this part, e.g. headline.")
        elif name in parts:
            typed.wrong(f"factor-{i}", "Another part has this name; rename one.")
        else:
            typed.check(f"levels-{i}", check_factors, {name: levels}, 1)
        parts[name] = levels
    if not parts:
        typed.wrong("factor-0", "Enter at least one part, e.g. headline.")
    count = prod(map(len, parts.values())) if parts else 0
    _check_count(typed, "factor-0", count, "combinations")
    return {"factorial": parts, "interactions": 2 - (typed.text("interactions") == "1")}, count


def sentence_of(error: InvalidInputError) -> str:
    """An error as a sentence beside the field that it is about."""
    if error.given == "":
        return f"Enter {error.expected}."
    text = str(error if error.expected is None else error.called("this"))
    return text[:1].upper() + text[1:]


def _settings(typed: Fields, description: Mapping[str, Any]) -> Settings | None:
    """The settings; what is wrong with them is noted at its field."""
    if any(key.startswith(("variants", "factor", "levels")) for key in typed.errors):
        return None
    try:
        return settings_from_description({"budget": 1, **description})
    except InvalidInputError as error:
        typed.wrong(_place(error, typed), sentence_of(error))
        return None


def _place(error: InvalidInputError, typed: Fields) -> str:
    """The field at which an error of the settings is shown."""
    if error.field == "arms":
        return "factor-0" if typed.text("kind") == "factorial" else "variants"
    return PLACES.get(error.field or "form", error.field or "form")


def _check_count(typed: Fields, key: str, count: int, what: str) -> None:
    if count > MOST_VARIANTS:
        typed.wrong(key, f"These are {count:,} {what}; at most {MOST_VARIANTS:,} can be tested.")


def _rows(sent: Sent) -> list[tuple[str, str]]:
    rows = list(zip_longest(sent.get("factor", ()), sent.get("levels", ()), fillvalue=""))
    while rows and not "".join(rows[-1]).strip():
        rows.pop()
    return rows


def _list(parts: Sequence[str]) -> list[str]:
    return [part.strip() for part in parts if part.strip()]


# The planner: as much as can be simulated while somebody waits.

TRIALS = (400, 200)  # simulated tests behind each error; as many as there is time for
SOON, LATE = 2.0, 8.0  # seconds of a processor: the aim, and the limit
PLANNING = asyncio.Lock()  # one plan at a time in a process


def read_question(sent: Sent) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the question that the fields of form and planner ask together.

    Returns
    -------
    the settings of a `Question`, complete if nothing is wrong, and what is wrong, by field
    """
    typed = Fields(sent, USUAL | PLANNER)
    arms, _ = read_arms(typed, sent)
    rewards, gap = _rewards(typed)
    days = typed.whole("plan_days", 1000)  # with visitors; the last rewards come later
    settings = {
        "traffic_per_day": typed.whole("plan_traffic", 10**9),
        "most_days": None if days is None else days + ceil(rewards.get("delay", 0.0)),
        "error": typed.percent("plan_error"),
        "clear": typed.percent("plan_clear"),
        "arms": arms if isinstance(arms, dict) else {"one_hot": arms},
        "effects": {"smallest_gap": gap},
        "rewards": rewards,
        "control": typed.text("control") or None,
        "policies": [typed.text("policy")],
        "stop": "when sure",  # simulated in any case, to say what it brings
        **_stopping(typed),
    }
    return settings, typed.errors


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
    if window := _window(typed):
        seconds = seconds_of(window)
        rewards["delay"] = (seconds + usual_grace(seconds)) / DAY
    return rewards, gap


def _spread(typed: Fields) -> float | None:
    """The standard deviation of a reward; a quarter of its range unless another is given."""
    if typed.text("plan_sd") or typed.text("range") != "custom":
        return typed.number("plan_sd", positive=True)
    low, high = typed.number("range_low"), typed.number("range_high")
    if low is None or high is None:
        return None
    if not low < high:
        typed.wrong("range_high", f"Enter a number above the smallest reward, {low:g}.")
        return None
    return (high - low) / 4


def compute_plan(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Make the plan; returns what the page shows of it."""
    question = Question.from_settings(settings)
    least = max(LEAST_TRIALS, ceil(LEAST_WRONG / question.error), TRIALS[-1])
    if seconds_for(question, least) > LATE:
        raise InvalidInputError(
            "this takes too long to simulate here. Choose an equal split, test fewer variants, "
            "allow a larger share of wrong picks, or use steadyarm plan on the command line."
        )
    soon = (n for n in TRIALS if n >= least and seconds_for(question, n) <= SOON)
    found = plan(question, next(soon, least), jobs=1)
    (line,) = found.lines
    chart, pick, clear = sweeps.plan(found), line.asked, line.clear
    uses = []  # what the form can take over
    if pick.budget is not None:
        uses.append({"budget": pick.budget, "why": "to pick the best"})
    if clear is not None and clear.budget is not None:
        uses.append({"budget": clear.budget, "why": "for a clear answer"})
        if clear.stopping_pays:
            stopping = {"why": "and stop when sure", "looks": str(question.how_often)}
            uses.append({"budget": clear.budget, **stopping})
    return {
        "verdict": found.verdict.splitlines(),
        "uses": uses,
        "summary": chart["description"],
        "note": note_of(chart),
        "figures": {"light": for_page(chart), "dark": for_page(chart, dark=True)},
    }


# The pages


async def show_form(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show the empty form."""
    return _page(viewer, read_form({}), {})


async def create(service: Service, request: Request, viewer: Viewer) -> Response:
    """Create the experiment, or show the form again with what is wrong."""
    form = await service.read(read_form, request.state.form)
    if form.errors:
        return _page(viewer, form, form.errors, 422)
    try:
        body = checked(NewExperiment, {"name": form.name, "start": form.start, **form.description})
        experiment, _ = await create_experiment(service, body, viewer.name or "")
    except ExperimentExistsError:
        taken = f"There is a test called {form.name} already; choose another name."
        return _page(viewer, form, {"name": taken}, 409)
    except InvalidInputError as error:  # of tests that are too large to be tried before
        return _page(viewer, form, {"form": sentence_of(error)}, 422)
    return see_other(viewer.root, experiment_path(experiment.name))


async def preview(service: Service, request: Request, viewer: Viewer) -> Response:
    """Answer with the same as a file, or with what is wrong; nothing is created."""
    form = await service.read(read_form, request.state.form)
    cautions = [] if form.settings is None else form.settings.cautions()
    answer: dict[str, Any] = {
        "errors": form.errors,
        "variants": form.variants,
        "names": form.names,
        "cautions": [text[:1].upper() + text[1:] for text in cautions],
        "toml": None,
        "command": None,
    }
    if not form.errors:
        draft = "" if form.start else " --draft"
        answer["toml"] = toml_of({"name": form.name, **form.description})
        answer["command"] = f"steadyarm experiment create {form.name}.toml{draft}"
    return json_response(answer)


def _page(
    viewer: Viewer, form: FilledForm, errors: Mapping[str, str], status: int = 200
) -> Response:
    return render(
        "new.html",
        viewer,
        status,
        form=form,
        errors=errors,
        summary=[(key, _label(key), text) for key, text in errors.items()],
        choices=CHOICES,
        planner=PLANNER,
    )


def _label(key: str) -> str:
    what, _, number = key.partition("-")
    if number:
        return f"{'Name' if what == 'factor' else 'Choices'} of part {int(number) + 1}"
    return FIELDS[key][0] if key in FIELDS else ""


async def make_plan(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with the number of visitors that the test in the form needs."""
    try:
        settings, errors = read_question(request.state.form)
        if errors:
            return json_response({"errors": errors}, 422)
        async with PLANNING:
            return json_response(await service.read(compute_plan, settings))
    except InvalidInputError as error:
        place = PLACES.get(error.field or "", "plan")
        return json_response({"errors": {place: sentence_of(error)}}, 422)


PAGES = (
    Page("GET", "/new", show_form, "admin"),
    Page("POST", "/new", create, "admin"),
    Page("POST", "/new/preview", preview, "admin"),
    Page("POST", "/new/plan", make_plan, "admin"),
)
