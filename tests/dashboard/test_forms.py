"""The form's fields: what they become, and what is said where they are wrong."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyarm.dashboard.forms import CHOICES, USUAL, read_form
from steadyarm.live.lifecycle import create_from_description
from steadyarm.wording import toml_of

GOOD = {"name": "shop", "variants": "now\r\none page\r\n", "budget": "10,000"}
PARTS = {"kind": ["factorial"], "factor": ["head", "image"], "levels": ["short, long", "cat\ndog"]}


def fields(**given: Any) -> dict[str, list[str]]:
    """A good form with other values, one or a list for each."""
    all_of_them = GOOD | given
    return {key: [v] if isinstance(v, str) else list(v) for key, v in all_of_them.items()}


def test_name_variants_and_budget_are_enough_for_a_good_test() -> None:
    filled = read_form(fields())
    assert not filled.errors
    assert filled.start
    assert filled.variants == 2
    settings = create_from_description(filled.name, filled.description, "memory").settings
    assert settings.arms.names == ("now", "one page")
    assert settings.policy.name == "Steady"
    assert (settings.budget, settings.reward_range) == (10_000, (0.0, 1.0))
    assert (settings.reward_window, settings.missing) == (86_400.0, "zero")
    assert settings.cautions() == []


def test_a_test_may_end_early() -> None:
    assert not {"stop", "looks"} & read_form(fields()).description.keys()
    for chosen, stop in (("sure", "when sure"), ("recommend", "recommend")):
        found = read_form(fields(stop=chosen, looks="8")).description
        assert (found["stop"], found["looks"]) == (stop, 8)
    weekly = read_form(fields(stop="sure"))
    assert weekly.settings is not None
    assert weekly.settings.looks == "weekly"
    refused = read_form(fields(stop="sure", policy="peace"))
    assert "leaves variants out" in refused.errors["stop"]


def test_all_fields_are_told() -> None:
    filled = read_form(
        fields(
            policy="p1-rage",
            direction="minimize",
            range="custom",
            range_low="-1,5",
            range_high="5",
            window="1.5",
            window_unit="h",
            missing="drop",
            sticky="none",
            control="now",
            control_share="20 %",
            min_share="0.7",
            start="draft",
            seed="12",
        )
    )
    assert not filled.errors
    assert not filled.start
    assert filled.description == {
        "arms": ["now", "one page"],
        "budget": 10_000,
        "policy": "p1-rage",
        "direction": "minimize",
        "reward_range": [-1.5, 5.0],
        "reward_window": "1.5h",
        "missing": "drop",
        "sticky": "none",
        "control": {"now": 0.2},
        "min_share": 0.007,
        "seed": 12,
    }
    made = create_from_description(filled.name, filled.description, "memory").settings
    assert made.reward_window == 5400.0


@pytest.mark.parametrize("variants", [["now", "one page"], [str(k) for k in range(400)]])
def test_the_control_is_one_of_the_variants_and_needs_no_share(variants: list[str]) -> None:
    filled = read_form(fields(variants="\n".join(variants), control=variants[0]))
    assert not filled.errors
    assert filled.description["control"] == variants[0]
    assert list(filled.names) == variants[:300]
    made = create_from_description("x", filled.description, "memory").settings
    assert (made.control, made.control_share) == (variants[0], None)
    assert "control" not in read_form(fields(control="")).description


def test_parts_become_combinations() -> None:
    filled = read_form(fields(**PARTS, interactions="1"))
    assert not filled.errors
    assert filled.variants == 4
    assert filled.description["arms"] == {
        "factorial": {"head": ["short", "long"], "image": ["cat", "dog"]},
        "interactions": 1,
    }
    made = create_from_description("x", filled.description, "memory").settings
    assert made.arms.names[1] == "head=short, image=dog"


def test_lines_may_hold_commas_and_empty_rows_do_not_count() -> None:
    given = {"kind": "factorial", "factor": ["", "a", ""], "levels": ["", "x, y\nz", " "]}
    filled = read_form(fields(**given))
    assert not filled.errors
    assert filled.description["arms"]["factorial"] == {"a": ["x, y", "z"]}
    assert filled.parts == (("", ""), ("a", "x, y\nz"))
    assert len(filled.rows) == 4


@pytest.mark.parametrize(
    ("wrong", "key", "said"),
    [
        ({"name": ""}, "name", "This is empty; expected up to 100 letters"),
        ({"name": "a b"}, "name", "up to 100 letters"),
        ({"name": "<script>"}, "name", "up to 100 letters"),
        ({"variants": "one"}, "variants", "a test needs at least 2"),
        ({"variants": "a\nb\na"}, "variants", "names must differ"),
        ({"variants": "a\nb\x07"}, "variants", "a string that can be read"),
        ({"variants": "\n".join(map(str, range(2001)))}, "variants", "2,001 variants; at most"),
        ({"kind": "else"}, "kind", "“else” is not one of the choices"),
        ({"kind": "factorial"}, "factor-0", "no parts yet"),
        ({"kind": "factorial", "factor": ["a"], "levels": ["x"]}, "levels-0", "needs at least 2"),
        ({"kind": "factorial", "factor": [""], "levels": ["x,y"]}, "factor-0", "has no name"),
        (
            {"kind": "factorial", "factor": ["a", "a"], "levels": ["x,y", "x,y"]},
            "factor-1",
            "two parts called “a”",
        ),
        (
            {"kind": "factorial", "factor": list("abcdefghijk"), "levels": ["x,y"] * 11},
            "factor-0",
            "2,048 combinations; at most 2,000",
        ),
        (PARTS | {"interactions": "3"}, "interactions", "not one of the choices"),
        ({"budget": ""}, "budget", "This is empty; expected a whole number"),
        ({"budget": "0"}, "budget", "This is 0; expected a whole number of at least 1."),
        ({"budget": "10.000"}, "budget", "This is “10.000”"),
        ({"budget": "9" * 31}, "budget", "expected a whole number"),
        ({"budget": str(2**53)}, "budget", "expected a whole number of at most"),
        ({"budget": "٣"}, "budget", "expected a whole number"),
        ({"policy": "best"}, "policy", "not one of the choices"),
        ({"range": "custom", "range_low": "", "range_high": "1"}, "range_low", "This is empty"),
        (
            {"range": "custom", "range_low": "2", "range_high": "1"},
            "range_high",
            "the first to be below the second",
        ),
        ({"range": "custom", "range_low": "1", "range_high": "5"}, "missing", "(1 to 5)"),
        ({"range": "custom", "range_low": "nan", "range_high": "5"}, "range_low", "“nan”"),
        ({"window": "0"}, "window", "a number above 0"),
        ({"window": "99999999999"}, "window", "a time above 0"),
        ({"control": "else", "control_share": "20"}, "control", "which is no variant"),
        ({"control": "else"}, "control", "which is no variant"),
        ({"control_share": "20"}, "control", "Choose the control"),
        ({"control": "now", "control_share": "100"}, "control_share", "below 100 %"),
        ({"min_share": "50"}, "min_share", "reserve 100 %"),
        ({"min_share": "1", "policy": "peace"}, "policy", "no room"),
        ({"seed": "-1"}, "seed", "expected a whole number"),
        ({"seed": str(2**63)}, "seed", f"at most {2**63 - 1}"),
        ({"start": "later"}, "start", "not one of the choices"),
    ],
)
def test_errors_say_what_is_wrong(wrong: dict[str, Any], key: str, said: str) -> None:
    filled = read_form(fields(**wrong))
    assert list(filled.errors) == [key]
    assert said in filled.errors[key]
    for field, value in wrong.items():
        if field not in ("factor", "levels") and isinstance(value, str):
            assert filled.values[field] == value


@given(st.dictionaries(st.sampled_from([*USUAL, "factor", "levels"]), st.lists(st.text())))
def test_any_form_is_read_and_what_was_typed_stays(given: dict[str, list[str]]) -> None:
    filled = read_form(given)
    for key in USUAL:
        assert filled.values[key] == (given[key][-1] if given.get(key) else USUAL[key])


@given(
    st.lists(st.text(min_size=1), min_size=2, max_size=5),
    st.integers(1, 2**53 - 1),
    st.sampled_from(sorted(CHOICES["missing"])),
    st.sampled_from(sorted(CHOICES["window_unit"])),
)
def test_a_form_without_errors_makes_the_test_of_its_file(
    names: list[str], budget: int, missing: str, unit: str
) -> None:
    given = fields(
        variants="\n".join(names), budget=str(budget), missing=missing, window_unit=unit, seed="1"
    )
    filled = read_form(given)
    if filled.errors:
        assert set(filled.errors) == {"variants"}
        return
    read = tomllib.loads(toml_of({"name": filled.name, **filled.description}))
    assert read.pop("name") == filled.name
    assert read == filled.description
