"""The page for a new experiment: its form, the same test as TOML and Python, and the planner.

`live.settings` validates an experiment. This module reads numbers and lists from text fields,
builds a description of the experiment, and shows errors of the settings at their fields. The
planner beside the form simulates in a few seconds how many visitors the test needs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from math import ceil
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.arms import ArmSet
from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.responses import experiment_path, render, see_other
from steadyarm.errors import ExperimentExistsError, InvalidInputError
from steadyarm.live.lifecycle import check_name, description_of, settings_from_description
from steadyarm.live.metrics import Metric, usual_grace
from steadyarm.live.settings import ABOUT, OF_PRIMARY, Settings
from steadyarm.planning import Question, plan
from steadyarm.planning.question import LARGE, LEAST_WRONG
from steadyarm.plot import sweeps
from steadyarm.plot.spec import for_page, note_of
from steadyarm.service.handlers import create_experiment
from steadyarm.service.problems import RefusedError, json_response
from steadyarm.service.service import Service
from steadyarm.wire.requests import NewExperiment, convert
from steadyarm.wording import counted, span, toml_of

FIELDS = {  # label, and what the field says at first
    "name": ("Name", ""),
    "variants": ("Variants", ""),
    "control": ("Control", ""),
    "budget": ("Visitors in total", ""),
    "traffic": ("Visitors per day", "1000"),
    "looks": ("Interim analyses", "none"),
    "stop": ("When a test is decided early", "sure"),
    "attributes": ("Attributes", ""),
    "covariates": ("Covariates", ""),
    "share": ("Share of all visitors that take part", "100"),
    "layer": ("Layer", ""),
    "description": ("Description", ""),
    "hypothesis": ("Hypothesis", ""),
    "owner": ("Owner", ""),
    "tags": ("Tags", ""),
    "policy": ("Method", "steady"),
    "start": ("Start", "now"),
}
USUAL = {key: value for key, (_, value) in FIELDS.items()}
METRIC = {  # fields of a row of the table of metrics; the first row is the primary metric
    "name": "",
    "event": "",
    "kind": "yes/no",
    "unit": "",
    "role": "secondary",
    "direction": "maximize",
    "window": "",
    "margin": "",
}
PRIMARY = METRIC | {"role": "primary", "window": "1 day"}
PLANNER = {  # the planner's own fields, and what they say at first; the form says the rest
    "plan_rate": "5",
    "plan_gap": "1",
    "plan_sd": "",
    "plan_difference": "0.1",
    "plan_correlation": "0.5",
    "plan_days": "60",
    "plan_error": "5",
    "plan_clear": "80",
}
FURTHER = {"policy", "share", "layer", "attributes", "covariates", *ABOUT} - {"hypothesis"}
CHOICES: dict[str, dict[str, str]] = {
    "looks": {
        "none": "None: the test is decided when all visitors have come",
        "weekly": "Weekly: treats weekdays and weekends alike",
        "daily": "Daily",
    },
    "stop": {
        "sure": "The test stops itself",
        "recommend": "I stop it; the page says when it is decided",
    },
    "policy": {
        "steady": "Steady (recommended): moves visitors to the variants that can still win, and "
        "stays accurate when user behaviour changes",
        "uniform": "Equal split: all variants keep the same share; needs more visitors",
    },
    "start": {"now": "Start now", "draft": "Save as a draft and start later"},
}
METRIC_CHOICES = {
    "kind": {
        "yes/no": "Yes or no",
        "count": "Count",
        "money": "Money",
        "number": "Number",
    },
    "role": {"secondary": "Only shown", "guardrail": "Guardrail"},
    "direction": {"maximize": "Larger", "minimize": "Smaller"},
}
DAY = 86_400  # seconds
PLACES = {  # fields of the form, by those of settings and questions
    "arms": "variants",
    "values": "variants",
    "traffic": "share",
    **{f"about.{key}": key for key in ABOUT},
    "rewards.correlation": "plan_correlation",
    "rewards.delay": "metric-0",
    "clear": "plan_clear",
    "effects.smallest_gap": "plan_gap",
}
MOST_VARIANTS = 2000  # as the service has it
TRIED = 300  # variants up to which the settings are made while somebody types
WHOLE = ("", "100", "100%", "100 %")
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
    errors : errors by field; the first error of a field stays
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
    values : every field but those of metrics, as typed
    metrics : the rows of the table of metrics, as typed; the first one is the primary metric
    errors : errors by field; empty if all is well
    description : for `create_from_description`, beside the name; complete if nothing is wrong
    variants : how many there are
    settings : what was described, if it was made and is right
    """

    values: Mapping[str, str]
    metrics: Sequence[Mapping[str, str]]
    errors: Mapping[str, str]
    description: Mapping[str, Any]
    variants: int
    settings: Settings | None

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self.values["name"].strip()

    @property
    def start(self) -> bool:
        """Whether it starts at once."""
        return self.values["start"] != "draft"

    @property
    def names(self) -> Sequence[str]:
        """Variants that can be chosen as the control."""
        arms: Sequence[str] = self.description["arms"]
        return arms[:NAMED]


def read_form(sent: Sent) -> FilledForm:
    r"""Read the fields of a form.

    Examples
    --------
    >>> typed = {"name": ["shop"], "variants": ["A\nB"], "metric_name": ["purchase"]}
    >>> form = read_form(typed | {"budget": ["20,000"]})
    >>> form.description["arms"], form.description["budget"], dict(form.errors)
    (['A', 'B'], 20000, {})
    >>> read_form(typed | {"budget": ["many"]}).errors["budget"]
    'Enter a whole number, e.g. 1000.'
    """
    typed = Fields(sent, USUAL)
    typed.check("name", check_name, typed.text("name"))
    if typed.text("traffic"):
        typed.whole("traffic", 10**9)
    names, values = read_variants(typed)
    rows = metric_rows(sent)
    described = {
        "values": values,
        "budget": typed.whole("budget"),
        "policy": typed.text("policy"),
        "control": typed.text("control") or None,
        "metrics": [metric for _, metric in read_metrics(typed, rows)],
        "attributes": _attributes(typed),
        "covariates": _list(typed.text("covariates").split(",")),
        **_stopping(typed),
        "traffic": None if typed.text("share") in WHOLE else typed.percent("share"),
        "layer": typed.text("layer") or None,
        "about": _about(typed),
    }
    described = {"arms": names} | {
        key: value for key, value in described.items() if value not in (None, {}, [])
    }
    settings = None
    if len(names) <= TRIED and not typed.errors.keys() - {"name", "traffic", "budget"}:
        try:
            settings = settings_from_description({"budget": 1, **described})
        except InvalidInputError as error:
            typed.wrong(_place(error), sentence_of(error))
    return FilledForm(typed.values, rows, typed.errors, described, len(names), settings)


def read_variants(typed: Fields) -> tuple[list[str], dict[str, Any]]:
    """The names of the variants, and the values of those that have one."""
    names, values = list[str](), dict[str, Any]()
    for line in _list(LINES.split(typed.values["variants"])):
        name, equals, text = line.partition(" = ")
        names.append(name.strip())
        if equals:
            values[names[-1]] = text.strip()
            with suppress(ValueError):  # a text that is not JSON stands for itself
                values[names[-1]] = json.loads(text)
    if len(names) > MOST_VARIANTS:
        what = f"These are {len(names):,} variants; at most {MOST_VARIANTS:,} can be tested."
        typed.wrong("variants", what)
    typed.check("variants", ArmSet.one_hot, names)
    typed.check("variants", toml_of, {"values": [values]})
    return names, values


def metric_rows(sent: Sent) -> list[dict[str, str]]:
    """The rows of the table of metrics, as typed; those without a name are left out."""
    columns = (sent.get(f"metric_{key}", ()) for key in METRIC)
    rows = [
        {key: usual if value is None else value for (key, usual), value in pairs}
        for pairs in (zip(METRIC.items(), row, strict=True) for row in zip_longest(*columns))
    ]
    first = PRIMARY if not rows else rows[0] | {"role": "primary"}
    return [first, *(row for row in rows[1:] if row["name"].strip())]


def read_metrics(
    typed: Fields, rows: Sequence[Mapping[str, str]]
) -> list[tuple[Metric, dict[str, Any]]]:
    """The metrics of these rows that are right, each with its description."""
    metrics = []
    for i, row in enumerate(rows):
        text = {key: value.strip() for key, value in row.items()}
        if not text["name"]:
            typed.wrong(f"metric-{i}", "Enter a name, e.g. purchase.")
            continue
        if text["role"] != "guardrail":
            text["margin"] = ""
        described: dict[str, Any] = {key: value for key, value in text.items() if value}
        if text["kind"] in ("count", "money") and text["window"]:
            described["several"] = "sum"
        if DECIMAL.fullmatch(text["margin"]):
            described["margin"] = float(text["margin"].replace(",", "."))
        for key in ("role", "direction"):
            if described.get(key) == METRIC[key]:
                del described[key]
        try:
            metrics.append((Metric.from_description(described), described))
        except InvalidInputError as error:
            typed.wrong(f"metric-{i}", sentence_of(error))
    return metrics


def _attributes(typed: Fields) -> dict[str, list[str]]:
    """Attributes with their levels, one per line, such as "device = mobile, desktop"."""
    attributes = {}
    for line in _list(LINES.split(typed.values["attributes"])):
        name, _, levels = line.partition("=")
        attributes[name.strip()] = _list(levels.split(","))
        if not attributes[name.strip()]:
            typed.wrong("attributes", "Enter a name and its levels, e.g. device = mobile, desktop.")
    return attributes


def _about(typed: Fields) -> dict[str, Any]:
    """The description of the test for people, from the fields that were filled in."""
    about: dict[str, Any] = {key: typed.text(key) for key in ABOUT}
    about["tags"] = _list(about["tags"].split(","))
    return {key: value for key, value in about.items() if value}


def _stopping(typed: Fields) -> dict[str, Any]:
    """Whether the test may end early, as a description has it."""
    if typed.text("looks") == "none":
        return {}
    stop = "when sure" if typed.text("stop") == "sure" else "recommend"
    return {"stop": stop, "looks": typed.text("looks")}


def sentence_of(error: InvalidInputError) -> str:
    """An error as a sentence beside the field that it is about."""
    if error.given == "":
        return f"Enter {error.expected}."
    text = str(error if error.expected is None else error.called("this"))
    return text[:1].upper() + text[1:]


def _place(error: InvalidInputError) -> str:
    """The field at which an error of the settings is shown."""
    return PLACES.get(error.field or "form", error.field or "form")


def _list(parts: Sequence[str]) -> list[str]:
    return [part.strip() for part in parts if part.strip()]


def fields_of(settings: Settings) -> dict[str, list[str]]:
    r"""The texts of the form's fields that describe a test: the reverse of `read_form`.

    Examples
    --------
    >>> typed = {"name": ["shop"], "variants": ["A\nB"], "metric_name": ["buy"], "budget": ["9"]}
    >>> form = read_form(typed | {"tags": ["new, shop"], "metric_window": ["90 m"]})
    >>> again = fields_of(form.settings)
    >>> again["tags"], again["metric_window"], again["variants"]
    (['new, shop'], ['90 minutes'], ['A\nB'])
    """
    described, values = description_of(settings), settings.values or {}
    about: Mapping[str, Any] = settings.about
    typed = {
        "variants": "\n".join(
            f"{name} = {json.dumps(values[name])}" if name in values else name
            for name in settings.arms.names
        ),
        "control": settings.control or "",
        "budget": str(settings.budget),
        "looks": str(settings.looks or "none"),
        "stop": "recommend" if settings.stop == "recommend" else "sure",
        "attributes": "\n".join(f"{k} = {', '.join(v)}" for k, v in settings.attributes.items()),
        "covariates": ", ".join(settings.covariates),
        "policy": settings.policy.name.lower(),
        "share": f"{100 * settings.traffic:g}",
        "layer": settings.layer or "",
        **{key: about.get(key, "") for key in ABOUT},
        "tags": ", ".join(about.get("tags", ())),
    }
    usual = {key: USUAL[key] for key in CHOICES if typed.get(key) not in CHOICES[key]}
    rows = sorted(described.get("metrics", ()), key=lambda row: row.get("role") != "primary")
    metrics = [METRIC | {key: str(row[key]) for key in METRIC if key in row} for row in rows]
    for row in metrics:
        row["window"] = row["window"] and span(float(row["window"])).replace(",", "")
    columns = {f"metric_{key}": [row[key] for row in metrics] for key in METRIC}
    return {key: [value] for key, value in (typed | usual).items()} | (columns if rows else {})


def not_copied(settings: Settings, form: FilledForm) -> list[str]:
    """Settings of a test that the form made of it does not describe."""
    if form.settings is None:
        return [key for key in description_of(settings) if key != "seed"]
    own, copied = settings.to_dict(), form.settings.to_dict()
    ignored = ("seed", "budget", "products", "arms", "metrics", *OF_PRIMARY)
    names = [key for key in own if key not in ignored and own[key] != copied[key]]
    for metric in own["metrics"]:
        same = (other for other in copied["metrics"] if other["name"] == metric["name"])
        other: dict[str, Any] = next(same, {})
        names += [f"{key} of {metric['name']}" for key in metric if metric[key] != other.get(key)]
    return ["arms"] * (settings.arms != form.settings.arms) + names


def python_of(form: FilledForm) -> str:
    """A program that creates the same experiment."""
    described = dict(form.description)
    metrics, policy = described.pop("metrics"), described.pop("policy").capitalize()
    arguments = [f"{form.name!r}", f"{described.pop('arms')!r}", f"sa.{policy}()"]
    arguments.append(f"budget={described.pop('budget'):_}")
    rows = [
        ", ".join([repr(row["name"]), *(f"{k}={v!r}" for k, v in row.items() if k != "name")])
        for row in metrics
    ]
    listed = "".join(f"\n        sa.Metric({row})," for row in rows)
    arguments.append(f"metrics=[{listed}\n    ]")
    arguments += [f"{key}={value!r}" for key, value in described.items()]
    if not form.start:
        arguments.append("start=False")
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"import steadyarm as sa\n\ntest = sa.create_experiment(\n{lines})\n"


# The planner: as much as can be simulated while somebody waits.

TRIALS, FEWEST = 400, 200  # simulated tests behind each error; fewer with more than 8 variants
PLANNING = asyncio.Lock()  # one plan at a time in a process


def read_question(sent: Sent) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the question that the fields of form and planner ask together.

    Returns
    -------
    the settings of a `Question`, complete if nothing is wrong, and what is wrong, by field
    """
    typed = Fields(sent, USUAL | PLANNER)
    names, _ = read_variants(typed)
    metrics = read_metrics(typed, metric_rows(sent)[:1])
    rewards, gap = _rewards(typed, metrics[0][0]) if metrics else ({}, None)
    days = typed.whole("plan_days", 1000)  # with visitors; the last rewards come later
    settings = {
        "traffic_per_day": typed.whole("traffic", 10**9),
        "most_days": None if days is None else days + ceil(rewards.get("delay", 0.0)),
        "error": typed.percent("plan_error"),
        "clear": typed.percent("plan_clear"),
        "arms": {"one_hot": names},
        "effects": {"smallest_gap": gap},
        "rewards": rewards,
        "control": typed.text("control") or None,
        "policies": [typed.text("policy")],
        "stop": "when sure",  # simulated in any case, to say what it brings
        "looks": "weekly",
        **_stopping(typed),
    }
    return settings, typed.errors


def _rewards(typed: Fields, metric: Metric) -> tuple[dict[str, Any], float | None]:
    """The spread and delay of the primary metric, and the smallest difference."""
    rewards: dict[str, Any] = {}
    if metric.kind == "yes/no":
        rate, gap = typed.percent("plan_rate"), typed.percent("plan_gap")
        if rate is not None and metric.direction == "minimize":
            rate = 1 - rate  # fewer of something is more of its absence
        rewards["rate"] = rate
    else:
        gap = typed.number("plan_difference", positive=True)
        rewards["sd"] = typed.number("plan_sd", positive=True)
    if typed.text("covariates"):
        rewards["correlation"] = typed.number("plan_correlation")
    window = metric.times[0]
    if window is not None:
        rewards["delay"] = (window + usual_grace(window)) / DAY
    return rewards, gap


def compute_plan(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Make the plan; returns what the page shows of it."""
    question = Question.from_settings(settings)
    size = question.candidates[0].size(question.arms)
    trials = max(ceil(LEAST_WRONG / question.error), TRIALS if size <= 8 else FEWEST)
    if trials * size**2 > FEWEST * LARGE**2:  # about eight seconds
        raise InvalidInputError(
            "this takes too long to simulate here. Choose an equal split, test fewer variants, "
            "allow a larger share of wrong picks, or use steadyarm plan on the command line."
        )
    answer = plan(question, trials, jobs=1)
    (line,) = answer.lines
    chart, pick, clear = sweeps.plan(answer), line.asked, line.clear
    uses = []  # what the form can take over
    if pick.budget is not None:
        uses.append({"budget": pick.budget, "why": "to pick the best"})
    if clear is not None and clear.budget is not None:
        uses.append({"budget": clear.budget, "why": "for a clear answer"})
        if clear.stopping_pays:
            stopping = {"why": "and stop when sure", "looks": str(question.how_often)}
            uses.append({"budget": clear.budget, **stopping})
    return {
        "verdict": answer.verdict.splitlines(),
        "uses": uses,
        "summary": chart["description"],
        "note": note_of(chart),
        "figures": {"light": for_page(chart), "dark": for_page(chart, dark=True)},
    }


# The pages


async def show_form(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show the empty form, or one that describes the same test as another experiment."""
    name = request.query_params.get("from")
    if name is None:
        return _page(viewer, read_form({}), {})
    settings = (await service.find(name)).experiment.settings
    if settings.arms.size > MOST_VARIANTS:
        raise RefusedError("not-found", "The form cannot describe so many variants.", None)
    form = await service.read(lambda: read_form(fields_of(settings)))
    missing = await service.read(not_copied, settings, form)
    return _page(viewer, form, {}, source=name, missing=missing)


async def create(service: Service, request: Request, viewer: Viewer) -> Response:
    """Create the experiment, or show the form again with what is wrong."""
    form = await service.read(read_form, request.state.form)
    if form.errors:
        return _page(viewer, form, form.errors, 422)
    try:
        body = convert(NewExperiment, {"name": form.name, "start": form.start, **form.description})
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
        "duration": duration_text(form),
        "toml": None,
        "python": None,
        "command": None,
    }
    if not form.errors:
        draft = "" if form.start else " --draft"
        answer["toml"] = toml_of({"name": form.name, **form.description})
        answer["python"] = python_of(form)
        answer["command"] = f"steadyarm experiment create {form.name}.toml{draft}"
    return json_response(answer)


def duration_text(form: FilledForm) -> str:
    """The duration of the test in words, as far as it is known."""
    traffic, budget = form.values["traffic"].strip(), form.description.get("budget")
    if budget is None or not traffic or "traffic" in form.errors:
        return ""
    daily = int(re.sub(r"\D", "", traffic))
    return f"{budget:,} visitors take about {counted(ceil(budget / daily), 'day')}."


def _page(
    viewer: Viewer,
    form: FilledForm,
    errors: Mapping[str, str],
    status: int = 200,
    source: str = "",
    missing: Sequence[str] = (),
) -> Response:
    return render(
        "new.html",
        viewer,
        status,
        form=form,
        source=source,
        further=not FURTHER.isdisjoint(errors),
        missing=missing,
        errors=errors,
        summary=[(key, _label(key), text) for key, text in errors.items()],
        choices=CHOICES,
        metric_choices=METRIC_CHOICES,
        new_metric=METRIC,
        planner=PLANNER,
    )


def _label(key: str) -> str:
    _, _, number = key.partition("metric-")
    if number:
        return f"Metric {int(number) + 1}"
    return FIELDS[key][0] if key in FIELDS else "Metrics" if key == "metrics" else ""


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
