"""Checks of operators: tokens, sessions, the audit log, corrections."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from steadyarm.errors import InvalidInputError, UnknownAssignmentError, WrongStateError
from steadyarm.storages.changes import (
    AuditEntry,
    Change,
    Correction,
    Scope,
    SessionRecord,
    TokenRecord,
    Trace,
    as_observed,
)
from steadyarm.storages.records import Decision, ExperimentState, check_of, place_of
from steadyarm.testing.storages.bench import (
    DAY,
    HOUR,
    NAMES,
    NOW,
    WHY,
    Bench,
    gathered,
    new_segment,
    refused,
    together,
)

# Checks of operators: tokens, sessions, the audit log, corrections.


def check_tokens(storage: Bench) -> None:
    """Tokens are kept by name, in the order of their creation."""
    assert storage.tokens() == [], "a fresh storage has tokens"
    scopes: tuple[Scope, ...] = ("read", "write", "admin")
    made = [
        TokenRecord(name, f"{i:064x}", scopes[i % 3], NOW + i)
        for i, name in enumerate(reversed(NAMES))
    ]
    for token in made:
        storage.add_token(token)
    taken = replace(made[1], hash="f" * 64)
    refused(InvalidInputError, "a token's taken name", storage.add_token, taken)
    assert storage.again().tokens() == made, "tokens are not kept as given, in order"
    storage.remove_token(made[2].name, now=NOW + 50)
    gone = made[2].name
    refused(InvalidInputError, "removing no token", storage.remove_token, gone, now=NOW + 51)
    assert storage.tokens() == [*made[:2], *made[3:]], "not that one token was removed"
    storage.add_token(replace(made[2], created=NOW + 99))
    assert [t.name for t in storage.tokens()][-1] == gone, "a removed name is not free again"


def check_publishable_keys(storage: Bench) -> None:
    """Publishable keys keep what they are for, close a storage, and keep no other token company."""
    other = storage.again()
    bounds = (tuple(NAMES[:3]), ("https://shop.example", "none"), 7)
    key = TokenRecord("web", "a" * 64, "assign", NOW, *bounds)
    signed = TokenRecord("signed", "b" * 64, "assign", NOW + 1, *bounds, "a secret, as it is")
    for one in (key, signed):
        storage.add_token(one, by="me")
    assert storage.again().tokens() == [key, signed], "keys are not kept as given"
    assert other.closed(), "a storage with a publishable key is open"
    said = str([entry.detail for entry in storage.audit()])
    assert "https://shop.example" in said, "the audit log says not what a key is for"
    assert "a secret" not in said, "the audit log has a secret"
    storage.add_token(_token("admin"))
    refused(InvalidInputError, "the last but keys", storage.remove_token, "admin", now=NOW)
    storage.add_token(_token("reader", "read"))
    assert storage.remove_token("web", now=NOW) == key, "not the key that was removed"
    storage.remove_token("admin", now=NOW, lock_out=True)
    refused(InvalidInputError, "the last but keys", storage.remove_token, "reader", now=NOW)
    storage.remove_token("reader", now=NOW, lock_out=True)
    refused(InvalidInputError, "the last of all", storage.remove_token, "signed", now=NOW)
    assert storage.remove_token("signed", now=NOW, lock_out=True) == signed, "not as it was added"
    assert storage.closed(), "removing the last key opened the storage"


def _token(name: str, scope: Scope = "admin") -> TokenRecord:
    return TokenRecord(name, f"hash of {name}", scope, NOW)


def check_closed(storage: Bench) -> None:
    """A storage that has ever had a token stays closed, whatever becomes of the token."""
    other = storage.again()
    assert not storage.closed(), "a fresh storage is closed"
    storage.add_token(_token("first"))
    assert other.closed(), "a storage with a token is open"
    storage.remove_token("first", now=NOW, lock_out=True)
    assert storage.tokens() == []
    assert storage.closed(), "removing the last token opened the storage"
    assert other.closed(), "removing the last token opened the storage for others"
    assert storage.again().closed(), "a storage is open when it is opened again"


def check_last_token(storage: Bench) -> None:
    """Without `lock_out` neither the last token nor the last admin goes; others do."""
    for token in (_token("a"), _token("b"), _token("reader", "read")):
        storage.add_token(token)
    assert storage.remove_token("a", now=NOW) == _token("a"), "not the token that was removed"
    message = refused(InvalidInputError, "the last admin", storage.remove_token, "b", now=NOW)
    assert "admin" in message
    assert [t.name for t in storage.tokens()] == ["b", "reader"], "refused, and yet removed"
    assert [e.action for e in storage.audit()][3:] == ["token.removed"], "refused, and yet noted"
    storage.remove_token("reader", now=NOW)
    refused(InvalidInputError, "the last token", storage.remove_token, "b", now=NOW)
    storage.add_token(_token("reader", "read"))
    storage.remove_token("b", now=NOW, lock_out=True)
    refused(InvalidInputError, "the last token", storage.remove_token, "reader", now=NOW)
    storage.remove_token("reader", now=NOW, lock_out=True)
    assert storage.tokens() == []


def check_threads_last_token(storage: Bench) -> None:
    """Of many who remove the last admins at once, one is refused."""
    storages = [storage.again() for _ in range(3)]

    def remove(i: int) -> bool:
        try:
            storages[i].remove_token(str(i), now=NOW)
        except InvalidInputError:
            return False
        return True

    for _ in range(3):
        for i in range(3):
            if str(i) not in [t.name for t in storages[0].tokens()]:
                storages[0].add_token(_token(str(i)))
        gone = together(remove, 3)
        assert sum(gone) == 2, f"{sum(gone)} of the last 3 admins were removed"


def check_sessions(storage: Bench) -> None:
    """A session ends when it is removed or expires, or with its token, for all at once."""
    other = storage.again()
    for token in (_token("a"), _token("b")):
        storage.add_token(token)
    made = [SessionRecord(f"s{i}", f"hash of {'ab'[i % 2]}", NOW, NOW + HOUR) for i in range(6)]
    for session in made:
        storage.add_session(session)
    assert [other.find_session(s.id, NOW) for s in made] == made, "sessions are not kept as given"
    assert other.find_session("unknown", NOW) is None, "a session that never was"
    assert other.find_session("s0", NOW + HOUR - 1) == made[0], "a session ends too early"
    assert other.find_session("s0", NOW + HOUR) is None, "a session does not expire"
    other.remove_session("s0")
    other.remove_session("s0")
    assert storage.find_session("s0", NOW) is None, "a session goes on after it was removed"
    other.remove_token("b", now=NOW)
    left = [s.id for s in made if storage.find_session(s.id, NOW)]
    assert left == ["s2", "s4"], "not all sessions of a removed token ended, and no others"
    refused(InvalidInputError, "a session without a token", storage.add_session, made[1])
    late = replace(made[0], created=NOW + 2 * HOUR, expires=NOW + 3 * HOUR)
    storage.add_session(late)
    assert other.find_session("s2", NOW) is None, "expired sessions are kept for ever"
    assert other.find_session("s0", NOW + 2 * HOUR) == late


def check_audit(storage: Bench) -> None:
    """The audit log says who made and removed tokens, in pages; what was refused is not in it."""
    assert storage.audit() == [], "a fresh storage has an audit log"
    hashes = [f"{i:064x}" for i in range(len(NAMES))]
    for name, hash_ in zip(NAMES, hashes, strict=True):
        storage.add_token(TokenRecord(name, hash_, "read", NOW), by="me")
    taken = TokenRecord(NAMES[0], "f" * 64, "admin", NOW + 1)
    refused(InvalidInputError, "a token's taken name", storage.add_token, taken, by="me")
    storage.remove_token(NAMES[0], now=NOW + 2, by=NAMES[4])
    refused(InvalidInputError, "removing no token", storage.remove_token, NAMES[0], now=NOW + 3)
    storage.add_token(TokenRecord("nobody's", "e" * 64, "write", NOW + 4))
    log = storage.again().audit()
    assert [e.id for e in log] == sorted({e.id for e in log}), "ids do not count upwards"
    assert log[0].id > 0, "the first id is not after 0"
    made = ("token.created", None)
    wanted = [
        *(AuditEntry(0, NOW, "me", *made, {"name": name, "scope": "read"}) for name in NAMES),
        AuditEntry(
            0, NOW + 2, NAMES[4], "token.removed", None, {"name": NAMES[0], "scope": "read"}
        ),
        AuditEntry(0, NOW + 4, "", *made, {"name": "nobody's", "scope": "write"}),
    ]
    assert [replace(e, id=0) for e in log] == wanted, "the audit log is not what was done"
    assert storage.audit(log[1].id, 3) == log[2:5], "not the next entries after an id"
    assert storage.audit(log[-1].id) == [], "entries after the last"
    assert all(hash_ not in repr(log) for hash_ in hashes), "the audit log shows hashes"


def check_threads_audit(storage: Bench) -> None:
    """A reader who goes on after the last entry seen misses none, while others write."""
    storages = [storage.again() for _ in range(3)]

    def work(i: int) -> list[AuditEntry]:
        storage, seen = storages[i % 3], list[AuditEntry]()
        for turn in range(8):
            if i % 2:
                hash_ = f"{100 * i + turn:064x}"
                storage.add_token(TokenRecord(f"{i} {turn}", hash_, "read", NOW), by=str(i))
            seen += storage.audit(seen[-1].id if seen else 0)
        return [*seen, *storage.audit(seen[-1].id if seen else 0)]

    pages = gathered(lambda i: [work(i)], 6)
    log = storages[0].audit()
    assert len(log) == 24, f"24 tokens left {len(log)} entries"
    for seen in pages:
        assert seen == log[: len(seen)], "entries appeared before earlier ones"


# Checks of corrections: sums follow, every change leaves its trace, and nobody gets in between.


def check_rewards_corrected(storage: Bench) -> None:
    """A reward is voided, recorded again, and corrected; sums follow exactly."""
    key = storage.running(9)
    storage.assign(key, ["a", "b", NAMES[2]])
    storage.reward(key, [("a", 0.1), ("b", 1 / 3), (NAMES[2], 1e300)], None, NOW + 5000)
    first = storage.change(key, "void", target="a", by=NAMES[4])
    assert first.assignments == 1, "a reward is one assignment's"
    assert storage.log(key)[0] == replace(
        storage.log(key)[0], reward=None, rewarded=None, received=None
    ), "a voided reward is still there"
    storage.again().tallied(key)
    assert storage.reward(key, [("a", 0.7)], None, NOW + 7000)[0].status == "stored"
    storage.change(key, "correct", target=(1, check_of("b")), reward=0.25)
    third = storage.change(key, "correct", target=2, reward=-0.0)
    rows = storage.log(key)
    assert [r.reward for r in rows] == [0.7, 0.25, 0.0], "not the corrected rewards"
    assert rows[1].rewarded == NOW + 5000, "a corrected reward happened when it did"
    (tally,) = storage.tallied(key)
    assert sum(tally.sums) == Fraction(0.7) + Fraction(0.25), "sums do not follow exactly"
    made = storage.again().corrections(key)
    assert made == [
        Correction(first.entry, 0, "void", 0.1, None, closed=False),
        Correction(first.entry + 1, 1, "correct", 1 / 3, 0.25, closed=False),
        Correction(third.entry, 2, "correct", 1e300, -0.0, closed=False),
    ], "the trace does not say what was changed"
    assert storage.corrections(key, (made[0].entry, made[0].number), 1) == made[1:2], "not a page"
    log = storage.audit(experiment="e")
    assert [e.action for e in log] == [
        "experiment.created",
        "reward.voided",
        "reward.corrected",
        "reward.corrected",
    ], "the audit log is not what was done"
    assert (log[1].id, log[1].author, log[1].created) == (first.entry, NAMES[4], NOW + 9)
    assert log[1].detail == {"assignments": 1, "reason": WHY}, "the reason is not kept"
    assert NAMES[2] not in repr(log), "the audit log names a unit"


def check_refused_corrections(storage: Bench) -> None:
    """What cannot be corrected is refused, and leaves nothing behind."""
    key = storage.running(9)
    storage.assign(key, ["a", "b"])
    storage.reward(key, [("a", 1.0)], None, NOW)
    before, log = storage.everything(key), storage.audit()
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (UnknownAssignmentError, {"kind": "void", "target": "nobody"}),
        (UnknownAssignmentError, {"kind": "void", "target": (0, "ffffff")}),
        (InvalidInputError, {"kind": "void", "target": "b"}),
        (InvalidInputError, {"kind": "correct", "target": "a", "reward": 1.0}),
        (UnknownAssignmentError, {"kind": "exclude", "unit": "nobody"}),
        (UnknownAssignmentError, {"kind": "erase", "unit": "nobody"}),
        (InvalidInputError, {"kind": "exclude", "since": NOW + 1, "until": NOW + 2}),
        (InvalidInputError, {"kind": "exclude", "since": NOW, "until": NOW + 10}),
        (InvalidInputError, {"kind": "include", "entry": 1}),
        (InvalidInputError, {"kind": "include", "entry": 99}),
    ]
    for error, given in wrong:
        change = Change(**given, reason=WHY)
        refused(error, f"{given}", storage.correct, key, change, now=NOW + 9)
    for given in ({"kind": "void", "target": "a"}, {"kind": "exclude", "unit": "a", "reason": " "}):
        refused(InvalidInputError, "a change without a reason", Change, **given)
    refused(InvalidInputError, "a change without a unit", Change, "exclude", reason=WHY)
    assert storage.everything(key) == before, "a refused correction changed something"
    assert storage.audit() == log, "a refused correction was noted"
    storage.move(key, "stopped")
    storage.move(key, "archived")
    promise = "a correction of an archived experiment"
    change = Change("exclude", unit="a", reason=WHY)
    refused(WrongStateError, promise, storage.correct, key, change, now=NOW + 9)
    storage.change(key, "erase", unit="a")


def check_excluded(storage: Bench) -> None:
    """What is excluded counts nowhere, by unit and by period, until it is included again."""
    key = storage.new_experiment(sticky=False).key
    storage.open_segment(key, new_segment(12))
    for day in range(3):
        storage.assign(key, ["a", "bot", "b", "bot"], now=NOW + day * DAY)
    numbers = [r.number for r in storage.log(key)]
    storage.reward(key, [(n, n + 0.1) for n in numbers[:-2]], None, NOW + 2 * DAY + 5000)
    whole = storage.everything(key)[2:4]
    later = NOW + 3 * DAY
    why: dict[str, Any] = {"reason": WHY}
    out = storage.correct(key, Change("exclude", unit="bot", **why), now=later)
    assert out.assignments == 6, "not all assignments of the unit"
    (tally,) = storage.tallied(key)
    assert (tally.total_assigned, tally.total_excluded, tally.total_rewarded) == (12, 6, 5), (
        f"{tally}"
    )
    since: dict[str, Any] = {"since": NOW + DAY, "until": NOW + 2 * DAY}
    second = storage.correct(key, Change("exclude", **since, **why), now=later)
    assert second.assignments == 2, "what was excluded before is excluded twice"
    assert {r.excluded for r in storage.log(key)} == {None, out.entry, second.entry}
    detail = storage.audit(experiment="e")[-1].detail
    assert detail == {"assignments": 2, "what": "a period", **since, **why}, "not the period"
    storage.again().tallied(key)
    outcomes = storage.reward(key, [(numbers[-1], 7.0), (numbers[-2], 8.0)], None, later)
    assert [o.status for o in outcomes] == ["stored", "stored"], (
        "rewards of excluded visits are kept"
    )
    (tally,) = storage.tallied(key)
    assert tally.total_rewarded == 4, "the reward of an excluded visit counts"
    (part,) = storage.progress(key)
    assert (part.assigned, part.done) == (12, 12), "a segment waits for excluded visits"
    again = Change("exclude", unit="bot", **why)
    refused(InvalidInputError, "excluding twice", storage.correct, key, again, now=later)
    storage.change(key, "void", target=numbers[1])
    storage.tallied(key)
    for entry in (second.entry, out.entry):
        storage.correct(key, Change("include", entry=entry, **why), now=later)
    storage.tallied(key)
    storage.reward(key, [(numbers[1], numbers[1] + 0.1)], None, NOW + 2 * DAY + 5000)
    assert storage.correct(key, Change("void", target=numbers[-1], **why), now=later)
    assert storage.correct(key, Change("void", target=numbers[-2], **why), now=later)
    assert storage.everything(key)[2:4] == whole, "including is not the opposite of excluding"
    twice = Change("include", entry=out.entry, **why)
    refused(InvalidInputError, "including twice", storage.correct, key, twice, now=later)


def check_corrected_after_closing(storage: Bench) -> None:
    """The sums of a closed segment follow, too; corrections say what the policy has observed."""
    key = storage.running(4)
    storage.assign(key, list("abcd"), now=NOW)
    storage.reward(key, [("a", 1.0), ("b", 2.0), ("c", 3.0)], None, NOW)
    early = storage.change(key, "exclude", unit="d")
    (handed,) = storage.tallied(key)
    storage.open_segment(key, new_segment(4), closed=[0])
    storage.assign(key, ["e"])
    assert storage.snapshot(key, everything=True).corrected == (), "corrected before it closed"
    record = storage.find("e")
    storage.change(key, "void", target="a")
    storage.change(key, "correct", target="b", reward=5.0)
    storage.change(key, "exclude", unit="a")
    storage.change(key, "exclude", unit="c")
    storage.change(key, "correct", target="c", reward=9.0)
    storage.change(key, "include", entry=early.entry)
    storage.change(key, "exclude", unit="e")
    assert storage.find("e") == record, "a correction changed the policy's state"
    for again in (storage, storage.again()):
        assert again.snapshot(key, everything=True).corrected == (0,), "not the closed segments"
    now, _ = storage.tallied(key)
    assert (now.total_rewarded, now.total_excluded, sum(now.sums)) == (1, 2, 5), f"{now}"
    made = storage.corrections(key)
    assert [c.closed for c in made] == [False, *[True] * 6, False], "closed is not recorded"
    then = [
        as_observed(row, [c for c in made if c.number == row.number])
        for row in storage.whole_log(key)
        if place_of(row.number)[0] == 0
    ]
    assert [r.reward for r in then] == [1.0, 2.0, 3.0, None], "not the rewards it observed"
    assert [r.excluded is not None for r in then] == [False, False, False, True]
    assert handed.total_rewarded == 3


def check_erased(storage: Bench) -> None:
    """An erased unit is nowhere; rewards that name the ids it had count, and it may come anew."""
    key = storage.running(9)
    who = NAMES[5]
    storage.assign(key, ["a", who])
    made = storage.correct(key, Change("erase", unit=who), now=NOW, by="me")
    assert made.assignments == 1
    for again in (storage, storage.again()):
        assert [who] != [r.unit for r in again.log(key)][1:], "the unit is still there"
        assert again.find_assignments(key, [who]) == [None], "the unit is found"
    outcomes = storage.reward(
        key, [((1, check_of(who)), 1.0), ((0, check_of(who)), 1.0)], None, NOW
    )
    assert [o.status for o in outcomes] == ["stored", "unknown"], "by the id that it had"
    (new,) = storage.assign(key, [who]).assigned
    assert new is not None
    assert (new.number, new.new) == (2, True), "it has its old assignment"
    entry = storage.audit(experiment="e")[-1]
    assert (entry.action, entry.author, entry.detail) == ("unit.erased", "me", {"assignments": 1})
    storage.tallied(key)
    both = storage.new_experiment("both", sticky=False).key
    storage.open_segment(both, new_segment(9))
    storage.assign(both, ["x", "x", "y"])
    assert storage.change(both, "erase", unit="x").assignments == 2
    assert "x" not in {r.unit for r in storage.log(both)}


def check_corrections_restored(storage: Bench) -> None:
    """Corrections come along with an experiment, under new ids of their entries."""
    key = storage.busy("e")
    storage.change(key, "void", target="a0", by="me")
    out = storage.change(key, "exclude", unit="a3", by="me")
    storage.change(key, "exclude", unit="e1", by="me")
    storage.change(key, "include", entry=out.entry, by="me")
    snapshot, rows = storage.snapshot(key, everything=True), storage.log(key)
    trace = Trace(tuple(storage.audit(experiment="e")), tuple(storage.corrections(key)))
    made = storage.restore("copy", snapshot, [rows], trace, by="you")
    log = storage.audit(experiment="copy")
    assert [(e.author, e.action) for e in log] == [
        *((e.author, e.action) for e in trace.entries),
        ("you", "experiment.imported"),
    ], "not the entries that came along"
    assert all("imported" in e.detail for e in log[:-1]), "imported entries are not marked"
    new = {old.id: entry.id for old, entry in zip(trace.entries, log, strict=False)}
    assert log[-2].detail["entry"] == new[out.entry], "it undoes another entry"
    wanted = [replace(c, entry=new[c.entry]) for c in trace.corrections]
    assert storage.again().corrections(made.key) == wanted, "not the corrections that came along"
    excluded = [r.excluded and new[r.excluded] for r in rows]
    assert [r.excluded for r in storage.log(made.key)] == excluded, "not what was excluded"
    copy = storage.snapshot(made.key, everything=True)
    assert copy.corrected == snapshot.corrected == (0,), "not the segments that were corrected"
    assert [t for _, t in copy.segments] == [t for _, t in snapshot.segments], "not the sums"
    storage.tallied(made.key)
    broken = replace(trace, entries=trace.entries[:1])
    refused(InvalidInputError, "a trace", storage.restore, "b", snapshot, [rows], broken)
    assert [e.name for e in storage.summaries()] == ["e", "copy"], "something was left behind"
    entry = log[-3].id
    assert storage.change(made.key, "include", entry=entry).assignments == 1


def check_states_noted(storage: Bench) -> None:
    """Every change of the state is noted once, with who made it and why."""
    key = storage.new_experiment(state="draft").key
    path: tuple[ExperimentState, ...] = ("running", "running", "paused", "running", "stopped")
    for i, to in enumerate((*path, "archived")):
        storage.move(key, to, now=NOW + i, by="me", detail={"look": i})
    refused(WrongStateError, "back from the archive", storage.move, key, "running", by="me")
    log = storage.again().audit(experiment="e")
    names = ("created", "started", "paused", "resumed", "stopped", "archived")
    assert [e.action for e in log] == [f"experiment.{name}" for name in names]
    assert [e.created - NOW for e in log] == [0, 0, 2, 3, 4, 5], "not when it was changed"
    assert [e.author for e in log] == ["", *["me"] * 5], "not who changed it"
    assert [e.detail.get("look") for e in log[1:]] == [0, 2, 3, 4, 5], "not what was said of it"
    storage.new_experiment("other")
    assert storage.audit(experiment="e") == log, "entries of another experiment"
    assert storage.audit(log[1].id, 2, "e") == log[2:4], "not the next entries"


def check_threads_correct(storage: Bench) -> None:
    """Corrections race with rewards and with closing; sums and traces stay exact."""
    storages = [storage.again() for _ in range(3)]
    for turn in range(3):
        storage, name = storages[0], f"e{turn}"
        key = storage.running(12, name=name)
        units = [f"u{i}" for i in range(12)]
        storage.assign(key, units)
        storage.reward(key, [(u, 1.0) for u in units[:6]], None, NOW)

        def work(i: int, key: int = key, units: list[str] = units) -> None:
            mine = storages[i % 3]
            try:
                if i == 0:
                    mine.change(key, "exclude", since=NOW, until=NOW + 1)
                elif i == 1:
                    for unit in units[6:]:
                        mine.reward(key, [(unit, 2.0)], None, NOW)
                elif i == 2:
                    for unit in units[:3]:
                        mine.change(key, "correct", target=unit, reward=3.0)
                elif i == 3:
                    mine.change(key, "void", target=units[4])
                else:
                    snapshot = mine.snapshot(key)
                    (record, tally), version = snapshot.segments[0], snapshot.experiment.version
                    mine.decide(key, version, Decision({}, ((record.index, tally),)), NOW)
            except InvalidInputError:
                assert i == 3, "what others did made a correction fail"

        together(work, 5)
        (tally,) = storage.tallied(key)
        assert tally.total_excluded == 12, "an assignment was not excluded"
        (record, _), made = storage.snapshot(key).segments[0], storage.corrections(key)
        entry = next(c.entry for c in made if c.kind == "exclude")
        storage.change(key, "include", entry=entry)
        (tally,) = storage.tallied(key)
        if record.closed is None:
            assert storage.decided(key, Decision({}, ((0, tally),))), "facts were refused"
