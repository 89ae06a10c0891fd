"""What forms send: the fields in a request's body, read once. `form` says what they mean."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import prod
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from steadyarm.live.lifecycle import NAME
from steadyarm.live.settings import LARGEST, UNITS
from steadyarm.policies import POLICIES, policy_named
from steadyarm.service.auth import header_of
from steadyarm.service.problems import RefusedError, read_body

__all__ = [
    "CHOICES",
    "LABELS",
    "MOST_VARIANTS",
    "POLICY_CHOICES",
    "SMALL",
    "USUAL",
    "Filled",
    "Form",
    "Typed",
    "blank",
    "form_of",
    "read_arms",
    "read_form",
    "told",
]

KIND = "application/x-www-form-urlencoded"
KEPT = "steadyarm.form"
FIELDS = 5_000
SMALL = 8_192  # bytes of a form that anybody may send, signed in or not


@dataclass(frozen=True)
class Form:
    """The fields of a form, each with all of its values."""

    values: Mapping[str, list[str]]

    def text(self, name: str, default: str = "") -> str:
        """The last value of a field."""
        return self.values.get(name, [default])[-1]

    def all(self, name: str) -> list[str]:
        """All values of a field, in order."""
        return list(self.values.get(name, ()))


async def form_of(request: Request, most: int) -> Form:
    """The form in a request's body, read once; an empty one if the body is something else."""
    if KEPT in request.scope:
        kept: Form = request.scope[KEPT]
        return kept
    kind = header_of(request.scope, b"content-type").partition(";")[0].strip().lower()
    form = Form({})
    if kind == KIND:
        form = Form(_parsed(await read_body(request, most)))
    request.scope[KEPT] = form
    return form


def _parsed(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS
        )
    except ValueError:
        raise RefusedError(
            "malformed",
            f"The form is not text in UTF-8, or has more than {FIELDS:,} fields.",
            "Load the page anew and try again.",
        ) from None


# Typed: what people type into fields, as numbers and choices, with an error per field in words.


GROUPED = re.compile(r"\d{1,3}(?:[,_' \u00a0\u202f]\d{3})+", re.ASCII)
DIGITS = re.compile(r"\d{1,30}", re.ASCII)
DECIMAL = re.compile(r"[+-]?(?:\d{1,30}(?:[.,]\d{0,30})?|[.,]\d{1,30})", re.ASCII)
SHOWN = 40  # characters of a wrong value that are told


class Typed:
    """The fields of a form; what is missing among them has its usual value.

    Attributes
    ----------
    values : the text of every field, as it was typed
    errors : what is wrong, by field
    """

    def __init__(self, given: Mapping[str, Sequence[str]], usual: Mapping[str, str]) -> None:
        self.values = {key: given[key][-1] if given.get(key) else usual[key] for key in usual}
        self.errors: dict[str, str] = {}

    def text(self, key: str) -> str:
        """Without spaces around it."""
        return self.values[key].strip()

    def wrong(self, key: str, sentence: str) -> None:
        """Note what is wrong; the first word on a field counts."""
        self.errors.setdefault(key, sentence)

    def choice(self, key: str, choices: Collection[str]) -> str | None:
        """One of the choices."""
        if self.text(key) in choices:
            return self.text(key)
        self.wrong(key, f"{told(self.text(key))} is not one of the choices; choose one of them.")
        return None

    def whole(self, key: str, expected: str, least: int = 0, most: int = 2**53 - 1) -> int | None:
        """A whole number, perhaps with separators between thousands."""
        text = self.text(key)
        digits = re.sub(r"\D", "", text) if GROUPED.fullmatch(text) else text
        if DIGITS.fullmatch(digits) and least <= int(digits) <= most:
            return int(digits)
        self._expected(key, expected)
        return None

    def number(
        self, key: str, expected: str, above: float = -math.inf, below: float = math.inf
    ) -> float | None:
        """A number strictly between two others."""
        found = self._decimal(self.text(key))
        if found is not None and above < float(found) < below:
            return float(found)
        self._expected(key, expected)
        return None

    def percent(self, key: str, expected: str) -> float | None:
        """A share, typed in per cent, strictly between 0 and 100."""
        found = self._decimal(self.text(key).removesuffix("%").rstrip())
        if found is not None and 0 < float(found / 100) < 1:
            return float(found / 100)
        self._expected(key, expected)
        return None

    def _decimal(self, text: str) -> Decimal | None:
        if not DECIMAL.fullmatch(text):
            return None
        try:
            return Decimal(text.replace(",", "."))
        except InvalidOperation:
            return None

    def _expected(self, key: str, expected: str) -> None:
        given = self.text(key)
        start = f"This is {told(given)}; expected " if given else "This is empty; expected "
        self.wrong(key, f"{start}{expected}.")


def told(text: str) -> str:
    """What was typed, in quotation marks, cut if it is long."""
    return f"“{text}”" if len(text) <= SHOWN else f"“{text[:SHOWN]}…”"


# Choices of the form for new experiments, each with a sentence for those who have to choose.


POLICY_CHOICES = {
    "Steady": "Recommended. Moves visitors to the variants that can still win, and stays right "
    "when visitors change from day to day.",
    "Uniform": "All variants get the same share throughout. Stays right when visitors change, but "
    "needs more of them.",
    "G-BAI": "A fixed split, worked out beforehand so that all variants are known equally well. "
    "Learns nothing on the way.",
    "P1-RAGE": "Half a fixed split, half on the variants that matter. The published method from "
    "which Steady comes.",
    "P1-Peace": "As P1-RAGE, with another rule for which variants still matter.",
    "Mixed-Peace": "Drops variants step by step, but keeps half of the visitors for a fixed split.",
    "Peace": "Drops variants for good, step by step. Quick in a calm world, misled by a changing "
    "one; waits for all rewards of a step.",
    "OD-LinBAI": "Halves the variants step by step. Quick in a calm world, misled by a changing "
    "one; waits for all rewards of a step.",
    "P1": "The better a variant looks, the more visitors it gets. Treats every variant by itself.",
    "Adjacent-BAI": "A fixed split that compares variants with their neighbours only. Learns "
    "nothing on the way.",
    "Sequential-Halving": "Drops the worse half of the variants, again and again. Quick in a calm "
    "world, misled by a changing one; waits for all rewards of a step.",
    "Linear-Thompson": "Made to earn while testing: the leader soon gets nearly all visitors. "
    "Misled when visitors change.",
    "Top-Two-Thompson": "Compares the leader with its closest rival most of the time. Misled when "
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
        "zero": "It counts as 0: nothing came, so nothing happened. Right if only clicks and "
        "purchases are told",
        "drop": "It was lost: it counts as the average of the same variant. Right if rewards get "
        "lost whatever they are",
        "fail": "It must come: there is no verdict without it",
    },
    "sticky": {
        "unit": "A visitor sees the same variant every time",
        "none": "Every request is drawn anew, such as the subject of a mail",
    },
    "start": {"now": "Start at once", "draft": "Keep it as a draft and start it later"},
}
USUAL = {
    "name": "",
    "kind": "variants",
    "variants": "",
    "interactions": "2",
    "budget": "",
    "policy": "steady",
    "direction": "maximize",
    "range": "click",
    "range_low": "",
    "range_high": "",
    "window": "1",
    "window_unit": "d",
    "missing": "zero",
    "sticky": "unit",
    "control": "",
    "control_share": "",
    "min_share": "",
    "start": "now",
    "seed": "",
}
LABELS = {
    "name": "Name",
    "kind": "What is tested",
    "variants": "Variants",
    "interactions": "How parts work together",
    "budget": "Visitors in all",
    "policy": "Method",
    "direction": "What is better",
    "range": "What a reward is",
    "range_low": "Least reward",
    "range_high": "Largest reward",
    "window": "How long to wait for a reward",
    "window_unit": "Unit of time",
    "missing": "If no reward comes",
    "sticky": "Visitors who come again",
    "control": "Variant with a fixed share",
    "control_share": "Its share",
    "min_share": "Least share of every variant",
    "start": "Start",
    "seed": "Seed",
}


# The form for a new experiment: submitted fields become a description, or errors in words.


MOST_VARIANTS = 2000  # as the service has it
LEAST_ROWS = 4  # of factors, for those without JavaScript
LONGEST_WINDOW = 1e10  # seconds
LINES = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Filled:
    """A form as somebody filled it in.

    Attributes
    ----------
    values : every field but those of factors, as typed
    factors : names and levels of factors, as typed
    errors : what is wrong, by field; empty if all is well
    name, description, start : for `create_from_description`; complete if nothing is wrong
    variants : how many there are, as far as that can be told
    """

    values: Mapping[str, str]
    factors: tuple[tuple[str, str], ...]
    errors: Mapping[str, str]
    name: str
    description: Mapping[str, Any]
    start: bool
    variants: int

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The factors with empty rows below, so that there is room for more."""
        return self.factors + (("", ""),) * max(LEAST_ROWS - len(self.factors), 0)


def blank() -> Filled:
    """The form before anything is typed."""
    return Filled(USUAL, (), {}, "", {}, True, 0)


def read_form(given: Mapping[str, Sequence[str]]) -> Filled:
    r"""What the fields say.

    Examples
    --------
    >>> found = read_form({"name": ["shop"], "variants": ["A\nB"], "budget": ["20,000"]})
    >>> found.description["arms"], found.description["budget"], dict(found.errors)
    (['A', 'B'], 20000, {})
    >>> read_form({"name": ["shop"], "variants": ["A\nB"], "budget": ["many"]}).errors["budget"]
    'This is “many”; expected a whole number of at least 1, such as 10,000.'
    """
    typed = Typed(given, USUAL)
    name = _name(typed)
    arms, variants = read_arms(typed, given)
    description: dict[str, Any] = {
        "arms": arms,
        "budget": typed.whole("budget", "a whole number of at least 1, such as 10,000", least=1),
        "policy": typed.choice("policy", CHOICES["policy"]),
    }
    for key, usual in (("direction", "maximize"), ("sticky", "unit")):
        if (chosen := typed.choice(key, CHOICES[key])) != usual:
            description[key] = chosen
    description |= _rewards(typed)
    description |= _shares(typed, arms, variants)
    if typed.text("seed"):
        description["seed"] = typed.whole(
            "seed", "a whole number from 0 to 2^63 - 1, or nothing", most=2**63 - 1
        )
    start = typed.choice("start", CHOICES["start"])
    return Filled(
        typed.values, _rows(given), typed.errors, name, description, start != "draft", variants
    )


def read_arms(typed: Typed, given: Mapping[str, Sequence[str]]) -> tuple[Any, int]:
    """The variants as a description has them, and how many they are."""
    kind = typed.choice("kind", CHOICES["kind"])
    if kind == "variants":
        names = [line.strip() for line in LINES.split(typed.values["variants"]) if line.strip()]
        _check_names(typed, "variants", names, "variants", "one per line")
        return names, len(names)
    if kind is None:
        return None, 0
    factors: dict[str, list[str]] = {}
    for i, (name, levels) in enumerate(_rows(given)):
        name = name.strip()
        if not name and not levels.strip():
            continue
        if not name:
            typed.wrong(f"factor-{i}", "This part has no name; give it one, such as headline.")
        elif not name.isprintable():
            typed.wrong(f"factor-{i}", "The name has characters that cannot be shown; retype it.")
        elif name in factors:
            typed.wrong(f"factor-{i}", f"There are two parts called {told(name)}; rename one.")
        factors[name] = _levels(levels)
        _check_names(typed, f"levels-{i}", factors[name], "choices", "separated by commas")
    if not factors:
        typed.wrong("factor-0", "There are no parts yet; give at least one, such as headline.")
    count = prod(len(levels) for levels in factors.values()) if factors else 0
    if count > MOST_VARIANTS:
        typed.wrong(
            "factor-0",
            f"These are {count:,} combinations; at most {MOST_VARIANTS:,} can be tested here. "
            "Leave some choices out.",
        )
    interactions = typed.choice("interactions", CHOICES["interactions"])
    return {"factorial": factors, "interactions": int(interactions or 1)}, count


def _name(typed: Typed) -> str:
    name = typed.text("name")
    if not name:
        typed.wrong("name", "The test has no name; give it one, such as checkout-button.")
    elif not NAME.fullmatch(name):
        typed.wrong(
            "name",
            "A name has up to 100 letters from a to z, digits, dots, hyphens and underscores, the "
            "first a letter or digit, such as checkout-button-2.",
        )
    return name


def _rows(given: Mapping[str, Sequence[str]]) -> tuple[tuple[str, str], ...]:
    names, levels = list(given.get("factor", ())), list(given.get("levels", ()))
    count = max(len(names), len(levels))
    names += [""] * (count - len(names))
    levels += [""] * (count - len(levels))
    rows = list(zip(names, levels, strict=True))
    while rows and not "".join(rows[-1]).strip():
        rows.pop()
    return tuple(rows)


def _levels(text: str) -> list[str]:
    """One per line if there are lines, so that commas can be part of them."""
    parts = LINES.split(text.strip())
    if len(parts) == 1:
        parts = parts[0].split(",")
    return [part.strip() for part in parts if part.strip()]


def _check_names(typed: Typed, key: str, names: list[str], what: str, how: str) -> None:
    if len(names) < 2:
        typed.wrong(key, f"There are fewer than two {what}; give at least two, {how}.")
    if len(names) > MOST_VARIANTS:
        typed.wrong(
            key, f"These are {len(names):,} {what}; at most {MOST_VARIANTS:,} can be tested here."
        )
    seen = set()
    for name in names:
        if not name.isprintable():
            typed.wrong(key, f"One of the {what} has characters that cannot be shown; retype it.")
        if name in seen:
            typed.wrong(key, f"{told(name)} is there twice; all {what} must differ.")
        seen.add(name)


def _rewards(typed: Typed) -> dict[str, Any]:
    found: dict[str, Any] = {}
    missing = typed.choice("missing", CHOICES["missing"])
    kind = typed.choice("range", CHOICES["range"])
    if kind == "click":
        found["reward_range"] = [0.0, 1.0]
    elif kind == "custom":
        low = typed.number("range_low", "the least possible reward", -LARGEST, LARGEST)
        high = typed.number("range_high", "the largest possible reward", -LARGEST, LARGEST)
        found["reward_range"] = [low, high]
        if low is not None and high is not None:
            if low >= high:
                typed.wrong("range_high", f"The largest must be more than the least, {low:g}.")
            elif missing == "zero" and not low <= 0 <= high:
                typed.wrong(
                    "missing",
                    f"A reward that did not come would count as 0, which is not between {low:g} "
                    f"and {high:g}; choose another answer here, or other limits.",
                )
    unit = typed.choice("window_unit", CHOICES["window_unit"])
    if typed.text("window") and unit is not None:
        most = LONGEST_WINDOW / UNITS[unit]
        typed.number("window", "a time above 0, such as 2, or nothing", 0.0, most)
        found["reward_window"] = typed.text("window").lstrip("+").replace(",", ".") + unit
    return found | {"missing": missing}


def _shares(typed: Typed, arms: Any, variants: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    control, reserved, free = typed.text("control"), 0.0, variants
    if control or typed.text("control_share"):
        if not control:
            typed.wrong("control", "Whose share this is, is missing; name a variant.")
        elif isinstance(arms, list) and control not in arms:
            typed.wrong("control", f"{told(control)} is none of the variants; name one of them.")
        share = typed.percent("control_share", "a share above 0 and below 100 %, such as 20")
        found["control"] = {control: share}
        reserved, free = share or 0.0, free - 1
    if typed.text("min_share"):
        least = typed.percent("min_share", "a share above 0 and below 100 %, such as 2")
        found["min_share"] = least
        reserved += (least or 0.0) * free
    if reserved >= 1:
        typed.wrong(
            "min_share" if "min_share" in found else "control_share",
            f"These shares reserve {100 * reserved:.3g} % of all visitors; they must leave some.",
        )
    policy = typed.text("policy")
    if found and policy in CHOICES["policy"] and POLICIES[policy_named(policy)].waits:
        typed.wrong(
            "policy",
            "This one shows every variant a fixed number of times and has no room for a fixed "
            "or least share; choose Steady, or leave the shares empty.",
        )
    return found
