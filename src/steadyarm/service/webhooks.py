"""Webhooks: somebody is told when an experiment starts, is decided, turns unhealthy or ends.

One process of a service watches the experiments of its storage, whoever runs them, and sends what
was noticed. The storage has both, so that nothing is lost when the process is killed: another one
takes its turn. Messages are signed as Standard Webhooks asks for.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from steadyarm.errors import InvalidInputError, SteadyArmError, StorageError
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import NAME
from steadyarm.live.metrics import microseconds
from steadyarm.live.notices import Seen, messages_of, next_time, time_text
from steadyarm.live.scoring import scorecard_of
from steadyarm.service.outgoing import DeliveryError, ReceiverAnswer, checked_url, post
from steadyarm.storages.base import Storage
from steadyarm.storages.records import Summary
from steadyarm.storages.webhooks import (
    EVENTS,
    FORMATS,
    TEST,
    Attempt,
    Delivery,
    Format,
    Message,
    Notice,
    Secret,
    WebhookRecord,
)
from steadyarm.validation import check_choice

log = logging.getLogger("steadyarm.service")

T = TypeVar("T")
Run = Callable[..., Awaitable[Any]]  # runs something in a thread
Send = Callable[..., Awaitable[ReceiverAnswer]]

PREFIX = "whsec_"
BITS = 256  # of a secret
ROTATING = microseconds(86_400)  # for which the secret before a rotation signs, too
AGENT = "SteadyArm-Webhooks"

# Retries
FIRST, FACTOR, LONGEST = 5.0, 4.0, 43_200.0  # seconds before the second attempt; its growth
SPREAD = 0.25  # of a pause, by which it is made shorter or longer at random
GIVEN_UP = microseconds(3 * 86_400)  # after the first attempt: three days

# Rhythm, in seconds
TICK = 1.0  # between two looks for deliveries that are due
RENEWED = 5.0  # between two looks for endpoints, and prolongations of the turn
TURN = microseconds(15)  # for which a process has the turn to watch and send
LEASED = microseconds(30)  # for which a delivery is leased; an attempt takes at most 11 seconds
WATCHED = 10.0  # between two looks at all experiments
FAILED = microseconds(300)  # after which an experiment is tried again that cannot be examined
SHARE = 20.0  # an experiment is examined again after so many times as long as that took
REST = 3.0  # after an examination, so many times as long as it took: others need the processor
MOST = 64  # deliveries under way at once


# Endpoints


def new_webhook(
    url: str,
    now: int,
    *,
    events: Sequence[str] = (),
    experiments: Sequence[str] = (),
    format: str = "standard",
    private: bool = False,
) -> WebhookRecord:
    """An endpoint with a new id and a new secret; InvalidInputError if something is wrong."""
    for event in events:
        check_choice(event, "event", EVENTS)
    for name in experiments:  # which need not exist yet
        if not NAME.fullmatch(name):
            raise InvalidInputError.of("experiment", name, "the name of an experiment")
    check_choice(format, "format", FORMATS)
    known: Format = "slack" if format == "slack" else "standard"
    return WebhookRecord(
        id=f"wh_{secrets.token_hex(6)}",
        url=checked_url(url, private),
        secrets=(Secret(new_secret()),),
        events=tuple(dict.fromkeys(events)),
        experiments=tuple(dict.fromkeys(experiments)),
        format=known,
        private=private,
        created=now,
    )


def new_secret() -> str:
    """A random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(BITS // 8)).decode()


def rotate(storage: Storage, id: str, by: str) -> WebhookRecord:
    """Give an endpoint a new secret; the one before it signs for another day."""
    now = storage.now()
    return storage.rotate_webhook(id, new_secret(), until=now + ROTATING, now=now, by=by)


# Messages


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """The signature of a message, as Standard Webhooks defines it.

    Examples
    --------
    >>> signature("whsec_c2VjcmV0", "msg_1", 1763430000, b"{}")
    'v1,KP4gNvfBqUMOed6ER6pqclhIljlhDAA16yTg3sUjd9Q='
    """
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def request_of(
    delivery: Delivery, webhook: WebhookRecord, now: int
) -> tuple[dict[str, str], bytes]:
    """Headers and body of a message, with a signature for each secret that signs now."""
    content = slack_body(delivery.body) if webhook.format == "slack" else delivery.body
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    seconds = now // 1_000_000
    signed = (signature(one.text, delivery.message, seconds, body) for one in webhook.signing(now))
    return {
        "Content-Type": "application/json",
        "User-Agent": AGENT,
        "webhook-id": delivery.message,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signed),
    }, body


TITLES = {
    "experiment.started": "has started",
    "experiment.decided": "is decided",
    "experiment.unhealthy": "is not healthy",
    "experiment.budget_spent": "has spent its budget",
    "experiment.window_closed": "is over: no more rewards can come",
}


def slack_body(body: Any) -> dict[str, Any]:
    """A message as Slack's incoming webhooks show it.

    Examples
    --------
    >>> data = {"experiment": "shop", "headline": "B leads.", "decision": None, "url": None}
    >>> slack_body({"type": "experiment.started", "data": data})["text"]
    'shop has started. B leads.'
    """
    data, plain = body["data"], []
    if body["type"] == TEST:
        plain = ["This is a test.", data["text"]]
    else:
        name, decision = data["experiment"], data["decision"]
        plain = [f"{name} {TITLES.get(body['type'], body['type'])}."]
        if body["type"] == "experiment.decided" and decision is not None:
            plain.append(decision["text"])
        plain.append(data["headline"] or "")
    title, *rest = (_escaped(one) for one in plain)
    lines = [f"*{title}*", *(one for one in rest if one)]
    if data.get("url"):
        lines.append(f"<{data['url']}|Open the experiment>")
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(lines)}}
    return {"text": " ".join(one for one in [title, *rest] if one), "blocks": [section]}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def trial_message(now: int) -> Message:
    """A message that says nothing but that messages arrive."""
    text = "Webhooks of SteadyArm arrive here."
    body = {"type": TEST, "timestamp": time_text(now), "data": {"text": text}}
    return Message(f"msg_test-{secrets.token_hex(8)}", TEST, None, now, body)


# Attempts


def attempt_of(
    delivery: Delivery,
    answer: ReceiverAnswer | DeliveryError,
    now: int,
    draw: Callable[[], float] = random.random,
) -> Attempt:
    """What follows from an attempt: delivered, tried again after a pause, or given up.

    Pauses grow by a factor from a few seconds to half a day; a receiver may ask for longer ones. A
    delivery is given up when its next attempt would come more than three days after the first.

    draw : a random number from 0 to 1, which spreads the attempts of many deliveries
    """
    if isinstance(answer, ReceiverAnswer) and 200 <= answer.status < 300:
        return Attempt("delivered", status=answer.status)
    status, asked = None, 0.0
    if isinstance(answer, ReceiverAnswer):
        status, asked = answer.status, min(answer.retry_after or 0.0, LONGEST)
        said = f"answered {answer.text}"
        if status == 410:
            return Attempt("failed", status=status, note=said, gone=True)
        if 300 <= status < 400:
            said += "; redirects are not followed"
    else:
        said = str(answer)
    pause = min(FIRST * FACTOR ** min(delivery.attempts - 1, 20), LONGEST)
    pause = max(pause * (1 + SPREAD * (2 * draw() - 1)), asked)
    due = now + microseconds(pause)
    if delivery.type == TEST or due > delivery.began + GIVEN_UP:
        return Attempt("failed", status=status, note=said)
    return Attempt("waiting", due, status, said)


class Begun(NamedTuple):
    """A delivery that was taken at a time, with its endpoint."""

    delivery: Delivery
    webhook: WebhookRecord
    now: int


@dataclass
class _Examined:
    """When and how an experiment was last examined, by this process."""

    mark: object
    again: int  # the earliest time at which a change is looked at
    next: int | None  # when time alone may be news


async def _in_thread(work: Callable[..., T], *given: Any) -> T:
    return await asyncio.to_thread(work, *given)


class Notifier:
    """Watches the experiments of a storage, and sends what was noticed to endpoints.

    Parameters
    ----------
    storage : with the experiments
    public_url : under which people reach the dashboard, for links
    read, run, write : run something in a thread, which may take long, is short, or writes
    send : sends one request, as `post` does
    now : the time; that of the storage by default
    draw : as in `attempt_of`
    """

    def __init__(
        self,
        storage: Storage,
        public_url: str | None = None,
        *,
        read: Run = _in_thread,
        run: Run = _in_thread,
        write: Run = _in_thread,
        send: Send = post,
        now: Callable[[], int] | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._storage, self._public_url = storage, public_url
        self._read, self._run, self._write = read, run, write
        self._post, self._draw = send, draw
        self._now = now or storage.now
        self._holder = secrets.token_hex(8)
        self._has_turn = False
        self._renew = self._watch = 0.0  # when these are due, by the monotonic clock
        self._sending: set[asyncio.Task[Delivery]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._examined: dict[tuple[int, str], _Examined] = {}

    async def keep(self) -> None:
        """Watch and send until it is cancelled, whenever it is the turn of this process."""
        try:
            while True:
                try:
                    await self._step()
                except StorageError as error:
                    log.warning("%s", error)
                except Exception:
                    log.exception("webhooks failed; they go on")
                await asyncio.sleep(TICK)
        finally:
            await self._end()

    async def _step(self) -> None:
        if time.monotonic() >= self._renew:
            wanted = await self._run(self._is_wanted)
            self._has_turn = wanted and await self._write(self._take_turn, TURN)
            self._renew = time.monotonic() + RENEWED
        if not self._has_turn:
            return
        await self.send_due()
        if time.monotonic() >= self._watch and (self._watching is None or self._watching.done()):
            self._watch = time.monotonic() + WATCHED
            self._watching = asyncio.create_task(self._watch_on())

    def soon(self) -> None:
        """Look at once for endpoints and for deliveries, because somebody has just added some."""
        self._renew = self._watch = 0.0

    # What is below runs in threads if it reads the clock, which may be that of a database.

    def _is_wanted(self) -> bool:
        return any(webhook.active for webhook in self._storage.webhooks())

    def _take_turn(self, lasts: int) -> bool:
        now = self._now()
        return self._storage.take_turn("webhooks", self._holder, now, now + lasts)

    async def _end(self) -> None:
        """End what is under way; it is sent again by whoever has the turn next."""
        tasks: list[asyncio.Task[Any]] = [*self._sending]
        tasks += [self._watching] if self._watching else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._has_turn:
            try:
                await self._write(self._take_turn, 0)  # gives it back
            except SteadyArmError as error:
                log.warning("%s", error)

    # Sending

    async def send_due(self) -> None:
        """Begin to send what is due, one delivery of each endpoint."""
        room = MOST - len(self._sending)
        if room <= 0:
            return
        for begun in await self._write(self._take, room):
            task = asyncio.create_task(self._attempt(*begun))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _take(self, room: int) -> list[Begun]:
        now = self._now()
        taken = self._storage.take_deliveries(now, now + LEASED, room)
        return [Begun(delivery, webhook, now) for delivery, webhook in taken]

    def _sent(self, task: asyncio.Task[Delivery]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            unforeseen = None if isinstance(error, StorageError) else error
            log.error("the outcome of a delivery was not stored: %s", error, exc_info=unforeseen)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._sending:
            await asyncio.wait(set(self._sending))

    async def _attempt(self, delivery: Delivery, webhook: WebhookRecord, now: int) -> Delivery:
        """Send a delivery that was taken, and store how that went; the delivery after that."""
        answer: ReceiverAnswer | DeliveryError
        try:
            headers, body = request_of(delivery, webhook, now)
            answer = await self._post(webhook.url, headers, body, private=webhook.private)
        except DeliveryError as error:
            answer = error
        except Exception as error:  # stored like any failure, so that the next attempt comes later
            log.exception("webhook %s: sending delivery %d failed", webhook.id, delivery.id)
            answer = DeliveryError(f"sending failed: {type(error).__name__}")
        settled: Delivery = await self._write(self._settle, delivery, webhook, answer)
        return settled

    def _settle(
        self, delivery: Delivery, webhook: WebhookRecord, answer: ReceiverAnswer | DeliveryError
    ) -> Delivery:
        now = self._now()
        attempt = attempt_of(delivery, answer, now, self._draw)
        stored = self._storage.settle(delivery.id, delivery.attempts, attempt, now)
        if stored and attempt.state == "failed" and delivery.type != TEST:
            log.warning(
                "webhook %s: delivery %d (%s of %s) has failed for good at attempt %d: %s",
                *(webhook.id, delivery.id, delivery.type, delivery.experiment),
                *(delivery.attempts, attempt.note),
            )
        if stored and attempt.gone:
            log.warning("webhook %s is disabled: %s", webhook.id, attempt.note)
        return delivery.after(attempt, now)

    async def test(self, id: str) -> Delivery:
        """Send a test to an endpoint at once, and return how that went; it is not tried again."""
        return await self._attempt(*await self._write(self._begin_test, id))

    def _begin_test(self, id: str) -> Begun:
        now = self._now()
        made = self._storage.deliver(id, trial_message(now), now=now, leased=now + LEASED)
        return Begun(made, next(one for one in self._storage.webhooks() if one.id == id), now)

    # Watching

    async def _watch_on(self) -> None:
        try:
            await self.watch()
        except StorageError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("watching experiments for webhooks failed; it goes on")

    async def watch(self) -> None:
        """Look at all experiments that may have changed since they were last examined."""
        for summary, notice in await self._run(self._due):
            began = time.monotonic()
            await self._read(self.examine, summary, notice)
            await asyncio.sleep(REST * (time.monotonic() - began))

    def _due(self) -> list[tuple[Summary, Notice]]:
        """The experiments that have to be examined."""
        now, summaries, notices = self._now(), self._storage.summaries(), self._storage.notices()
        known = {(one.key, one.tag) for one in summaries}
        for gone in self._examined.keys() - known:
            del self._examined[gone]
        found = ((one, notices.get(one.key, Notice())) for one in summaries)
        return [(one, notice) for one, notice in found if self._is_due(one, notice, now)]

    def _is_due(self, summary: Summary, notice: Notice, now: int) -> bool:
        examined = self._examined.get((summary.key, summary.tag))
        if examined is None:  # what is archived and over does not change any more
            return not (summary.state == "archived" and notice.state.get("closed"))
        if examined.next is not None and now >= examined.next:
            return True
        return examined.mark != summary.mark and now >= examined.again

    def examine(self, summary: Summary, notice: Notice) -> bool:
        """Store what is new about an experiment, with its messages.

        False if another process was faster, so that it has to be examined again.
        """
        storage, began = self._storage, self._now()
        try:
            card, record = None, storage.find(summary.name)
            with suppress(InvalidInputError):  # a policy of somebody's own has no results here
                card = scorecard_of(Experiment(storage, record))
            seen = Seen(summary, card, storage.history(summary.name), self._now())
            state, messages = messages_of(seen, notice, self._public_url)
            changed = state != notice.state
            if changed and not storage.notice(
                summary.key, notice.version, state, messages, seen.now
            ):
                return False
            next_ = next_time(seen)
        except StorageError:
            raise  # nothing was seen, so that the next round looks again
        except SteadyArmError as error:
            log.warning("experiment %r cannot be examined: %s", summary.name, error)
            next_ = began + FAILED
        now = self._now()
        again = now + round(SHARE * (now - began))
        self._examined[summary.key, summary.tag] = _Examined(summary.mark, again, next_)
        return True
