"""Webhooks in a database: endpoints, notices, and deliveries, leased to whoever sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from steadyarm.storages.sql.base import SQLBase, dump, known, reads, writes
from steadyarm.storages.sql.operators import note
from steadyarm.storages.sql.schema import (
    AnyRow,
    deliveries,
    experiments,
    if_free,
    marks,
    notices,
    webhooks,
)
from steadyarm.storages.webhooks import (
    SERVICE,
    Attempt,
    Delivery,
    Message,
    Notice,
    Secret,
    WebhookRecord,
    delivery_of,
    unknown_delivery,
    unknown_webhook,
)

ALL = select(webhooks).order_by(webhooks.c.created, webhooks.c.id)
EXISTS = select(experiments.c.key).where(experiments.c.key == bindparam("key"))
WAITING = deliveries.c.state == "waiting"
# Whether anything waits to be sent, which is read far more often than anything does.
DUE = select(deliveries.c.id).where(WAITING, deliveries.c.due <= bindparam("now")).limit(1)
ENTER = insert(deliveries).returning(deliveries.c.id)
FIRST_NOTICE = if_free(notices, notices.c.key)

_turn = upsert(marks)
# Another holder's row is changed only if its time is over.
TAKE_TURN = _turn.on_conflict_do_update(
    index_elements=["name"],
    set_={"value": _turn.excluded.value, "note": _turn.excluded.note},
    where=(marks.c.note == _turn.excluded.note) | (marks.c.value <= bindparam("now")),
).returning(marks.c.name)


class Webhooks(SQLBase):
    """The part of the storage that tells others."""

    @writes
    def add_webhook(self, connection: Connection, webhook: WebhookRecord, *, by: str = "") -> None:
        connection.execute(insert(webhooks), _webhook_row(webhook))
        note(connection, webhook.created, by, "webhook.added", detail=webhook.detail)

    def webhooks(self) -> list[WebhookRecord]:
        """Read one table, without a transaction."""
        found = self._database.read_one(lambda connection: connection.execute(ALL).all())
        return [_webhook_of(row) for row in found]

    @writes
    def remove_webhook(
        self, connection: Connection, id: str, *, now: int, by: str = ""
    ) -> WebhookRecord:
        found = _locked(connection, id)
        connection.execute(delete(webhooks).where(webhooks.c.id == id))
        connection.execute(delete(deliveries).where(deliveries.c.webhook == id))
        note(connection, now, by, "webhook.removed", detail=found.detail)
        return found

    @writes
    def rotate_webhook(
        self, connection: Connection, id: str, secret: str, *, until: int, now: int, by: str = ""
    ) -> WebhookRecord:
        changed = _locked(connection, id).rotated(secret, until, now)
        _store(connection, changed)
        note(connection, now, by, "webhook.rotated", detail=changed.detail)
        return changed

    @writes
    def enable_webhook(
        self, connection: Connection, id: str, *, now: int, by: str = ""
    ) -> WebhookRecord:
        found = _locked(connection, id)
        if not found.active:
            found = replace(found, disabled=None, note="")
            _store(connection, found)
            note(connection, now, by, "webhook.enabled", detail=found.detail)
        return found

    @reads
    def notices(self, connection: Connection) -> dict[int, Notice]:
        found = connection.execute(select(notices)).all()
        return {row.key: Notice(row.version, json.loads(row.state)) for row in found}

    @writes
    def notice(
        self,
        connection: Connection,
        key: int,
        version: int,
        state: Mapping[str, Any],
        messages: Sequence[Message],
        now: int,
    ) -> bool:
        known(key, connection.execute(EXISTS, {"key": key}).scalar())
        row = {"key": key, "version": version + 1, "state": dump(state)}
        if version:
            mine = notices.c.key == key, notices.c.version == version
            stored = connection.execute(update(notices).where(*mine).values(row)).rowcount > 0
        else:
            stored = connection.execute(FIRST_NOTICE, row).scalar() is not None
        if not stored:
            return False
        # Shared locks: whoever removes an endpoint waits, and then removes these, too.
        everyone = connection.execute(ALL.with_for_update(read=True)).all() if messages else ()
        told = [_webhook_of(one) for one in everyone]
        for message in messages:
            for webhook in told:
                if webhook.wants(message):
                    _enter(connection, delivery_of(message, webhook.id, now))
        return True

    @writes
    def deliver(
        self, connection: Connection, webhook: str, message: Message, *, now: int, leased: int = 0
    ) -> Delivery:
        _locked(connection, webhook)
        made = delivery_of(message, webhook, now)
        if leased:
            made = replace(made, leased=leased, attempts=1)
        return _enter(connection, made)

    def take_deliveries(
        self, now: int, until: int, most: int = 100
    ) -> list[tuple[Delivery, WebhookRecord]]:
        """Write only if something is due."""
        due = self._database.read_one(lambda c: c.execute(DUE, {"now": now}).first())
        if due is None:
            return []
        return self._write(lambda connection: _taken(connection, now, until, most))

    @writes
    def settle(
        self, connection: Connection, id: int, attempts: int, attempt: Attempt, now: int
    ) -> bool:
        this = select(deliveries).where(deliveries.c.id == id)
        row = connection.execute(this).one_or_none()
        if row is None:
            return False
        # The endpoint's row first, as in `take_deliveries`.
        webhook = connection.execute(_one(row.webhook).with_for_update()).one_or_none()
        row = connection.execute(this.with_for_update()).one_or_none()
        if webhook is None or row is None:  # it was removed
            return False
        found = _delivery_of(row)
        if found.state != "waiting" or found.attempts != attempts:
            return False
        _change(connection, found.after(attempt, now))
        if attempt.gone and webhook.disabled is None:
            gone = replace(_webhook_of(webhook), disabled=now, note=attempt.note)
            _store(connection, gone)
            others = update(deliveries).where(deliveries.c.webhook == gone.id, WAITING)
            failed = {"state": "failed", "leased": 0, "ended": now, "note": attempt.note}
            connection.execute(others.values(failed))
            detail = gone.detail | {"reason": attempt.note}
            note(connection, now, SERVICE, "webhook.disabled", detail=detail)
        return True

    @writes
    def resend(self, connection: Connection, id: int, *, now: int) -> Delivery:
        this = select(deliveries).where(deliveries.c.id == id).with_for_update()
        row = connection.execute(this).one_or_none()
        if row is None:
            raise unknown_delivery(id)
        made = _delivery_of(row).again(now)
        _change(connection, made)
        return made

    @reads
    def deliveries(
        self,
        connection: Connection,
        webhook: str | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> list[Delivery]:
        page = select(deliveries).order_by(deliveries.c.id.desc()).limit(most)
        if before is not None:
            page = page.where(deliveries.c.id < before)
        if webhook is not None:
            if connection.execute(_one(webhook)).one_or_none() is None:
                raise _unknown(connection, webhook)
            page = page.where(deliveries.c.webhook == webhook)
        return [_delivery_of(row) for row in connection.execute(page)]

    @writes
    def take_turn(
        self, connection: Connection, what: str, holder: str, now: int, until: int
    ) -> bool:
        row = {"name": f"turn {what}", "value": until, "note": holder}
        return connection.execute(TAKE_TURN, row | {"now": now}).scalar() is not None


def forget_deliveries(connection: Connection, before: int) -> int:
    """Remove deliveries that ended before a time; their number."""
    return connection.execute(delete(deliveries).where(deliveries.c.ended < before)).rowcount


def _taken(
    connection: Connection, now: int, until: int, most: int
) -> list[tuple[Delivery, WebhookRecord]]:
    # Locked in one order, so that two who take at once do not take two of one endpoint.
    active = ALL.where(webhooks.c.disabled.is_(None)).order_by(None).order_by(webhooks.c.id)
    found = map(_webhook_of, connection.execute(active.with_for_update()))
    endpoints = {webhook.id: webhook for webhook in found}
    under_way = select(deliveries.c.webhook).where(WAITING, deliveries.c.leased > now)
    free = sorted(endpoints.keys() - set(connection.execute(under_way).scalars()))
    place = func.row_number().over(
        partition_by=deliveries.c.webhook, order_by=(deliveries.c.due, deliveries.c.id)
    )
    due = (
        select(deliveries.c.id, deliveries.c.due, place.label("place"))
        .where(WAITING, deliveries.c.due <= now, deliveries.c.webhook.in_(free))
        .subquery()
    )
    first = select(due.c.id).where(due.c.place == 1).order_by(due.c.due, due.c.id).limit(most)
    ids = list(connection.execute(first).scalars())
    rows = select(deliveries).where(deliveries.c.id.in_(ids)).order_by(deliveries.c.id)
    taken = []
    for one in map(_delivery_of, connection.execute(rows).all()):
        begun = replace(one, leased=until, attempts=one.attempts + 1)
        _change(connection, begun)
        taken.append((begun, endpoints[one.webhook]))
    return taken


# Rows


def _one(id: str) -> Any:
    return select(webhooks).where(webhooks.c.id == id)


def _locked(connection: Connection, id: str) -> WebhookRecord:
    row = connection.execute(_one(id).with_for_update()).one_or_none()
    if row is None:
        raise _unknown(connection, id)
    return _webhook_of(row)


def _unknown(connection: Connection, id: str) -> Exception:
    return unknown_webhook(id, connection.execute(ALL.with_only_columns(webhooks.c.id)).scalars())


def _store(connection: Connection, webhook: WebhookRecord) -> None:
    this = update(webhooks).where(webhooks.c.id == webhook.id)
    connection.execute(this.values(_webhook_row(webhook)))


def _enter(connection: Connection, made: Delivery) -> Delivery:
    row = _delivery_row(made)
    del row["id"]
    return replace(made, id=int(connection.execute(ENTER, row).scalar_one()))


def _change(connection: Connection, changed: Delivery) -> None:
    this = update(deliveries).where(deliveries.c.id == changed.id)
    connection.execute(this.values(_delivery_row(changed)))


def _webhook_row(webhook: WebhookRecord) -> dict[str, Any]:
    secrets = [[one.text, one.until] for one in webhook.secrets]
    lists = {"events": dump(webhook.events), "experiments": dump(webhook.experiments)}
    return asdict(webhook) | lists | {"secrets": dump(secrets)}


def _webhook_of(row: AnyRow) -> WebhookRecord:
    lists = {name: tuple(json.loads(row._mapping[name])) for name in ("events", "experiments")}
    secrets = tuple(Secret(*one) for one in json.loads(row.secrets))
    return WebhookRecord(**dict(row._mapping) | lists | {"secrets": secrets})


def _delivery_row(delivery: Delivery) -> dict[str, Any]:
    return vars(delivery) | {"body": dump(delivery.body)}


def _delivery_of(row: AnyRow) -> Delivery:
    return Delivery(**dict(row._mapping) | {"body": json.loads(row.body)})
