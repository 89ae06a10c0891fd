"""What the routes of webhooks do; `handlers` says how they are called."""

from __future__ import annotations

from starlette.requests import Request

from steadyarm.service.handlers import author
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.service.webhooks import new_webhook, rotate
from steadyarm.storages.webhooks import Delivery, WebhookRecord
from steadyarm.wire import webhooks as wire
from steadyarm.wording import shortened


async def add_webhook(
    service: Service, request: Request, body: wire.NewWebhook
) -> tuple[int, wire.WebhookWithSecret]:
    """Add an endpoint that is told of events; the secret of its signatures is shown once."""
    storage, by = service.storage, author(request)

    def add() -> WebhookRecord:
        made = new_webhook(
            body.url,
            storage.now(),
            events=body.events or (),
            experiments=body.experiments or (),
            format=body.format,
        )
        storage.add_webhook(made, by=by)
        return made

    made = await service.write("", add)
    service.notifier.soon()
    return 201, wire.WebhookWithSecret.of(made)


async def list_webhooks(service: Service, request: Request) -> tuple[int, wire.WebhookList]:
    """List all endpoints of webhooks, without their secrets."""
    found = await service.run_short(service.storage.webhooks)
    return 200, wire.WebhookList([wire.WebhookAnswer.of(one) for one in found])


async def remove_webhook(service: Service, request: Request) -> tuple[int, wire.WebhookAnswer]:
    """Remove an endpoint of webhooks and its deliveries: it is told nothing any more."""
    storage, id, by = service.storage, await _id(service, request), author(request)
    gone = await service.write("", lambda: storage.remove_webhook(id, now=storage.now(), by=by))
    return 200, wire.WebhookAnswer.of(gone)


async def rotate_webhook(service: Service, request: Request) -> tuple[int, wire.WebhookWithSecret]:
    """Give an endpoint another secret, shown once; for a day the one before it signs, too."""
    id = await _id(service, request)
    found = await service.write("", rotate, service.storage, id, author(request))
    return 200, wire.WebhookWithSecret.of(found)


async def enable_webhook(service: Service, request: Request) -> tuple[int, wire.WebhookAnswer]:
    """Tell an endpoint again that was disabled because it answered 410."""
    storage, id, by = service.storage, await _id(service, request), author(request)
    found = await service.write("", lambda: storage.enable_webhook(id, now=storage.now(), by=by))
    service.notifier.soon()
    return 200, wire.WebhookAnswer.of(found)


async def trial_webhook(service: Service, request: Request) -> tuple[int, wire.DeliveryAnswer]:
    """Send a test to an endpoint at once, and answer how that went; it is not tried again."""
    found = await service.notifier.test(await _id(service, request))
    return 200, wire.DeliveryAnswer.of(found)


async def list_deliveries(
    service: Service, request: Request, query: wire.DeliveriesQuery
) -> tuple[int, wire.Deliveries]:
    """List what was sent, or waits to be sent, to an endpoint; the newest first, page by page."""
    id = await _id(service, request)
    found = await service.run_short(service.storage.deliveries, id, query.before, query.most)
    return 200, wire.Deliveries([wire.DeliveryAnswer.of(one) for one in found])


async def resend_delivery(service: Service, request: Request) -> tuple[int, wire.DeliveryAnswer]:
    """Send a delivery once more, with the same id, whatever became of it."""
    id, text = await _id(service, request), request.path_params["delivery"]
    storage = service.storage

    def resend() -> Delivery | None:
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            return None
        near = storage.deliveries(id, int(text) + 1, 1)
        if not near or near[0].id != int(text):
            return None
        return storage.resend(int(text), now=storage.now())

    found = await service.write("", resend)
    if found is None:
        raise RefusedError("not-found", f"{shortened(text)} is no delivery to this endpoint.")
    service.notifier.soon()
    return 200, wire.DeliveryAnswer.of(found)


async def _id(service: Service, request: Request) -> str:
    """The id in the path, if there is such an endpoint."""
    id: str = request.path_params["webhook"]
    if id not in {one.id for one in await service.run_short(service.storage.webhooks)}:
        raise RefusedError(
            "not-found", f"there is no webhook {shortened(id)}.", "GET /v1/webhooks lists them."
        )
    return id
