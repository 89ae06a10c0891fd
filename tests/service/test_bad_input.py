"""What is wrong is refused with the right status, and nothing is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import convert

from steadyarm.wire.responses import Problem
from tests.service.clients import SHOP, InProcess, in_process

BASE = "/v1/experiments/shop"
DEEP = b"[" * 100_000
CASES: list[tuple[str, str, Any, int]] = [
    ("not json", "assignments", b"{unit: 1}", 400),
    ("nothing", "assignments", b"", 400),
    ("half a character", "assignments", b'{"unit": "\\ud800"}', 400),
    ("deep inside", "assignments", b'{"unit": ' + DEEP, 400),
    ("a list", "assignments", [], 422),
    ("no unit", "assignments", {}, 422),
    ("another key", "assignments", {"unit": "u", "x": 1}, 422),
    ("unit is a number", "assignments", {"unit": 5}, 422),
    ("empty unit", "assignments", {"unit": ""}, 422),
    ("nul in unit", "assignments", {"unit": "a\0b"}, 422),
    ("long unit", "assignments", {"unit": "x" * 513}, 422),
    ("long batch", "assignments:batch", {"units": [str(i) for i in range(1001)]}, 413),
    ("large body", "assignments:batch", {"units": ["x" * 500] * 3000}, 413),
    ("NaN", "rewards", b'{"unit": "known", "reward": NaN}', 400),
    ("Infinity", "rewards", b'{"unit": "known", "reward": Infinity}', 400),
    ("beyond floats", "rewards", b'{"unit": "known", "reward": 1e999}', 422),
    ("too many digits", "rewards", b'{"unit": "known", "reward": 1%s}' % (b"0" * 5000), 400),
    ("out of range", "rewards", {"unit": "known", "reward": 1.5}, 422),
    ("reward is a text", "rewards", {"unit": "known", "reward": "1"}, 422),
    ("both", "rewards", {"unit": "known", "assignment": "x", "reward": 1}, 422),
    ("unknown unit", "rewards", {"unit": "other", "reward": 1}, 404),
    ("foreign id", "rewards", {"assignment": "aaaaaaaa-0-0", "reward": 1}, 404),
    ("long rewards", "rewards:batch", {"rewards": [{"unit": "u", "reward": 1}] * 1001}, 413),
]


def _body(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


@pytest.fixture(scope="module")
def known() -> Any:
    """A client whose shop has one assignment, of the unit known."""
    with in_process() as client:
        client.post("/v1/experiments", SHOP | {"reward_range": [0, 1]})
        client.post(f"{BASE}/assignments", {"unit": "known"})
        yield client


@pytest.mark.parametrize(
    ("path", "content", "status"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_wrong_requests_change_nothing(
    known: InProcess, path: str, content: Any, status: int
) -> None:
    before = known.get(BASE).json()
    answer = known.request("POST", f"{BASE}/{path}", content=_body(content))
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = convert(answer.json(), Problem)
    assert problem.status == status
    assert problem.request_id == answer.headers["x-request-id"]
    assert known.get(BASE).json() == before


NEW = {"name": "new", "arms": ["A", "B"], "budget": 10, "missing": "drop"}
WORDS: list[tuple[str, Any, str | None, str]] = [
    ("shop/assignments", {"user": "v"}, "user", "; the keys are unit, attributes, covariates"),
    ("shop/assignments", {"unit": 3}, "unit", 'unit is 3; expected a text: send it as "3".'),
    ("shop/rewards", {"id": "x", "reward": 1}, "id", "the assignment's id goes into assignment."),
    ("shop/rewards", {"unit": "u"}, None, "give either reward, a number, or metrics"),
    ("", {"window": "1d"}, "window", "; did you mean reward_window?"),
    ("", {"missing": "maybe"}, "missing", "missing is 'maybe'; expected zero, drop or fail: what"),
    ("", {"budget": "1", "seed": "x"}, "budget", "seed is 'x'; expected a whole number"),
    ("", {"budget": 0, "seed": -1}, "budget", "expected a whole number of at least 1."),
    ("", {"budget": 10**30}, "budget", "expected a whole number"),
    ("", {"name": "a/b"}, "name", "name"),
    ("", {"variants": {"one_hot": "A"}, "arms": None}, "arms", "expected a list"),
    ("", {"policy": {"name": "steady", "robustness": "much"}}, "policy", "robustness"),
]


@pytest.mark.parametrize(
    ("path", "content", "field", "words"), WORDS, ids=[str(case[1]) for case in WORDS]
)
def test_what_is_wrong_is_told_in_words(
    known: InProcess, path: str, content: Any, field: str | None, words: str
) -> None:
    body = content if path else NEW | content
    answer = known.post("/v1/experiments" + (path and f"/{path}"), body)
    assert answer.status_code == 422
    problem = convert(answer.json(), Problem)
    assert words in problem.detail
    assert problem.field == field
    assert len(known.get("/v1/experiments").json()["experiments"]) == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/experiments/absent", 404),
        ("/v1/experiments/%00", 404),
        ("/v1/experiments/%F0%9F%98%80", 404),
        ("/", 404),
        (f"{BASE}/recommendation?level=2", 422),
        (f"{BASE}/recommendation?anytime=perhaps", 422),
        (f"{BASE}/drift?periods=0", 422),
        (f"{BASE}/drift?period=3", 422),
        (f"{BASE}/export?format=../x", 422),
    ],
)
def test_wrong_addresses(known: InProcess, path: str, status: int) -> None:
    answer = known.get(path)
    assert answer.status_code == status
    assert convert(answer.json(), Problem).status == status


def test_wrong_methods_name_the_right_one(known: InProcess) -> None:
    answer = known.request("PUT", f"{BASE}/assignments")
    assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")
    several = known.request("PUT", "/v1/experiments")
    assert (several.status_code, several.headers["allow"]) == (405, "GET, POST")
    assert answer.json()["type"] == "urn:steadyarm:problem:method-not-allowed"


def test_a_body_is_cut_off_while_it_comes() -> None:
    import asyncio

    sent = 0

    async def drip() -> Any:
        nonlocal sent
        while sent < 1000:
            sent += 1
            yield b"x" * 1000
            await asyncio.sleep(0)

    with in_process(max_body=10_000) as client:
        client.post("/v1/experiments", SHOP)
        answer = client.request("POST", f"{BASE}/assignments", content=drip())
        assert answer.status_code == 413
        assert answer.headers["connection"] == "close"
