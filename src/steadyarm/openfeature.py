"""SteadyArmProvider: experiments of a service as flags of OpenFeature, and events as rewards.

A flag is an experiment, its evaluation an assignment to the unit that the targeting key names, and
its value that of the variant. Flags are evaluated by the OFREP provider of the OpenFeature
community; events are sent by the client.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from steadyarm.errors import MissingExtraError

try:
    import requests
    from openfeature.contrib.provider.ofrep import OFREPProvider
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.provider import Metadata
    from openfeature.track import TrackingEventDetails
except ImportError:
    raise MissingExtraError(
        "the provider needs openfeature-sdk and openfeature-provider-ofrep; install them with: "
        "pip install 'steadyarm[openfeature]'"
    ) from None

from steadyarm.client import Client, RewardBuffer
from steadyarm.client.core import PATIENCE, Service
from steadyarm.errors import ServiceError, SteadyArmError

__all__ = ["SteadyArmProvider"]

log = logging.getLogger("steadyarm.openfeature")


def _in_thread(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """The same method for asyncio, in a thread."""

    async def resolve_async(*args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(resolve, *args, **options)

    return resolve_async


class SteadyArmProvider(OFREPProvider):
    """Experiments of a SteadyArm service as flags of OpenFeature.

    What the context of an evaluation says of attributes and covariates that an experiment has
    declared is stored with the assignment. Where there is no variant, the program's own default is
    used: with the reason DISABLED if the test gives none now (it is paused, say), with an error
    code if the service is down or a value has another type than the program expects. While the
    service is down only one evaluation in `cooldown` seconds waits for it.

    `track` reports an event to every experiment that has a metric of its name. It returns at once;
    a thread sends events, and again while the service is down.

    Parameters
    ----------
    url : the address of the service, such as "http://localhost:8000"
    token : that the service requires, of the scope write
    timeout : seconds after which an evaluation gives up
    buffer : file in which events wait for the service; without it they wait in memory
    cooldown : seconds after a failure in which evaluations do not wait for the service

    Attributes
    ----------
    client : that sends events
    lost : events that were neither delivered nor kept

    Examples
    --------
    Programs still get their own default if nothing answers:

    >>> from openfeature import api
    >>> from openfeature.evaluation_context import EvaluationContext
    >>> api.set_provider(SteadyArmProvider("http://127.0.0.1:9"))
    >>> visitor = EvaluationContext("visitor 1", {"device": "mobile"})
    >>> api.get_client().get_string_value("button", "green", visitor)
    'green'
    >>> api.shutdown()
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 2.0,
        buffer: str | os.PathLike[str] | RewardBuffer | None = None,
        cooldown: float = 5.0,
    ) -> None:
        self.lost = 0
        self._in_memory = buffer is None
        events = RewardBuffer(":memory:") if buffer is None else buffer
        self.client = Client(url, token, timeout=timeout, buffer=events, cooldown=cooldown)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        super().__init__(self.client.service.url, headers_factory=lambda: headers, timeout=timeout)
        self.session = _Session(self.client.service)

    def get_metadata(self) -> Metadata:
        """The name of the provider."""
        return Metadata(name="SteadyArm")

    resolve_boolean_details_async = _in_thread(OFREPProvider.resolve_boolean_details)
    resolve_string_details_async = _in_thread(OFREPProvider.resolve_string_details)
    resolve_integer_details_async = _in_thread(OFREPProvider.resolve_integer_details)
    resolve_float_details_async = _in_thread(OFREPProvider.resolve_float_details)
    resolve_object_details_async = _in_thread(OFREPProvider.resolve_object_details)

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Report an event of the unit that the targeting key names, such as "purchase".

        Its value is that of the details, 1 by default; their attribute "id", a text, identifies the
        event. What is wrong with an event is logged: a page must not fail over it.
        """
        details = tracking_event_details or TrackingEventDetails()
        unit: Any = None if evaluation_context is None else evaluation_context.targeting_key
        value: Any = 1.0 if details.value is None else details.value
        key: Any = details.attributes.get("id")
        delivery = self.client.delivery
        assert delivery is not None
        try:
            event = self.client.service.event(tracking_event_name, unit, value, key, None)
        except SteadyArmError as error:
            log.warning("an event was not reported: %s", error)
            return
        (result,) = delivery.keep(None, [event])
        if isinstance(result, SteadyArmError):
            self._lose(1, str(result))
        elif not self.client.service.breaker.open:
            delivery.wake()

    def flush(self, seconds: float = PATIENCE) -> bool:
        """Send the events that wait; False if the service does not take them in that time."""
        try:
            self.client.flush(seconds)
        except SteadyArmError as error:
            log.warning("events wait: %s", error)
            return False
        return True

    def shutdown(self) -> None:
        """Send the events that wait, if the service takes them, and close connections."""
        with suppress(SteadyArmError):
            self.client.flush(self.client.service.timeout)
        if self._in_memory and (pending := self.client.pending):
            self._lose(pending, "the program ends")
        self.client.close()
        self.session.close()

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        log.warning("%d events were neither delivered nor kept: %s", count, reason)


class _Session(requests.Session):
    """Sends evaluations, unless the service is known to be down."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    def post(self, url: Any, data: Any = None, json: Any = None, **options: Any) -> Any:
        """Send the context of an evaluation; times become texts."""
        if not self._service.breaker.allows():
            raise requests.ConnectionError(str(self._service.failure))
        known = json.get("context", {})
        context = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in known.items()
        }
        try:
            response = super().post(url, data, json | {"context": context}, **options)
        except requests.RequestException as error:
            self._service.note_failure(ServiceError(str(error)))
            raise
        if response.status_code >= 500:
            self._service.note_failure(ServiceError(f"{url} answered {response.status_code}."))
        else:
            self._service.note_answer()
        return response
