"""Events that others are told of: what has become true of an experiment since it was last seen.

An event is found by comparing a scorecard with what was noticed before, so it does not matter who
caused it, or whether anybody watched when it happened. `Storage.notice` stores both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steadyarm.live.scorecard import Scorecard
from steadyarm.storages.changes import AuditEntry
from steadyarm.storages.records import LATEST, Summary, to_datetime, to_micros
from steadyarm.storages.webhooks import EventType, Message, Notice

DAY = 86_400_000_000  # microseconds
LONGEST = 1000  # characters of a sentence in a message
LONGEST_NAME = 200  # characters of a variant's name there


@dataclass(frozen=True)
class Seen:
    """An experiment as far as events need it.

    Attributes
    ----------
    summary : its totals
    card : its scorecard; None if its policy is not known here, so that there are no results
    history : its entries of the audit log
    now : when this was so
    """

    summary: Summary
    card: Scorecard | None
    history: Sequence[AuditEntry]
    now: int

    @property
    def budget(self) -> int:
        """How many visits are assigned in all."""
        return int(self.summary.config["budget"])

    @property
    def spent(self) -> bool:
        """Whether the whole budget was assigned."""
        return self.summary.assigned >= self.budget

    @property
    def started(self) -> bool:
        """Whether it has ever run: it is no draft, nor one that was archived as such."""
        state = self.summary.state
        return self.summary.started is not None or state in ("running", "paused", "stopped")

    @property
    def closed(self) -> bool:
        """Whether neither visits nor rewards are to come."""
        return self.card is not None and self.started and self.card.settled

    @property
    def unhealthy(self) -> bool:
        """Whether a check of the log fails."""
        return self.card is not None and self.card.light == "fail"

    @property
    def decision(self) -> list[str | None] | None:
        """What was decided: a word and a variant; None if nothing was, so far."""
        if self.card is None:
            return None
        found = self.card.decision
        decided = found.word in ("ship", "keep") or (found.word == "unclear" and self.closed)
        variant = None if found.variant is None else found.variant[:LONGEST_NAME]
        return [found.word, variant] if decided else None

    def when(self, *actions: str) -> int | None:
        """When one of these entered the audit log for the last time; None if never."""
        return next((e.created for e in reversed(self.history) if e.action in actions), None)

    def latest(self) -> int:
        """The latest time at which results can have become what they are.

        Now, unless windows are known to have ended earlier: whoever begins to listen later wants
        no news of tests that were over before.
        """
        if not self.closed or self.card is None:
            return self.now
        stopped = self.when("experiment.stopped")
        patience = self.card.settings.patience
        if stopped is None and (patience is None or not self.spent):
            return self.now
        end = self.summary.last if stopped is None else stopped
        return self.now if end is None else min(self.now, end + (patience or 0))


def changes_of(
    seen: Seen, before: Mapping[str, Any]
) -> tuple[dict[str, Any], list[tuple[EventType, int]]]:
    """What is noticed now, and what that makes news: types of events and when they happened.

    An experiment is started, spends its budget and ends once. A decision is news if it is another
    one than the last. Health is news when it turns bad, at most once a day.
    """
    after, news = dict(before), list[tuple[EventType, int]]()
    latest = seen.now if before.get("closed") else seen.latest()
    if seen.started and not before.get("started"):
        after["started"] = True
        first = seen.when("experiment.started")
        news.append(("experiment.started", seen.summary.created if first is None else first))
    if seen.spent and not before.get("spent"):
        after["spent"] = True
        last = seen.summary.last
        news.append(("experiment.budget_spent", seen.now if last is None else last))
    bad = before.get("unhealthy")  # when it was last told, and whether it was better since
    if seen.unhealthy and (bad is None or (bad[1] and seen.now - bad[0] >= DAY)):
        after["unhealthy"] = [seen.now, False]
        news.append(("experiment.unhealthy", latest))
    elif not seen.unhealthy and bad is not None and not bad[1]:
        after["unhealthy"] = [bad[0], True]
    decision = seen.decision
    if decision is not None and decision != before.get("decision"):
        after["decision"] = decision
        news.append(("experiment.decided", latest))
    if seen.closed and not before.get("closed"):
        after["closed"] = True
        news.append(("experiment.window_closed", latest))
    return after, news


def messages_of(
    seen: Seen, notice: Notice, public_url: str | None = None
) -> tuple[dict[str, Any], list[Message]]:
    """What is noticed of an experiment now, and a message for each event.

    public_url : under which people reach the dashboard, for links
    """
    after, news = changes_of(seen, notice.state)
    summary = seen.summary
    begin = f"msg_{summary.tag}-{summary.key}-{notice.version}"
    return after, [
        Message(f"{begin}-{i}", type, summary.name, at, body_of(seen, type, at, public_url))
        for i, (type, at) in enumerate(news)
    ]


def body_of(seen: Seen, type: str, at: int, public_url: str | None) -> dict[str, Any]:
    """What a message says: how the experiment stands, and where to read more; no unit."""
    summary, card = seen.summary, seen.card
    path = f"/experiments/{summary.name}"
    data: dict[str, Any] = {
        "experiment": summary.name,
        "state": summary.state,
        "assigned": summary.assigned,
        "rewarded": summary.rewarded,
        "budget": seen.budget,
        "final": seen.closed,
        "headline": None,
        "decision": None,
        "health": None,
        "path": path,
        "url": None if public_url is None else public_url.rstrip("/") + path,
    }
    if card is not None:
        found = card.decision
        variant = None if found.variant is None else _cut(found.variant, LONGEST_NAME)
        data["headline"] = _cut(card.headline)
        data["decision"] = {"word": found.word, "text": _cut(found.text), "variant": variant}
        data["health"] = {"status": card.light, "findings": _findings(card)}
    return {"type": type, "timestamp": time_text(at), "data": data}


def _findings(card: Scorecard) -> list[str]:
    """The sentences of failing checks."""
    if card.health is None:
        return []
    return [_cut(one.explanation) for one in card.health.findings if one.status == "fail"][:10]


def time_text(at: int) -> str:
    """A time as messages have it.

    Examples
    --------
    >>> time_text(1_763_430_000_000_000)
    '2025-11-18T01:40:00Z'
    """
    return f"{to_datetime(at):%Y-%m-%dT%H:%M:%SZ}"


def next_time(seen: Seen) -> int | None:
    """When something may be news although nothing was stored meanwhile: a last window ends."""
    if seen.card is None or not seen.card.ended or seen.card.rewards_until is None:
        return None
    return to_micros(seen.card.rewards_until, LATEST)


def _cut(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
