"""Events of experiments that webhooks report, such as a decision.

An event is found by comparing a scorecard with the state that was stored before. So events are
found whatever caused them, also if no service ran at the time. `Webhooks.notice` stores state and
messages together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadyarm.live.scorecard import Scorecard
from steadyarm.storages.records import LATEST, Summary, to_datetime, to_micros
from steadyarm.storages.service import EventType, Message, Notice

DAY = 86_400_000_000  # microseconds
LONGEST = 1000  # characters of a sentence in a message
LONGEST_NAME = 200  # characters of a variant's name there


def find_news(
    summary: Summary, card: Scorecard | None, before: Mapping[str, Any], now: int
) -> tuple[dict[str, Any], list[EventType]]:
    """Find what is noticed now, and the events that follow.

    An experiment is started, spends its budget and ends once. A decision is news if it is another
    one than the last. Health is news when it turns bad, at most once a day.

    card : None if the policy is not known here, so that there are no results
    """
    after, news = dict(before), list[EventType]()
    started = summary.started is not None or summary.state in ("running", "paused", "stopped")
    closed = card is not None and started and card.settled
    once: dict[str, tuple[bool, EventType]] = {
        "started": (started, "experiment.started"),
        "spent": (summary.assigned >= int(summary.config["budget"]), "experiment.budget_spent"),
    }
    for name, (happened, event) in once.items():
        if happened and not before.get(name):
            after[name] = True
            news.append(event)
    unhealthy = card is not None and card.light == "fail"
    bad = before.get("unhealthy")  # when it was last told, and whether it was better since
    if unhealthy and (bad is None or (bad[1] and now - bad[0] >= DAY)):
        after["unhealthy"] = [now, False]
        news.append("experiment.unhealthy")
    elif not unhealthy and bad is not None and not bad[1]:
        after["unhealthy"] = [bad[0], True]
    decision = None if card is None else _decision(card, closed)
    if decision is not None and decision != before.get("decision"):
        after["decision"] = decision
        news.append("experiment.decided")
    if closed and not before.get("closed"):
        after["closed"] = True
        news.append("experiment.window_closed")
    return after, news


def _decision(card: Scorecard, closed: bool) -> list[str | None] | None:
    """The decision as a word and a variant; None if there is none yet."""
    decision = card.decision
    decided = decision.word in ("ship", "keep") or (decision.word == "unclear" and closed)
    variant = None if decision.variant is None else decision.variant[:LONGEST_NAME]
    return [decision.word, variant] if decided else None


def make_messages(
    summary: Summary,
    card: Scorecard | None,
    notice: Notice,
    now: int,
    public_url: str | None = None,
) -> tuple[dict[str, Any], list[Message]]:
    """Return the new state of an experiment's notices, and a message for each new event.

    Events that are found when an experiment is seen for the first time are dated before its last
    assignment, so that an endpoint that was added later gets no messages about old experiments.

    public_url : address of the dashboard, for links
    """
    after, news = find_news(summary, card, notice.state, now)
    messages = []
    for i, event in enumerate(news):
        since = now
        if not notice.version:
            first = summary.started if event == "experiment.started" else summary.last
            since = summary.created if first is None else first
        id = f"msg_{summary.tag}-{summary.key}-{notice.version}-{i}"
        body = _make_body(event, summary, card, now, public_url)
        messages.append(Message(id, summary.name, since, body))
    return after, messages


def _make_body(
    event: str, summary: Summary, card: Scorecard | None, now: int, public_url: str | None
) -> dict[str, Any]:
    """The body of a message: the state of the experiment and a link, but no unit."""
    path = f"/experiments/{summary.name}"
    data: dict[str, Any] = {
        "experiment": summary.name,
        "state": summary.state,
        "assigned": summary.assigned,
        "rewarded": summary.rewarded,
        "budget": int(summary.config["budget"]),
        "final": card is not None and card.settled,
        "headline": None,
        "decision": None,
        "health": None,
        "path": path,
        "url": None if public_url is None else public_url.rstrip("/") + path,
    }
    if card is not None:
        decision = card.decision
        variant = None if decision.variant is None else _shorten(decision.variant, LONGEST_NAME)
        findings = () if card.health is None else card.health.findings
        failures = [
            _shorten(finding.explanation) for finding in findings if finding.status == "fail"
        ]
        data["headline"] = _shorten(card.headline)
        data["decision"] = {
            "word": decision.word,
            "text": _shorten(decision.text),
            "variant": variant,
        }
        data["health"] = {"status": card.light, "findings": failures[:10]}
    return {"type": event, "timestamp": format_time(now), "data": data}


def format_time(at: int) -> str:
    """Format a time as messages have it.

    Examples
    --------
    >>> format_time(1_763_430_000_000_000)
    '2025-11-18T01:40:00Z'
    """
    return f"{to_datetime(at):%Y-%m-%dT%H:%M:%SZ}"


def find_next_time(card: Scorecard | None) -> int | None:
    """When something may be news although nothing was stored meanwhile: a last window ends."""
    if card is None or not card.ended or card.rewards_until is None:
        return None
    return to_micros(card.rewards_until, LATEST)


def _shorten(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
