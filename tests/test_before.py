"""Nothing is lost: files written before the package got its present layout still do what they did.

``tests/before/write.py`` recorded them at commit 3811ca1: sessions, databases, an export and the
OpenAPI document. Here they are read again, and the tests in them are carried on. Assignments and
estimates must be the same to the bit, errors and intervals to nine digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from steadyarm.service.routes import ROUTES
from steadyarm.storages import storage_status, upgrade_storage
from tests.before import play

# What may differ, and why. A place is written as by `_leaves`, and holds all that lies below it.
# With large sets only designs are free to change: the session and the experiment on one stand in a
# long segment, so a better solver may change no more than whether a replay agrees with old designs.
_SOLVER = "designs of large sets come from another solver, so that a replay differs in its arms"
_EARLY = "while rewards are missing, a new allocation rests on those that have come"
# Steady chooses other allocations than it did: what was assigned and stored stays as it is, but a
# replay, which chooses them again, differs from it, and tests go on with allocations of today.
_STEADY = "Steady chooses its allocations by another rule"
OUTCOMES_MAY_DIFFER: dict[str, str] = {
    **{f"/sessions/steady/{part}": _STEADY for part in ("next", "verdict")},
    **{
        f"/databases/database.db/{name}/{part}": _STEADY
        for name in ("leased", "factorial")
        for part in ("next", "in the end")
    },
    **{
        f"/{place}/{when}/replay agrees": _STEADY
        for place in (
            *(f"databases/database.db/{name}" for name in ("corrected", "factorial", "running")),
            *("databases/database.db/leased", "databases/older-0004.db/steady", "export"),
        )
        for when in ("at first", "in the end")
    },
    "/databases/database.db/large/at first/replay agrees": _SOLVER,
    "/databases/database.db/large/in the end/replay agrees": _SOLVER,
    **{
        f"{place}/{what}": _EARLY
        for place in (
            *("/databases/database.db/leased", "/databases/older-0002.db/p1-rage"),
            "/export",
        )
        for what in ("next", "in the end/status", "in the end/verdict")
    },
}
_RULE = "a rule of settings, which a request no longer repeats; wrong values are refused as before"
_TIME = "the format stands beside the type that it is of, no longer beside null"
_FIELD = "new: which field is wrong, what was given and what was expected"
_LIFT = "new: the control, what to do, and by how much each variant differs from the control"
_CONTROL = "a control may have no share, so its name and its share stand side by side"
_METRICS = "new: values of metrics, each made of one event or of several, and what is known of them"
_STOPPING = "new: tests that may stop early, and the looks at them"
_LEVELS = "new: attributes of units, and what is known of each of their levels"
_COVARIATES = "new: numbers that are known of units, and estimates with and without them"
_FLAGS = "new: flags of OpenFeature, and events that name no experiment"
_SCHEMA, _NEW = "/components/schemas", "/components/schemas/NewExperiment/properties"
_SETTINGS, _FOUND = f"{_SCHEMA}/SettingsAnswer", f"{_SCHEMA}/Recommendation"
_VALUES = "new: what variants stand for"
_AFTER = "new: what is shown outside of a test, and roll-outs"
_HOOKS = "new: webhooks"
_KEYS = "new: publishable keys, which a request may have in another header"
OPENAPI_MAY_DIFFER: dict[str, str] = {
    **{
        f"{_SCHEMA}/{place}": _VALUES
        for place in (
            *("AssignmentAnswer/properties/value", "AssignmentAnswer/required/6"),
            *("NewExperiment/properties/values", "SettingsAnswer/properties/values"),
            "SettingsAnswer/required/20",
        )
    },
    **{
        f"{_SCHEMA}/{place}": _AFTER
        for place in (
            *("AssignmentAnswer/properties/in_test", "AssignmentAnswer/required/7"),
            "AssignmentAnswer/properties/probability",  # null outside of the test
            *(
                f"{answer}/{part}"
                for answer in ("CreatedExperiment", "ExperimentAnswer")
                for part in ("properties/outside", "properties/roll_out", "required")
            ),
            *("NewExperiment/properties/after", "SettingsAnswer/properties/after"),
            *("SettingsAnswer/required/22", "NewRollOut", "OutsideAnswer", "RollOutAnswer"),
            "NewReward/properties/assignment/anyOf/0/minLength",  # empty outside of the test
            "RewardStatus/properties/status",
        )
    },
    "/paths/~1v1~1experiments~1{name}~1roll-out": _AFTER,
    **{
        f"{_SCHEMA}/{place}": _HOOKS
        for place in (
            *("Deliveries", "DeliveryAnswer", "NewWebhook", "WebhookAnswer", "WebhookList"),
            "WebhookWithSecret",
        )
    },
    **{
        f"/paths/~1v1~1webhooks{path}": _HOOKS
        for path in (
            *("", "~1{webhook}", "~1{webhook}~1deliveries", "~1{webhook}~1enable"),
            *("~1{webhook}~1rotate", "~1{webhook}~1test"),
            "~1{webhook}~1deliveries~1{delivery}~1resend",
        )
    },
    "/components/securitySchemes/key": _KEYS,
    **{
        f"/paths/~1v1~1experiments~1{{name}}~1{what}/post/parameters/1": _KEYS
        for what in ("assignments", "rewards", "rewards:batch")
    },
    **{
        f"/paths/{route.path.replace('/', '~1')}/{route.method.lower()}/security/1": _KEYS
        for route in ROUTES
        if route.scope is not None
    },
    **{
        f"{_SCHEMA}/{place}": _FLAGS
        for place in (
            *("Evaluation", "FlagAnswer", "FlagAnswers", "FlagMetadata", "FlagProblem"),
            *("NewEvent", "NewEvents", "EventStatus", "RefusedEvent", "EventAnswer"),
            *("EventAnswers", "NewExperiment/properties/bulk", "SettingsAnswer/properties/bulk"),
            "SettingsAnswer/required/21",
        )
    },
    "/tags": _FLAGS,
    **{
        f"/paths/{path.replace('/', '~1')}": _FLAGS
        for path in (
            *("/ofrep/v1/evaluate/flags", "/ofrep/v1/evaluate/flags/{name}"),
            *("/v1/events", "/v1/events:batch"),
        )
    },
    **{
        f"{_NEW}/{place}": _RULE
        for place in (
            *("budget/exclusiveMaximum", "budget/minimum", "name/pattern"),
            *("min_share/anyOf/0/additionalProperties", "min_share/anyOf/1"),
            *("reward_range/anyOf/0", "seed/anyOf/0"),
        )
    },
    **{
        f"{_SCHEMA}/{place}/{part}": _TIME
        for place in (
            *("NewCorrection/properties/since", "NewCorrection/properties/until"),
            *("NewReward/properties/at", "NewReward/properties/sent", "NewRewards/properties/sent"),
        )
        for part in ("format", "anyOf/0/format")
    },
    **{f"{_SCHEMA}/Problem/properties/{name}": _FIELD for name in ("field", "given", "expected")},
    **{
        f"{_SCHEMA}/ArmEstimate/properties/{name}": _LIFT
        for name in (
            *("lift", "lift_low", "lift_high"),
            *("relative", "relative_low", "relative_high"),
        )
    },
    **{f"{_SCHEMA}/ArmEstimate/required/{place}": _LIFT for place in range(9, 15)},
    f"{_SCHEMA}/DecisionAnswer": _LIFT,
    **{f"{_FOUND}/properties/{name}": _LIFT for name in ("control", "decision")},
    **{f"{_FOUND}/required/{place}": _LIFT for place in (18, 19)},
    f"{_NEW}/control": _CONTROL,
    **{f"{_SETTINGS}/properties/{name}": _CONTROL for name in ("control", "control_share")},
    **{f"{_SETTINGS}/required/{place}": _CONTROL for place in (11, 12)},
    **{
        f"{_SCHEMA}/{place}": _METRICS
        for place in (
            *("MetricAnswer", "MetricEstimate", "Recommendation/properties/metrics"),
            *("NewReward/properties/metrics", "NewReward/properties/event"),
            # a reward may be left out beside metrics
            *("NewReward/properties/reward", "NewReward/required"),
            *("NewExperiment/properties/metrics", "SettingsAnswer/properties/metrics"),
        )
    },
    **{
        f"{_SCHEMA}/{place}": _STOPPING
        for place in (
            *("LookAnswer", "StoppingAnswer", "Recommendation/properties/stopping"),
            "Recommendation/required/22",
            *(f"SettingsAnswer/required/{place}" for place in range(16, 20)),
            *(
                f"{schema}/properties/{name}"
                for schema in ("NewExperiment", "SettingsAnswer")
                for name in ("stop", "looks", "spending", "futility")
            ),
        )
    },
    f"{_FOUND}/required/20": _METRICS,
    f"{_SETTINGS}/required/14": _METRICS,
    **{
        f"{_SCHEMA}/{place}": _LEVELS
        for place in (
            *("BreakdownAnswer", "LevelAnswer", "ComparedEstimate"),
            *("NewAssignment/properties/attributes", "NewAssignments/properties/attributes"),
            *("NewExperiment/properties/attributes", "SettingsAnswer/properties/attributes"),
            "UsedPosition/properties/attributes",
        )
    },
    "/paths/~1v1~1experiments~1{name}~1breakdowns~1{attribute}": _LEVELS,
    f"{_SETTINGS}/required/13": _LEVELS,
    **{
        f"{_SCHEMA}/{place}": _COVARIATES
        for place in (
            *("NewAssignment/properties/covariates", "NewAssignment/properties/expected"),
            *("NewAssignments/properties/covariates", "NewAssignments/properties/expected"),
            *("UsedPosition/properties/covariates", "UsedPosition/properties/expected"),
            *("NewExperiment/properties/covariates", "SettingsAnswer/properties/covariates"),
            *("ArmEstimate/properties/raw", "ArmEstimate/required/15"),
            "Recommendation/properties/variance_kept",
        )
    },
    f"{_FOUND}/required/21": _COVARIATES,
    f"{_SETTINGS}/required/15": _COVARIATES,
}

# Recorded with functions of SciPy; quantiles are searched in arithmetic of our own since.
ROUGH = ("/standard errors/", "/intervals/")


def _read(name: str, folder: Path) -> str:
    return play.unpack(name, folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return json.loads(_read("expected.json", tmp_path_factory.mktemp("before")))


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text of a document with the way to it, such as /sessions/peace/next/3/1."""
    if isinstance(value, Mapping) and value:
        for key in value:
            yield from _leaves(value[key], f"{place}/{str(key).replace('/', '~1')}")
    elif isinstance(value, list) and value:
        for k, each in enumerate(value):
            yield from _leaves(each, f"{place}/{k}")
    else:
        yield place, value


def _same(place: str, found: Any, recorded: Any) -> bool:
    if found == "outside":  # a test that is over shows a variant in place of an error
        return recorded in ("BudgetSpentError", "WrongStateError")
    numbers = isinstance(found, float) and isinstance(recorded, float)
    if numbers and any(part in place for part in ROUGH):
        return math.isclose(found, recorded, rel_tol=1e-7, abs_tol=1e-12)
    return type(found) is type(recorded) and bool(found == recorded)


def _differences(found: Any, recorded: Any, place: str, allowed: Mapping[str, str]) -> list[str]:
    """Where two documents differ, a line each; `place` is where they stand."""
    missing = "nothing"
    new, old = dict(_leaves(_plain(found), place)), dict(_leaves(recorded, place))
    return [
        f"{at}: {new.get(at, missing)!r}, was {old.get(at, missing)!r}"
        for at in sorted(new.keys() | old.keys())
        if not (at in new and at in old and _same(at, new[at], old[at]))
        and not any(at == known or at.startswith(f"{known}/") for known in allowed)
    ]


def _plain(document: Any) -> Any:
    """The document as JSON gives it back."""
    return json.loads(play.canonical(document))


def _contract(schema: Any) -> Any:
    """What an OpenAPI document promises: without prose, and written in one of several ways."""
    if isinstance(schema, list):
        return [_contract(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    prose = ("title", "description", "summary")
    found = {
        key: _contract(value)
        for key, value in schema.items()
        if not (key in prose and isinstance(value, str))
    }
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if "enum" in found:
        found["enum"] = sorted(found["enum"])
        found.pop("type", None)
    usual = {"additionalProperties": True, "items": {}, "required": []}
    found = {key: value for key, value in found.items() if usual.get(key, ...) != value}
    if "prefixItems" in found:
        found.pop("items", None)
    return found


def _compare(found: Any, recorded: Any, place: str) -> None:
    differences = _differences(found, recorded, place, OUTCOMES_MAY_DIFFER)
    assert not differences, "\n".join(differences[:20])


SESSIONS = ["large", "linear-thompson", "p1-rage", "peace", "steady"]


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_goes_on_as_it_would_have(name: str, expected: Any, tmp_path: Path) -> None:
    text = _read(f"session-{name}.json", tmp_path)
    found = play.session_outcome(text, whole=name != "large")
    _compare(found, expected["sessions"][name], f"/sessions/{name}")


@pytest.mark.parametrize("file", [play.DATABASE, *play.OLDER])
def test_experiments_of_a_database_go_on_as_they_would_have(
    file: str, expected: Any, tmp_path: Path
) -> None:
    url = play.url_of(play.unpack(file, tmp_path))
    upgrade_storage(url)
    assert storage_status(url).state == "current"
    for name, recorded in expected["databases"][file].items():
        found = play.live_outcome(name, url, **recorded["how"])
        _compare(found, recorded["outcome"], f"/databases/{file}/{name}")


def test_older_databases_are_older(tmp_path: Path) -> None:
    for file in play.OLDER:
        status = storage_status(play.url_of(play.unpack(file, tmp_path)))
        assert (status.state, f"older-{status.revision}.db") == ("older", file)


def test_an_export_is_imported_and_goes_on(expected: Any, tmp_path: Path) -> None:
    _compare(play.export_outcome(tmp_path), expected["export"], "/export")


def test_the_openapi_document_promises_what_it_did(tmp_path: Path) -> None:
    recorded = json.loads(_read("openapi.json", tmp_path))
    found, expected = _contract(play.openapi()), _contract(recorded)
    differences = _differences(found, expected, "", OPENAPI_MAY_DIFFER)
    assert not differences, "\n".join(differences[:20])


def test_all_that_was_recorded_is_compared(expected: Any) -> None:
    assert sorted(expected["sessions"]) == SESSIONS
    assert sorted(expected["databases"]) == sorted([play.DATABASE, *play.OLDER])
    packed = {path.name for path in play.FOLDER.glob("*.gz")}
    files = [f"session-{name}.json" for name in SESSIONS] + ["expected.json", "openapi.json"]
    assert packed == {f"{file}.gz" for file in [*files, *expected["databases"], *play.EXPORT]}


def test_differences_are_found_and_may_be_allowed() -> None:
    recorded = {"a": {"b/c": [1, 0.1], "intervals": [0.5]}, "d": "text"}
    found = {"a": {"b/c": [1, 0.1 + 2e-17, 2], "intervals": [0.5 + 1e-12]}, "d": "other"}
    told = ["x/a/b~1c/1: 0.10000000000000002, was 0.1", "x/a/b~1c/2: 2, was 'nothing'"]
    assert _differences(found, recorded, "x", {"x/d": "worded better"}) == told
    assert _differences(found, recorded, "x", {"x": "all is new"}) == []
    assert _differences(recorded, recorded, "x", {}) == []
