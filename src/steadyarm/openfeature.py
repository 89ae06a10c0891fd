"""SteadyArmProvider: experiments of a service as flags of OpenFeature, and events as rewards.

A flag is an experiment, its evaluation an assignment to the unit that the targeting key names, and
its value that of the variant. Flags are evaluated by the OFREP provider of the OpenFeature
community; events are sent by the client.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from steadyarm.errors import MissingExtraError

try:
    from openfeature.contrib.provider.ofrep import OFREPProvider
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import GeneralError, OpenFeatureError
    from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails
except ImportError:
    raise MissingExtraError(
        "the provider needs openfeature-sdk and openfeature-provider-ofrep; install them with: "
        "pip install 'steadyarm[openfeature]'"
    ) from None

from steadyarm.client import Client, RewardBuffer
from steadyarm.client.core import PATIENCE
from steadyarm.errors import ServiceError, SteadyArmError

__all__ = ["SteadyArmProvider"]

log = logging.getLogger("steadyarm.openfeature")

T = TypeVar("T")
Context = EvaluationContext | None
Details = FlagResolutionDetails
Object = Sequence[FlagValueType] | Mapping[str, FlagValueType]


class SteadyArmProvider(AbstractProvider):
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
    url : of the service, such as "http://localhost:8000"
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
        super().__init__()
        self.lost = 0
        self._in_memory = buffer is None
        kept = RewardBuffer(":memory:") if buffer is None else buffer
        self.client = Client(url, token, timeout=timeout, buffer=kept, cooldown=cooldown)
        self._service = self.client.service
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._flags = OFREPProvider(
            self._service.url, headers_factory=lambda: headers, timeout=timeout
        )

    def get_metadata(self) -> Metadata:
        """The name of the provider."""
        return Metadata(name="SteadyArm")

    # Evaluation

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: Context = None
    ) -> Details[bool]:
        """Evaluate a flag whose values are true and false."""
        evaluate = self._flags.resolve_boolean_details
        return self._evaluate(evaluate, flag_key, default_value, evaluation_context)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: Context = None
    ) -> Details[str]:
        """Evaluate a flag whose values are texts, such as the names of variants."""
        evaluate = self._flags.resolve_string_details
        return self._evaluate(evaluate, flag_key, default_value, evaluation_context)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: Context = None
    ) -> Details[int]:
        """Evaluate a flag whose values are whole numbers."""
        evaluate = self._flags.resolve_integer_details
        return self._evaluate(evaluate, flag_key, default_value, evaluation_context)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: Context = None
    ) -> Details[float]:
        """Evaluate a flag whose values are numbers."""
        evaluate = self._flags.resolve_float_details
        return self._evaluate(evaluate, flag_key, default_value, evaluation_context)

    def resolve_object_details(
        self, flag_key: str, default_value: Object, evaluation_context: Context = None
    ) -> Details[Object]:
        """Evaluate a flag whose values are objects or lists, such as the levels of factors."""
        evaluate = self._flags.resolve_object_details
        return self._evaluate(evaluate, flag_key, default_value, evaluation_context)

    async def resolve_boolean_details_async(
        self, flag_key: str, default_value: bool, evaluation_context: Context = None
    ) -> Details[bool]:
        """The same under asyncio, in a thread."""
        evaluate = self.resolve_boolean_details
        return await asyncio.to_thread(evaluate, flag_key, default_value, evaluation_context)

    async def resolve_string_details_async(
        self, flag_key: str, default_value: str, evaluation_context: Context = None
    ) -> Details[str]:
        """The same under asyncio, in a thread."""
        evaluate = self.resolve_string_details
        return await asyncio.to_thread(evaluate, flag_key, default_value, evaluation_context)

    async def resolve_integer_details_async(
        self, flag_key: str, default_value: int, evaluation_context: Context = None
    ) -> Details[int]:
        """The same under asyncio, in a thread."""
        evaluate = self.resolve_integer_details
        return await asyncio.to_thread(evaluate, flag_key, default_value, evaluation_context)

    async def resolve_float_details_async(
        self, flag_key: str, default_value: float, evaluation_context: Context = None
    ) -> Details[float]:
        """The same under asyncio, in a thread."""
        evaluate = self.resolve_float_details
        return await asyncio.to_thread(evaluate, flag_key, default_value, evaluation_context)

    async def resolve_object_details_async(
        self, flag_key: str, default_value: Object, evaluation_context: Context = None
    ) -> Details[Object]:
        """The same under asyncio, in a thread."""
        evaluate = self.resolve_object_details
        return await asyncio.to_thread(evaluate, flag_key, default_value, evaluation_context)

    def _evaluate(
        self, evaluate: Callable[..., Details[T]], key: str, default: T, context: Context
    ) -> Details[T]:
        if not self._service.breaker.allows():
            raise GeneralError(str(self._service.failure))
        if context is not None:
            plain = {name: _plain(value) for name, value in context.attributes.items()}
            context = EvaluationContext(context.targeting_key, plain)
        try:
            details = evaluate(key, default, context)
        except OpenFeatureError as error:
            if _is_outage(error):
                self._service.note_failure(ServiceError(error.error_message))
            else:
                self._service.note_answer()
            raise
        self._service.note_answer()
        return details

    # Events

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: Context = None,
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
            event = self._service.event(tracking_event_name, unit, value, key, None)
        except SteadyArmError as error:
            log.warning("an event was not reported: %s", error)
            return
        try:
            (result,) = delivery.keep(None, [event])
        except SteadyArmError as error:
            result = error
        if isinstance(result, SteadyArmError):
            self._lose(1, str(result))
        elif not self._service.breaker.open:
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
            self.client.flush(self._service.timeout)
        if self._in_memory and (pending := self.client.pending):
            self._lose(pending, "the program ends")
        self.client.close()

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        log.warning("%d events were neither delivered nor kept: %s", count, reason)


def _plain(value: Any) -> Any:
    """An attribute of a context; a time as text, since a request has no other form for it."""
    return value.isoformat() if isinstance(value, datetime) else value


def _is_outage(error: OpenFeatureError) -> bool:
    """Whether the service could not be reached, or failed on its side."""
    response = getattr(error.__cause__, "response", None)
    if response is None:
        return isinstance(error, GeneralError) and error.__cause__ is not None
    return bool(response.status_code >= 500)
