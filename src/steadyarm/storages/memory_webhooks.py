"""The part of `MemoryStorage` that keeps webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any

from steadyarm.storages.base import Storage
from steadyarm.storages.records import json_copy
from steadyarm.storages.webhooks import (
    SERVICE,
    Attempt,
    Delivery,
    Message,
    Notice,
    WebhookRecord,
    delivery_of,
    unknown_delivery,
    unknown_webhook,
)


class WebhooksInMemory(Storage):
    """Endpoints, notices and deliveries in dictionaries; the storage holds the lock."""

    def __init__(self) -> None:
        self._webhooks: dict[str, WebhookRecord] = {}
        self._notices: dict[int, Notice] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._numbers = count(1)
        self._turns: dict[str, tuple[str, int]] = {}

    def add_webhook(self, webhook: WebhookRecord, *, by: str = "") -> None:
        self._webhooks[webhook.id] = webhook
        self._note(webhook.created, by, "webhook.added", detail=webhook.detail)

    def webhooks(self) -> list[WebhookRecord]:
        return sorted(self._webhooks.values(), key=lambda one: (one.created, one.id))

    def remove_webhook(self, id: str, *, now: int, by: str = "") -> WebhookRecord:
        found = self._webhook(id)
        del self._webhooks[id]
        kept = {key: one for key, one in self._deliveries.items() if one.webhook != id}
        self._deliveries = kept
        self._note(now, by, "webhook.removed", detail=found.detail)
        return found

    def rotate_webhook(
        self, id: str, secret: str, *, until: int, now: int, by: str = ""
    ) -> WebhookRecord:
        changed = self._webhooks[id] = self._webhook(id).rotated(secret, until, now)
        self._note(now, by, "webhook.rotated", detail=changed.detail)
        return changed

    def enable_webhook(self, id: str, *, now: int, by: str = "") -> WebhookRecord:
        found = self._webhook(id)
        if not found.active:
            found = self._webhooks[id] = replace(found, disabled=None, note="")
            self._note(now, by, "webhook.enabled", detail=found.detail)
        return found

    def notices(self) -> dict[int, Notice]:
        return dict(self._notices)

    def notice(
        self,
        key: int,
        version: int,
        state: Mapping[str, Any],
        messages: Sequence[Message],
        now: int,
    ) -> bool:
        self._of(key)
        if self._notices.get(key, Notice()).version != version:
            return False
        made = [(one, webhook) for one in messages for webhook in self.webhooks()]
        self._notices[key] = Notice(version + 1, json_copy(state))
        for message, webhook in made:
            if webhook.wants(message):
                self._add_delivery(message, webhook.id, now)
        return True

    def deliver(self, webhook: str, message: Message, *, now: int, leased: int = 0) -> Delivery:
        self._webhook(webhook)
        made = self._add_delivery(message, webhook, now)
        if leased:
            made = self._deliveries[made.id] = replace(made, leased=leased, attempts=1)
        return made

    def take_deliveries(
        self, now: int, until: int, most: int = 100
    ) -> list[tuple[Delivery, WebhookRecord]]:
        waiting = [one for one in self._deliveries.values() if one.state == "waiting"]
        busy = {one.webhook for one in waiting if one.leased > now}
        taken: list[tuple[Delivery, WebhookRecord]] = []
        for one in sorted(waiting, key=lambda one: (one.due, one.id)):
            webhook = self._webhooks[one.webhook]
            if one.due <= now and webhook.active and one.webhook not in busy and len(taken) < most:
                busy.add(one.webhook)
                begun = replace(one, leased=until, attempts=one.attempts + 1)
                self._deliveries[one.id] = begun
                taken.append((begun, webhook))
        return sorted(taken, key=lambda one: one[0].id)

    def settle(self, id: int, attempts: int, attempt: Attempt, now: int) -> bool:
        one = self._deliveries.get(id)
        if one is None or one.state != "waiting" or one.attempts != attempts:
            return False
        self._deliveries[id] = one.after(attempt, now)
        if attempt.gone and self._webhooks[one.webhook].active:
            gone = replace(self._webhooks[one.webhook], disabled=now, note=attempt.note)
            self._webhooks[gone.id] = gone
            for other in [*self._deliveries.values()]:
                if other.webhook == gone.id and other.state == "waiting":
                    failed = Attempt("failed", status=other.status, note=attempt.note)
                    self._deliveries[other.id] = other.after(failed, now)
            detail = gone.detail | {"reason": attempt.note}
            self._note(now, SERVICE, "webhook.disabled", detail=detail)
        return True

    def resend(self, id: int, *, now: int) -> Delivery:
        if id not in self._deliveries:
            raise unknown_delivery(id)
        made = self._deliveries[id] = self._deliveries[id].again(now)
        return made

    def deliveries(
        self, webhook: str | None = None, before: int | None = None, most: int = 100
    ) -> list[Delivery]:
        if webhook is not None:
            self._webhook(webhook)
        found = (
            self._deliveries[id]
            for id in sorted(self._deliveries, reverse=True)
            if before is None or id < before
        )
        return list(islice((one for one in found if webhook in (None, one.webhook)), most))

    def take_turn(self, what: str, holder: str, now: int, until: int) -> bool:
        who, expires = self._turns.get(what, ("", 0))
        if who != holder and expires > now:
            return False
        self._turns[what] = holder, until
        return True

    def _webhook(self, id: str) -> WebhookRecord:
        if id not in self._webhooks:
            raise unknown_webhook(id, self._webhooks)
        return self._webhooks[id]

    def _add_delivery(self, message: Message, webhook: str, now: int) -> Delivery:
        number = next(self._numbers)
        made = delivery_of(replace(message, body=json_copy(message.body)), webhook, now, number)
        self._deliveries[number] = made
        return made

    def _forget_deliveries(self, before: int) -> int:
        """Remove deliveries that ended before a time; their number."""
        old = [id for id, one in self._deliveries.items() if (one.ended or before) < before]
        for id in old:
            del self._deliveries[id]
        return len(old)

    def _of(self, key: int) -> object:
        raise NotImplementedError

    def _note(
        self,
        now: int,
        author: str,
        action: str,
        experiment: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        raise NotImplementedError
