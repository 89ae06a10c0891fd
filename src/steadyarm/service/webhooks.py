"""Webhooks: messages to endpoints when an experiment starts, is decided, turns unhealthy or ends.

One process of a service watches all experiments of its storage, also those that other processes
run. Messages wait in an outbox until they are accepted, so that nothing is lost when a process is
killed. They are signed as Standard Webhooks specifies.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import logging
import random
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import httpx2
from standardwebhooks.webhooks import Webhook

from steadyarm.errors import InvalidInputError, SteadyArmError, StorageError
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import NAME
from steadyarm.live.notices import find_next_time, format_time, make_messages
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.storages.records import Summary
from steadyarm.storages.service import EVENTS, FORMATS, TEST, Delivery, Endpoint, Format, Notice
from steadyarm.storages.storage import Storage
from steadyarm.validation import check_choice

log = logging.getLogger("steadyarm.service")

Run = Callable[..., Awaitable[Any]]  # runs something in a thread

TIMEOUT = 10.0  # seconds for a whole attempt, from the lookup of the name to the response
FIRST, FACTOR, LONGEST = 5.0, 4.0, 43_200.0  # seconds before the second attempt; its growth
GIVEN_UP = 3 * 86_400_000_000  # microseconds after which no further attempt begins
LEASE = 30_000_000  # microseconds for which a message belongs to the process that sends it
TURN = 60_000_000  # microseconds for which one process watches experiments
SENDING = 1.0  # seconds between two looks into the outbox
WATCHING = 10.0  # seconds between two looks at all experiments
REST = 3.0  # after an experiment was examined, so many times as long as it took
FAILED = 300.0  # seconds after which an experiment is tried again that could not be examined


class DeliveryError(Exception):
    """The reason why a message was not accepted."""


def new_endpoint(
    url: str,
    now: int,
    *,
    events: Sequence[str] = (),
    experiments: Sequence[str] = (),
    format: str = "standard",
    private: bool = False,
) -> Endpoint:
    """Make an endpoint with a new id and a new secret; InvalidInputError if something is wrong."""
    for event in events:
        check_choice(event, "event", EVENTS)
    for name in experiments:  # which need not exist yet
        if not NAME.fullmatch(name):
            raise InvalidInputError.of("experiment", name, "the name of an experiment")
    check_choice(format, "format", FORMATS)
    known: Format = "slack" if format == "slack" else "standard"
    try:
        parsed = httpx2.URL(url)
        allowed = parsed.scheme in ("http", "https") and parsed.host and not parsed.userinfo
    except httpx2.InvalidURL:
        allowed = False
    if not allowed:
        raise InvalidInputError.of("url", url, "an https:// or http:// URL without a password")
    if not private and _is_private(parsed.host):
        raise InvalidInputError.of("url", url, "a public address, or --allow-private")
    return Endpoint(
        id=f"wh_{secrets.token_hex(6)}",
        url=url,
        secret="whsec_" + base64.b64encode(secrets.token_bytes(32)).decode(),
        events=tuple(dict.fromkeys(events)),
        experiments=tuple(dict.fromkeys(experiments)),
        format=known,
        private=private,
        created=now,
    )


# Sending


def is_public(address: str) -> bool:
    """Whether an address is one of the internet; ValueError if it is no address.

    Examples
    --------
    >>> [is_public(one) for one in ("93.184.216.34", "10.0.0.7", "169.254.169.254", "::1")]
    [True, False, False, False]
    >>> [is_public(one) for one in ("::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::")]
    [False, False, False]
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):  # some contain an address of IPv4
        if parsed.ipv4_mapped is not None:
            return is_public(str(parsed.ipv4_mapped))
        if parsed not in UNICAST or parsed.sixtofour is not None or parsed.teredo is not None:
            return False
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


def _is_private(host: str) -> bool:
    """Whether a host is the address of a private network; a name is looked up later."""
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost"


UNICAST = ipaddress.IPv6Network("2000::/3")


async def _look_up(endpoint: Endpoint) -> str:
    """The address to connect to, which is allowed; DeliveryError if there is none."""
    loop, url = asyncio.get_running_loop(), httpx2.URL(endpoint.url)
    try:
        rows = await loop.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DeliveryError(f"the host is unknown: {error}") from None
    addresses = [str(row[4][0]).partition("%")[0] for row in rows]
    if not endpoint.private and not all(map(is_public, addresses)):
        raise DeliveryError("the host has a private address, which is not allowed")
    return addresses[0]


async def send(
    client: httpx2.AsyncClient, endpoint: Endpoint, message: str, body: Mapping[str, Any]
) -> int:
    """Send a message once, and return the status of HTTP; DeliveryError if it is not accepted.

    The address is looked up once, checked, and connected to as it was checked, so that a name
    cannot lead to a private address by changing in between. Redirects are not followed.
    """
    content = format_for_slack(body) if endpoint.format == "slack" else body
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    now = datetime.now(UTC)
    url = httpx2.URL(endpoint.url)
    headers = {
        "host": url.netloc.decode(),
        "content-type": "application/json",
        "user-agent": "SteadyArm-Webhooks",
        "webhook-id": message,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(endpoint.secret).sign(message, now, text),
    }
    try:
        async with asyncio.timeout(TIMEOUT):
            pinned = url.copy_with(host=await _look_up(endpoint))
            known = {"sni_hostname": url.host}
            sending = client.stream(
                "POST", pinned, content=text.encode(), headers=headers, extensions=known
            )
            async with sending as response:  # its body is not read
                if not response.is_success:
                    raise DeliveryError(f"answered {response.status_code} {response.reason_phrase}")
                return response.status_code
    except TimeoutError:
        raise DeliveryError(f"no answer within {TIMEOUT:g} seconds") from None
    except httpx2.HTTPError as error:
        raise DeliveryError(f"{type(error).__name__}: {error}") from None


def new_client() -> httpx2.AsyncClient:
    """Make a client that connects directly, once for each message."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(trust_env=False, limits=limits, timeout=TIMEOUT)


async def send_test(endpoint: Endpoint, now: int) -> int:
    """Send a message that only says that messages arrive; DeliveryError if it is not accepted."""
    data = {"text": "Webhooks of SteadyArm arrive here."}
    body = {"type": TEST, "timestamp": format_time(now), "data": data}
    async with new_client() as client:
        return await send(client, endpoint, f"msg_test-{secrets.token_hex(8)}", body)


TITLES = {
    "experiment.started": "has started",
    "experiment.decided": "is decided",
    "experiment.unhealthy": "is not healthy",
    "experiment.budget_spent": "has spent its budget",
    "experiment.window_closed": "is over: no more rewards can come",
}


def format_for_slack(body: Mapping[str, Any]) -> dict[str, Any]:
    """Format a message as Slack's incoming webhooks show it.

    Examples
    --------
    >>> data = {"experiment": "shop", "headline": "B leads.", "decision": None, "url": None}
    >>> format_for_slack({"type": "experiment.started", "data": data})["text"]
    'shop has started. B leads.'
    """
    data = body["data"]
    if body["type"] == TEST:
        sentences = ["This is a test.", data["text"]]
    else:
        sentences = [f"{data['experiment']} {TITLES[body['type']]}."]
        if body["type"] == "experiment.decided" and data["decision"] is not None:
            sentences.append(data["decision"]["text"])
        sentences.append(data["headline"] or "")
    title, *rest = (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for text in sentences
        if text
    )
    lines = [f"*{title}*", *rest]
    if data.get("url"):
        lines.append(f"<{data['url']}|Open the experiment>")
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(lines)}}
    return {"text": " ".join([title, *rest]), "blocks": [section]}


# The task of a service


class Notifier:
    """Watches the experiments of a storage, and sends what was noticed to endpoints.

    Parameters
    ----------
    public_url : under which people reach the dashboard, for links
    read, write : run something in a thread that may take long, or that writes
    count : called with the outcome of every attempt: "accepted", "failed" or "given_up"
    """

    def __init__(
        self,
        storage: Storage,
        public_url: str | None = None,
        *,
        read: Run = asyncio.to_thread,
        write: Run = asyncio.to_thread,
        count: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._storage, self._webhooks, self._public_url = storage, storage.webhooks, public_url
        self._read, self._write, self._count = read, write, count
        self._holder = secrets.token_hex(8)
        # By experiment: how it stood when it was examined, and when it is examined again.
        self._examined: dict[tuple[int, str], tuple[object, float]] = {}

    async def send_due(self) -> int:
        """Send what is due, one message of each endpoint; return how many were sent."""
        deliveries = await self._write(self._webhooks.take, LEASE)
        if not deliveries:  # to make a client reads certificates, which takes 0.1 seconds
            return 0
        async with new_client() as client, asyncio.TaskGroup() as tasks:
            for delivery in deliveries:
                tasks.create_task(self._attempt(client, delivery))
        return len(deliveries)

    async def _attempt(self, client: httpx2.AsyncClient, delivery: Delivery) -> None:
        failure = None
        try:
            await send(client, delivery.endpoint, delivery.message, delivery.body)
        except DeliveryError as error:
            failure = str(error)
        except Exception as error:  # so that the next attempt comes later
            log.exception("webhook %s: sending failed", delivery.endpoint.id)
            failure = f"sending failed: {type(error).__name__}"
        try:
            await self._write(self._settle, delivery, failure)
        except StorageError as error:
            log.warning("webhook %s: the outcome is not stored: %s", delivery.endpoint.id, error)

    def _settle(self, delivery: Delivery, failure: str | None) -> None:
        """Remove an accepted message; try others again after a pause, until three days are over."""
        if failure is None:
            self._count("accepted")
            self._webhooks.end(delivery)
            return
        endpoint, event = delivery.endpoint, delivery.body["type"]
        pause = min(FIRST * FACTOR ** min(delivery.attempts - 1, 20), LONGEST)
        due = self._storage.now() + round(1e6 * pause * random.uniform(0.75, 1.25))
        if due <= delivery.created + GIVEN_UP:
            self._count("failed")
            log.info("webhook %s: %s failed: %s", endpoint.id, event, failure)
            self._webhooks.retry(delivery, due, failure)
        else:
            self._count("given_up")
            log.warning("webhook %s: %s is given up: %s", endpoint.id, event, failure)
            self._webhooks.end(delivery)

    async def watch(self) -> None:
        """Examine all experiments that may have changed, if it is the turn of this process."""
        for summary, notice in await self._read(self._find_changed):
            began = time.monotonic()
            await self._read(self.examine, summary, notice)
            await asyncio.sleep(REST * (time.monotonic() - began))  # others need the processor

    def _find_changed(self) -> list[tuple[Summary, Notice]]:
        webhooks = self._webhooks
        if not webhooks.endpoints() or not webhooks.take_turn(self._holder, TURN):
            return []
        summaries, notices = self._storage.summaries(), webhooks.notices()
        known = {(summary.key, summary.tag) for summary in summaries}
        self._examined = {key: mark for key, mark in self._examined.items() if key in known}
        pairs = ((summary, notices.get(summary.key, Notice())) for summary in summaries)
        return [pair for pair in pairs if self._may_have_changed(*pair)]

    def _may_have_changed(self, summary: Summary, notice: Notice) -> bool:
        if summary.state == "archived" and notice.state.get("closed"):
            return False
        mark, again = self._examined.get((summary.key, summary.tag), (None, 0.0))
        return mark != summary.mark or self._storage.now() >= again

    def examine(self, summary: Summary, notice: Notice) -> None:
        """Store what is new about an experiment, with its messages."""
        storage, again = self._storage, float("inf")
        try:
            card = None
            with suppress(InvalidInputError):  # a policy of somebody's own has no results here
                card = compute_scorecard(Experiment(storage, storage.find(summary.name)))
            now = storage.now()
            state, messages = make_messages(summary, card, notice, now, self._public_url)
            if (state != notice.state or not notice.version) and not self._webhooks.notice(
                summary.key, notice.version, state, messages
            ):
                return  # another process was faster, or the experiment is gone
            if (time_ := find_next_time(card)) is not None and time_ > now:
                again = time_
        except StorageError:
            raise  # nothing was seen, so that the next round looks again
        except SteadyArmError as error:
            log.warning("experiment %r cannot be examined: %s", summary.name, error)
            again = storage.now() + 1e6 * FAILED
        self._examined[summary.key, summary.tag] = summary.mark, again
