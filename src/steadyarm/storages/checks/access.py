"""Checks of who may come in and who did what: tokens, sessions, the audit log."""

from __future__ import annotations

from dataclasses import replace

from steadyarm.errors import InvalidInputError
from steadyarm.storages.checks.bench import (
    HOUR,
    NAMES,
    NOW,
    Check,
    Open,
    gathered,
    refused,
    together,
)
from steadyarm.storages.records import AuditEntry, Scope, SessionRecord, TokenRecord

__all__ = ["CHECKS"]


def check_tokens(open_storage: Open) -> None:
    """Tokens are kept by name, in the order of their creation."""
    storage = open_storage()
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
    assert open_storage().tokens() == made, "tokens are not kept as given, in order"
    storage.remove_token(made[2].name, now=NOW + 50)
    gone = made[2].name
    refused(InvalidInputError, "removing no token", storage.remove_token, gone, now=NOW + 51)
    assert storage.tokens() == [*made[:2], *made[3:]], "not that one token was removed"
    storage.add_token(replace(made[2], created=NOW + 99))
    assert [t.name for t in storage.tokens()][-1] == gone, "a removed name is not free again"


def _token(name: str, scope: Scope = "admin") -> TokenRecord:
    return TokenRecord(name, f"hash of {name}", scope, NOW)


def check_closed(open_storage: Open) -> None:
    """A storage that has ever had a token stays closed, whatever becomes of the token."""
    storage, other = open_storage(), open_storage()
    assert not storage.closed(), "a fresh storage is closed"
    storage.add_token(_token("first"))
    assert other.closed(), "a storage with a token is open"
    storage.remove_token("first", now=NOW, lock_out=True)
    assert storage.tokens() == []
    assert storage.closed(), "removing the last token opened the storage"
    assert other.closed(), "removing the last token opened the storage for others"
    assert open_storage().closed(), "a storage is open when it is opened again"


def check_last_token(open_storage: Open) -> None:
    """Without `lock_out` neither the last token nor the last admin goes; others do."""
    storage = open_storage()
    for token in (_token("a"), _token("b"), _token("reader", "read")):
        storage.add_token(token)
    assert storage.remove_token("a", now=NOW) == _token("a"), "not the token that was removed"
    told = refused(InvalidInputError, "the last admin", storage.remove_token, "b", now=NOW)
    assert "admin" in told
    assert [t.name for t in storage.tokens()] == ["b", "reader"], "refused, and yet removed"
    assert [e.action for e in storage.audit()][3:] == ["token.removed"], "refused, and yet noted"
    storage.remove_token("reader", now=NOW)
    refused(InvalidInputError, "the last token", storage.remove_token, "b", now=NOW)
    storage.add_token(_token("reader", "read"))
    storage.remove_token("b", now=NOW, lock_out=True)
    refused(InvalidInputError, "the last token", storage.remove_token, "reader", now=NOW)
    storage.remove_token("reader", now=NOW, lock_out=True)
    assert storage.tokens() == []


def check_threads_last_token(open_storage: Open) -> None:
    """Of many who remove the last admins at once, one is refused."""
    storages = [open_storage() for _ in range(3)]

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


def check_sessions(open_storage: Open) -> None:
    """A session ends when it is removed or expires, or with its token, for all at once."""
    storage, other = open_storage(), open_storage()
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


def check_audit(open_storage: Open) -> None:
    """The audit log says who made and removed tokens, in pages; what was refused is not in it."""
    storage = open_storage()
    assert storage.audit() == [], "a fresh storage has an audit log"
    hashes = [f"{i:064x}" for i in range(len(NAMES))]
    for name, hash_ in zip(NAMES, hashes, strict=True):
        storage.add_token(TokenRecord(name, hash_, "read", NOW), by="me")
    taken = TokenRecord(NAMES[0], "f" * 64, "admin", NOW + 1)
    refused(InvalidInputError, "a token's taken name", storage.add_token, taken, by="me")
    storage.remove_token(NAMES[0], now=NOW + 2, by=NAMES[4])
    refused(InvalidInputError, "removing no token", storage.remove_token, NAMES[0], now=NOW + 3)
    storage.add_token(TokenRecord("nobody's", "e" * 64, "write", NOW + 4))
    log = open_storage().audit()
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
    assert all(hash_ not in repr(log) for hash_ in hashes), "the audit log tells hashes"


def check_threads_audit(open_storage: Open) -> None:
    """Whoever reads on after the last entry seen misses none, while others write."""
    storages = [open_storage() for _ in range(3)]

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


CHECKS: tuple[Check, ...] = (
    check_tokens,
    check_closed,
    check_last_token,
    check_threads_last_token,
    check_sessions,
    check_audit,
    check_threads_audit,
)
