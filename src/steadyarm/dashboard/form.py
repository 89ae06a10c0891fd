"""The form for a new experiment: submitted fields become a description, or errors in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from steadyarm.dashboard.choices import CHOICES, USUAL
from steadyarm.dashboard.typed import Typed, told
from steadyarm.lifecycle import NAME
from steadyarm.policies import POLICIES, policy_named
from steadyarm.settings import LARGEST, UNITS

__all__ = ["MOST_VARIANTS", "Filled", "blank", "read_arms", "read_form"]

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
