"""The transactions of an ask, a tell and a decision."""

from __future__ import annotations

from typing import Any

import pytest

import steadyarm as sa
from tests.live.worlds import create

METHODS = ("assign", "record", "snapshot", "decide", "progress")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[sa.Experiment, list[str]]:
    """A test, and the names of the storage's methods that are called, as they come."""
    live, called = create(budget=600), list[str]()

    def note(name: str, method: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            called.append(name)
            return method(*given, **named)

        return call

    for name in METHODS:
        monkeypatch.setattr(live.storage, name, note(name, getattr(live.storage, name)))
    return live, called


def test_the_reward_that_ends_a_segment_opens_the_next_one(
    counted: tuple[sa.Experiment, list[str]],
) -> None:
    live, called = counted
    decisions = 0
    for i in range(60):
        called.clear()
        answer = live.ask(f"u{i}")
        opens = ["assign", "snapshot", "decide", "assign"]
        assert called == (["assign"] if i else opens)  # later ones are opened by rewards
        called.clear()
        live.tell(answer, float(i % 2))
        closes = ["record", "progress", "snapshot", "decide"]
        assert called in (["record"], closes)
        decisions += called == closes
    assert decisions >= 6
    assert live.replay().agrees
