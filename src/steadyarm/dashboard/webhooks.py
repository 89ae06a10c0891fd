"""The page of webhooks: endpoints, what was sent to them last, a test, and sending once more."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Page, Viewer
from steadyarm.dashboard.responses import page, see_other
from steadyarm.service import webhook_handlers
from steadyarm.service.service import Service
from steadyarm.storages.webhooks import Delivery, WebhookRecord

MOST = 50  # deliveries on the page
PATH = "/webhooks"


async def webhooks(service: Service, request: Request, viewer: Viewer) -> Response:
    """Show all endpoints, and what was sent last."""

    def read() -> tuple[list[WebhookRecord], list[Delivery]]:
        return service.storage.webhooks(), service.storage.deliveries(most=MOST)

    found, sent = await service.run_short(read)
    names = {one.id: one.shown for one in found}
    values = {"webhooks": found, "deliveries": sent, "names": names, "most": MOST}
    content = await service.run_short(lambda: page("webhooks.html", viewer, **values))
    return content.response(request.scope)


async def send_test(service: Service, request: Request, viewer: Viewer) -> Response:
    """Send a test, and show how it went."""
    await webhook_handlers.trial_webhook(service, request)
    return see_other(viewer.root, f"{PATH}#deliveries")


async def resend(service: Service, request: Request, viewer: Viewer) -> Response:
    """Send a delivery once more."""
    await webhook_handlers.resend_delivery(service, request)
    return see_other(viewer.root, f"{PATH}#deliveries")


PAGES: tuple[Page, ...] = (
    Page("GET", PATH, webhooks, "admin"),
    Page("POST", PATH + "/{webhook}/test", send_test, "admin"),
    Page("POST", PATH + "/{webhook}/deliveries/{delivery}/resend", resend, "admin"),
)
