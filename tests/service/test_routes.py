"""Every route does what the contract says, and what is wrong is refused and changes nothing."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pyarrow.parquet
import pytest
from msgspec import convert

from steadyarm.wire.responses import Problem
from tests.service.clients import SHOP, InProcess, add_token, bearer, in_process, until

BASE = "/v1/experiments/shop"
SLOTS = {f"slot {i}": ["off", "on"] for i in range(16)}
WHY = "a monitor of our own"


def test_the_life_of_a_test(client: InProcess) -> None:
    created = client.post("/v1/experiments", SHOP | {"start": False})
    assert created.status_code == 201
    again = SHOP | {"start": False, "load_if_exists": True}
    assert client.post("/v1/experiments", again).status_code == 200
    for body in (SHOP, again | {"budget": 7}):
        refused = client.post("/v1/experiments", body)
        assert refused.json()["type"] == "urn:steadyarm:problem:experiment-exists"
    (listed,) = client.get("/v1/experiments").json()["experiments"]
    assert (listed["name"], listed["state"], listed["arms"]) == ("shop", "draft", 3)
    early = client.post(f"{BASE}/assignments", {"unit": "u"})
    assert early.json()["type"] == "urn:steadyarm:problem:wrong-state"
    assert client.post(f"{BASE}/start").json()["state"] == "running"
    for path in ("recommendation", "health", "drift"):
        early = client.get(f"{BASE}/{path}")
        assert early.json()["type"] == "urn:steadyarm:problem:rewards-pending"
    assert client.get(f"{BASE}/allocation").status_code == 404

    units = [f"u{i}" for i in range(600)]
    given = client.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    rewards = [{"assignment": a["id"], "reward": float(a["arm"] == "B")} for a in given]
    client.post(f"{BASE}/rewards:batch", {"rewards": rewards})
    found = client.get(f"{BASE}/recommendation", params={"level": 0.9, "anytime": True}).json()
    assert (found["arm"], found["level"], found["anytime"]) == ("B", 0.9, True)
    assert client.get(f"{BASE}/health").json()["status"] == "ok"
    assert client.get(f"{BASE}/drift", params={"periods": 2}).json()["names"] == ["A", "B", "C"]
    shares = client.get(f"{BASE}/allocation").json()["weights"]
    assert sum(shares.values()) == pytest.approx(1)
    replay = client.get(f"{BASE}/replay").json()
    assert (replay["agrees"], replay["assignments"]) == (True, 600)
    text = client.get(f"{BASE}/export")
    assert text.headers["content-type"].startswith("text/csv")
    assert len(text.text.strip().splitlines()) == 601
    table = client.get(f"{BASE}/export", params={"format": "parquet"})
    assert pyarrow.parquet.read_table(BytesIO(table.content)).num_rows == 600
    for action, state in (
        ("pause", "paused"),
        ("resume", "running"),
        ("stop", "stopped"),
        ("archive", "archived"),
    ):
        if action == "archive":  # after a stop that was a mistake
            why = {"reason": "a mistake"}
            assert client.post(f"{BASE}/reopen", why).json()["state"] == "running"
            assert client.post(f"{BASE}/reopen", why).status_code == 409
            assert client.post(f"{BASE}/stop").json()["state"] == "stopped"
        assert client.post(f"{BASE}/{action}").json()["state"] == state
    assert client.post(f"{BASE}/start").status_code == 409


def test_experiments_are_listed_page_by_page(shop: InProcess) -> None:
    for i in range(4):
        shop.post("/v1/experiments", SHOP | {"name": f"t{i}"})
    names, cursor = list[str](), 0
    while cursor is not None:
        answer = shop.get("/v1/experiments", params={"limit": 2, "cursor": cursor}).json()
        assert len(answer["experiments"]) <= 2
        names += [one["name"] for one in answer["experiments"]]
        cursor = answer["next"]
    assert names == ["shop", "t0", "t1", "t2", "t3"]
    assert shop.get("/v1/experiments", params={"limit": 0}).status_code == 422


def test_batches_answer_in_order_with_errors_in_place(shop: InProcess) -> None:
    units = ["a", "", "b", "a", "x" * 513, "nul\0", 3, None, {"id": 3}]
    answers = shop.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    assert [answer["unit"] for answer in answers] == units
    assert [answer.get("new") for answer in answers] == [True, None, True, False, *5 * [None]]
    assert {answer["error"]["status"] for answer in answers if "error" in answer} == {422}
    expected: list[tuple[Any, Any]] = [
        ({"assignment": answers[0]["id"], "reward": 1}, "stored"),
        ({"unit": "b", "reward": 0}, "stored"),
        ({"unit": "nobody", "reward": 0}, 404),
        ({"assignment": "b", "reward": 0}, 404),
        ({"unit": "a", "reward": 0}, 409),
        ({"unit": "a", "reward": 1}, "repeated"),
        ({"id": answers[0]["id"], "reward": 1}, 422),
        ("a", 422),
    ]
    rewards = [reward for reward, _ in expected]
    told = shop.post(f"{BASE}/rewards:batch", {"rewards": rewards}).json()["rewards"]
    outcomes = [entry.get("status") or entry["error"]["status"] for entry in told]
    assert outcomes == [outcome for _, outcome in expected]
    assert sum(shop.get(BASE).json()["assigned"].values()) == 2


def test_windows_close_by_themselves() -> None:
    with in_process() as client:
        client.post("/v1/experiments", SHOP | {"budget": 20, "reward_window": 0.2})
        units = [f"u{i}" for i in range(20)]
        client.post(f"{BASE}/assignments:batch", {"units": units})
        until(lambda: client.get(BASE).json()["observed"])
        late = client.post(f"{BASE}/rewards", {"unit": "u1", "reward": 1})
        assert late.json()["type"] == "urn:steadyarm:problem:reward-too-late"


def test_two_thousand_variants_that_share_nothing(client: InProcess) -> None:
    arms = [f"variant {k}" for k in range(2000)]
    assert client.post("/v1/experiments", SHOP | {"arms": arms}).status_code == 201
    assert client.get(BASE).json()["totals"]["variants"] == 2000


def test_corrections_count_at_once_and_say_who(client: InProcess) -> None:
    token = add_token(client.app.state.service.storage, "ada")
    client.app.state.service.guard.reload()
    client._client.headers.update(bearer(token))
    client.post("/v1/experiments", SHOP)
    units = [f"u{i}" for i in range(10)]
    given = client.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    rewards = [{"unit": unit, "reward": 1} for unit in units[:8]]
    client.post(f"{BASE}/rewards:batch", {"rewards": rewards})
    path = f"{BASE}/corrections"
    done = client.post(path, {"kind": "void", "assignment": given[0]["id"], "reason": WHY})
    assert (done.status_code, done.json()["assignments"]) == (201, 1)
    assert client.post(path, {"kind": "exclude", "unit": "u2", "reason": WHY}).is_success
    totals = client.get(BASE).json()["totals"]
    assert (totals["assigned"], totals["rewarded"], totals["excluded"]) == (10, 6, 1)
    assert client.post(path, {"kind": "erase", "unit": "u3"}).is_success
    told = client.get(path).json()["corrections"]
    actions = ["reward.voided", "visits.excluded", "unit.erased"]
    assert [(entry["author"], entry["action"]) for entry in told] == [("ada", a) for a in actions]
    assert told[1]["detail"] == {"assignments": 1, "reason": WHY, "what": "a unit"}
    replayed = client.get(f"{BASE}/replay").json()
    assert (replayed["agrees"], replayed["corrections"]) == (True, 3)
    audit = client.get("/v1/audit").json()["entries"]
    assert [entry["action"] for entry in audit][:2] == ["token.created", "experiment.created"]
    rest = client.get("/v1/audit", params={"after": audit[-3]["id"], "most": 1}).json()["entries"]
    assert rest == audit[-2:-1]
    own = client.get("/v1/audit", params={"experiment": "shop"}).json()["entries"]
    assert own == audit[1:]
    for body, said in (
        ({"kind": "void"}, "To void, give assignment or unit"),
        ({"kind": "void", "unit": "u0", "reason": ""}, "the reason is ''"),
        ({"kind": "exclude", "since": "2026-01-01"}, "unit, or since and until"),
        ({"kind": "exclude", "entry": "77"}, "there is no key 'entry'"),
        ({"kind": "delete", "unit": "u0"}, "kind is 'delete'; expected void"),
    ):
        refused = client.post(path, {"reason": WHY} | body)
        assert refused.status_code == 422
        assert said in refused.json()["detail"]


DEEP = b"[" * 100_000
CASES: list[tuple[str, str, Any, int]] = [
    ("not json", "assignments", b"{unit: 1}", 400),
    ("nothing", "assignments", b"", 400),
    ("half a character", "assignments", b'{"unit": "\\ud800"}', 400),
    ("deep inside", "assignments", b'{"unit": ' + DEEP, 400),
    ("a list", "assignments", [], 422),
    ("no unit", "assignments", {}, 422),
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
