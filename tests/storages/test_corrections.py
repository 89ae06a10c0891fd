"""Checks of operators: tokens, sessions, the audit log, corrections."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text

import steadyarm as sa
from steadyarm.errors import InvalidInputError, UnknownAssignmentError, WrongStateError
from steadyarm.storages.records import Change, Correction, hash_unit
from steadyarm.storages.service import Scope, SessionRecord, TokenRecord
from tests.storages.bench import HOUR, NAMES, NOW, WHY, Bench, close, refused, together


def test_tokens_are_kept_by_name_and_close_a_storage_for_ever(bench: Bench) -> None:
    other = bench.again()
    assert (bench.tokens.all(), bench.tokens.closed()) == ([], False)
    scopes: tuple[Scope, ...] = ("read", "write", "admin")
    made = [
        TokenRecord(name, f"{i:064x}", scopes[i % 3], NOW + i)
        for i, name in enumerate(reversed(NAMES))
    ]
    for token in made:
        bench.tokens.add(token, by="me")
    taken = replace(made[1], hash="f" * 64)
    refused(InvalidInputError, bench.tokens.add, taken)
    assert other.tokens.all() == made
    gone = made[2].name
    bench.tokens.remove(gone, now=NOW + 50, by=NAMES[4])
    refused(InvalidInputError, bench.tokens.remove, gone, now=NOW + 51)
    bench.tokens.add(replace(made[2], created=NOW + 99))
    assert other.tokens.all() == [*made[:2], *made[3:], replace(made[2], created=NOW + 99)]
    log = other.audit()
    assert [(e.created, e.author, e.action, e.experiment) for e in log] == [
        *((token.created, "me", "token.created", None) for token in made),
        (NOW + 50, NAMES[4], "token.removed", None),
        (NOW + 99, "", "token.created", None),
    ]
    assert [e.detail for e in log[:3]] == [{"name": t.name, "scope": t.scope} for t in made[:3]]
    assert [e.id for e in log] == sorted({e.id for e in log})
    assert bench.audit(log[1].id, 3) == log[2:5]
    assert bench.audit(log[-1].id) == []
    assert all(token.hash not in repr(log) for token in made)
    for token in bench.tokens.all():
        bench.tokens.remove(token.name, now=NOW, lock_out=True)
    for view in (bench, other, bench.again()):
        assert (view.tokens.all(), view.tokens.closed()) == ([], True)


def _token(name: str, scope: Scope = "admin") -> TokenRecord:
    bounds = ((NAMES[0],), ("https://shop.example", "none"), 7) if scope == "assign" else ()
    return TokenRecord(name, f"hash of {name}", scope, NOW, *bounds)


# Publishable keys, of the scope assign, keep no other token company.
LAST: tuple[tuple[list[tuple[str, Scope]], str | None], ...] = (
    ([("b", "admin"), ("c", "assign")], None),
    ([("c", "assign")], "the last one"),
    ([("b", "admin")], None),
    ([("b", "admin"), ("c", "read")], None),
    ([("c", "read")], "the last one with the scope admin"),
    ([], "the last one"),
)


@pytest.mark.parametrize(("others", "says"), LAST)
def test_the_last_token_and_the_last_admin_are_not_removed(
    bench: Bench, others: list[tuple[str, Scope]], says: str | None
) -> None:
    for name, scope in [("a", "admin"), *others]:
        bench.tokens.add(_token(name, scope))
    before = bench.tokens.all(), bench.audit()
    if says is not None:
        assert says in refused(InvalidInputError, bench.tokens.remove, "a", now=NOW)
        assert (bench.tokens.all(), bench.audit()) == before
    removed = bench.tokens.remove("a", now=NOW, lock_out=says is not None)
    assert removed == _token("a")
    assert [t.name for t in bench.tokens.all()] == [name for name, _ in others]


def test_of_many_who_remove_the_last_admins_at_once_one_is_refused(bench: Bench) -> None:
    storages = [bench.again() for _ in range(3)]

    def remove(i: int) -> bool:
        try:
            storages[i].tokens.remove(str(i), now=NOW)
        except InvalidInputError:
            return False
        return True

    for _ in range(3):
        for i in range(3):
            if str(i) not in [t.name for t in storages[0].tokens.all()]:
                storages[0].tokens.add(_token(str(i)))
        gone = together(remove, 3)
        assert sum(gone) == 2


def test_a_session_ends_when_it_is_removed_or_expires_or_with_its_token(bench: Bench) -> None:
    other = bench.again()
    for token in (_token("a"), _token("b")):
        bench.tokens.add(token)
    made = [SessionRecord(f"s{i}", f"hash of {'ab'[i % 2]}", NOW, NOW + HOUR) for i in range(6)]
    for session in made:
        bench.sessions.add(session)
    assert [other.sessions.find(s.id, NOW) for s in made] == made
    assert other.sessions.find("unknown", NOW) is None
    assert other.sessions.find("s0", NOW + HOUR - 1) == made[0]
    assert other.sessions.find("s0", NOW + HOUR) is None
    other.sessions.remove("s0")
    other.sessions.remove("s0")
    assert bench.sessions.find("s0", NOW) is None
    other.tokens.remove("b", now=NOW)
    left = [s.id for s in made if bench.sessions.find(s.id, NOW)]
    assert left == ["s2", "s4"]
    refused(InvalidInputError, bench.sessions.add, made[1])
    late = replace(made[0], created=NOW + 2 * HOUR, expires=NOW + 3 * HOUR)
    bench.sessions.add(late)
    assert other.sessions.find("s2", NOW) is None
    assert other.sessions.find("s0", NOW + 2 * HOUR) == late


def test_what_cannot_be_corrected_is_refused_and_leaves_nothing_behind(bench: Bench) -> None:
    key = bench.running(9)
    bench.assign(key, ["a", "b"])
    bench.reward(key, [("a", 1.0)], NOW)
    before, log = bench.everything(key), bench.audit()
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (UnknownAssignmentError, {"kind": "void", "target": "nobody"}),
        (UnknownAssignmentError, {"kind": "void", "target": (0, "ffffff")}),
        (InvalidInputError, {"kind": "void", "target": "b"}),
        (UnknownAssignmentError, {"kind": "exclude", "unit": "nobody"}),
        (UnknownAssignmentError, {"kind": "erase", "unit": "nobody"}),
        (InvalidInputError, {"kind": "exclude", "since": NOW + 1, "until": NOW + 2}),
        (InvalidInputError, {"kind": "exclude", "since": NOW, "until": NOW + 10}),
    ]
    for error, given in wrong:
        change = Change(**given, reason=WHY)
        refused(error, bench.correct, key, change, now=NOW + 9)
    for given in ({"kind": "void", "target": "a"}, {"kind": "exclude", "unit": "a", "reason": " "}):
        refused(InvalidInputError, Change, **given)
    refused(InvalidInputError, Change, "exclude", reason=WHY)
    assert bench.everything(key) == before
    assert bench.audit() == log
    bench.move(key, "stopped")
    bench.move(key, "archived")
    change = Change("exclude", unit="a", reason=WHY)
    refused(WrongStateError, bench.correct, key, change, now=NOW + 9)
    bench.change(key, "erase", unit="a")


def test_a_reward_is_voided_and_recorded_again_however_large_it_was(bench: Bench) -> None:
    key = bench.running(9)
    bench.assign(key, ["a", "b", NAMES[2]])
    bench.reward(key, [("a", 0.1), ("b", 1 / 3), (NAMES[2], 1e90)], NOW + 5000)
    first = bench.change(key, "void", target="a", by=NAMES[4])
    assert first.assignments == 1
    row = bench.log(key)[0]
    assert (row.reward, row.rewarded, row.received) == (None, None, None)
    assert bench.reward(key, [("a", 0.7)], NOW + 7000)[0].status == "stored"
    bench.change(key, "void", target=2)
    (tally,) = bench.tallied(key)
    assert sum(tally.sums) == close(0.7 + 1 / 3)
    bench.change(key, "void", target=(1, hash_unit("b")))
    made = bench.again().corrections(key)
    assert made == [
        Correction(first.entry, 0, "void", 0.1, closed=False),
        Correction(first.entry + 1, 2, "void", 1e90, closed=False),
        Correction(first.entry + 2, 1, "void", 1 / 3, closed=False),
    ]
    assert bench.corrections(key, (made[0].entry, made[0].number), 1) == made[1:2]
    log = bench.audit(experiment="e")
    assert [e.action for e in log] == ["experiment.created", *["reward.voided"] * 3]
    assert (log[1].id, log[1].author, log[1].created) == (first.entry, NAMES[4], NOW + 9)
    assert log[1].detail == {"assignments": 1, "reason": WHY}
    assert NAMES[2] not in repr(log)


def _everywhere(url: str, words: str) -> list[str]:
    """Tables and columns with that text in them."""
    engine = create_engine(url)
    found = []
    with engine.connect() as connection:
        for table in inspect(engine).get_table_names():
            for row in connection.execute(text(f'SELECT * FROM "{table}"')).mappings():
                found += [f"{table}.{name}" for name, value in row.items() if words in str(value)]
    engine.dispose()
    return found


def test_an_erased_unit_leaves_no_trace(url: str) -> None:
    who = "Émilie du Châtelet"
    live = sa.create_experiment("test", ["A", "B"], sa.Steady(), 4000, url, missing="drop")
    live.ask_many([f"somebody-{i}" for i in range(700)])
    first = live.ask(who)
    live.ask_many([f"somebody else-{i}" for i in range(700)])
    live.exclude(unit=who, reason="a monitor", by="ada")
    assert _everywhere(url, who) == ["steadyarm_assignments.unit"]
    done = live.erase(who, by="ada")
    assert done.assignments == 1
    assert _everywhere(url, who) == []
    live.tell(first.id, 1.0)
    assert live.replay().agrees
    assert live.ask(who).id != first.id
    live.erase(who)
    live.close()
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        for file in path.parent.glob(f"{path.name}*"):
            assert who.encode() not in file.read_bytes()
