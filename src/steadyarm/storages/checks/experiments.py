"""Checks of experiments: created, found, listed, moved through their states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from steadyarm.errors import ExperimentExistsError, UnknownExperimentError, WrongStateError
from steadyarm.storages.checks.bench import (
    FLOATS,
    NAMES,
    NOW,
    SEED,
    Check,
    Open,
    new_experiment,
    refused,
)
from steadyarm.storages.checks.looking import same, text_of
from steadyarm.storages.records import MOVES, ExperimentState

__all__ = ["CHECKS"]

STATES: tuple[ExperimentState, ...] = get_args(ExperimentState)


def check_create_and_find(open_storage: Open) -> None:
    """What was created is found again, under any name, as it was given."""
    storage = open_storage()
    config = {"seed": SEED, "arms": ["a", "ü"], "none": None, "yes": True, "floats": list(FLOATS)}
    state = {"theta": [list(FLOATS)], "whole": 2**60 + 1, "text": "'\"\\ 試験"}
    for i, name in enumerate(NAMES):
        made = storage.create(name, f"tag{i}", "draft", config, state, NOW + i)
        assert made.name == name, f"the name {name!r} became {made.name!r}"
        assert (made.tag, made.state, made.created) == (f"tag{i}", "draft", NOW + i)
        assert (made.version, made.observed) == (0, 0), "a new experiment has had decisions"
        assert text_of(made.config) == text_of(config), "the config is not kept to the last bit"
        assert text_of(made.policy_state) == text_of(state), (
            "the policy's state is not kept exactly"
        )
        for found in (storage.find(name), open_storage().find(name)):
            assert same(found, made), "find gives another record than create"
        assert storage.snapshot(made.key, everything=True).segments == (), "it has segments"
        assert (storage.log(made.key), storage.leases(made.key)) == ([], ()), "it has assignments"
    keys = [storage.find(name).key for name in NAMES]
    assert len(set(keys)) == len(NAMES), "two experiments share a key"


def check_what_is_stored_is_a_copy(open_storage: Open) -> None:
    """Changing a config or state after it was given changes nothing in the storage."""
    storage = open_storage()
    config: dict[str, Any] = {"seed": 1, "arms": ["a", "b"]}
    state: dict[str, Any] = {"list": [1.5]}
    storage.create("e", "t", "draft", config, state, NOW)
    config["arms"].append("c")
    state["list"][0] = 2.5
    found = storage.find("e")
    assert found.config["arms"] == ["a", "b"], "the config follows the caller's later changes"
    assert found.policy_state["list"] == [1.5], "the state follows the caller's later changes"


def check_unknown_experiment(open_storage: Open) -> None:
    """Names are exact; an unknown one is refused, and similar ones are named."""
    storage = open_storage()
    refused(UnknownExperimentError, "find in an empty storage", storage.find, "x")
    new_experiment(storage, "checkout-button")
    new_experiment(storage, "unrelated")
    for near in ("checkout-buton", "Checkout-button", "checkout-button "):
        said = refused(UnknownExperimentError, f"find({near!r})", storage.find, near)
        assert "checkout-button" in said, f"the error does not name the similar one: {said}"
    assert "unrelated" not in said, "the error names one that is not similar"


def check_taken_name(open_storage: Open) -> None:
    """A name is taken once, and the one who has it is left alone."""
    storage = open_storage()
    made = new_experiment(storage, "e")
    refused(ExperimentExistsError, "create with a taken name", new_experiment, storage, "e")
    assert same(storage.find("e"), made), "a refused create changed the experiment"
    assert len(storage.experiments()) == 1, "a refused create left something"


def check_list_in_order(open_storage: Open) -> None:
    """All experiments are listed, in the order of their creation."""
    storage = open_storage()
    assert storage.experiments() == [], "a fresh storage is not empty"
    names = ["m", "z", "a", "k", "B"]
    made = [new_experiment(storage, name) for name in names]
    storage.move(made[1].key, "paused")
    for listed in (storage.experiments(), open_storage().experiments()):
        assert [e.name for e in listed] == names, "experiments are not in order of creation"
        assert same(listed[2], made[2]), "experiments() gives another record than create"


def check_moves(open_storage: Open) -> None:
    """Of all pairs of states, those in MOVES are allowed, and staying is."""
    storage = open_storage()
    for begin in STATES:
        for to in STATES:
            made = new_experiment(storage, f"{begin} to {to}", state=begin)
            if to == begin or begin in MOVES[to]:
                moved = storage.move(made.key, to)
                assert same(moved, replace(made, state=to)), f"{begin} to {to} changed more"
            else:
                promise = f"moving from {begin} to {to}"
                refused(WrongStateError, promise, storage.move, made.key, to)
                moved = made
            found = open_storage().find(made.name)
            assert same(found, moved), f"after {begin} to {to} the state is {found.state}"


CHECKS: tuple[Check, ...] = (
    check_create_and_find,
    check_what_is_stored_is_a_copy,
    check_unknown_experiment,
    check_taken_name,
    check_list_in_order,
    check_moves,
)
