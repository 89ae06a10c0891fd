"""SteadyArmProvider: experiments of a service as flags of OpenFeature, and events as rewards.

A flag is an experiment, its evaluation an assignment to the unit that the targeting key names, and
its value that of the variant. Programs under asyncio and others use one provider.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from typing import Any, TypeVar

import msgspec

from steadyarm.errors import MissingExtraError

try:
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import (
        FlagNotFoundError,
        GeneralError,
        InvalidContextError,
        OpenFeatureError,
        TargetingKeyMissingError,
        TypeMismatchError,
    )
    from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails
except ImportError:
    raise MissingExtraError(
        "the provider needs openfeature-sdk; install it with: pip install 'steadyarm[openfeature]'"
    ) from None

from steadyarm.client import AsyncClient, Client, RewardBuffer
from steadyarm.client.buffer import RewardReport
from steadyarm.client.client import event_report
from steadyarm.client.pools import forget_after_fork, run
from steadyarm.client.transport import BATCH, PATIENCE
from steadyarm.errors import (
    InvalidInputError,
    SteadyArmError,
    UnknownExperimentError,
)
from steadyarm.wire.flags import NOTHING, FlagAnswer, FlagMetadata, known_in
from steadyarm.wire.responses import PROBLEMS

__all__ = ["SteadyArmProvider"]

log = logging.getLogger("steadyarm.openfeature")

T = TypeVar("T")
Context = EvaluationContext | None
Details = FlagResolutionDetails
Object = Sequence[FlagValueType] | Mapping[str, FlagValueType]

WAITING = 10_000  # events that the thread has not sent yet


class SteadyArmProvider(AbstractProvider):
    """Experiments of a SteadyArm service as flags of OpenFeature.

    What the context of an evaluation says of attributes and covariates that an experiment has
    declared is stored with the assignment. Where there is no variant, the program's own default is
    used: with the reason DISABLED if the test gives none now (it is paused, say), with an error
    code if the service is down or a value has another type than the program expects. While the
    service is down only one evaluation in `cooldown` seconds waits for it.

    `track` reports an event to every experiment that has a metric of its name. It returns at once;
    a thread sends events, tries again, and writes them into the buffer while the service is down.

    Parameters
    ----------
    url : of the service, such as "http://localhost:8000"
    token : that the service requires, of the scope write
    timeout : seconds after which an evaluation gives up, all tries together
    retries : how often a request is tried again
    buffer : file in which events are kept while the service is down; without it they are lost,
        which is logged
    cooldown : seconds after a failure in which evaluations do not wait for the service

    Attributes
    ----------
    client : that sends events and evaluates for threads
    asyncio : that evaluates under asyncio
    lost : events that were neither delivered nor kept

    Examples
    --------
    Programs still get their own default if nothing answers:

    >>> from openfeature import api
    >>> from openfeature.evaluation_context import EvaluationContext
    >>> api.set_provider(SteadyArmProvider("http://127.0.0.1:9", retries=0))
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
        retries: int = 3,
        buffer: str | os.PathLike[str] | RewardBuffer | None = None,
        cooldown: float = 5.0,
    ) -> None:
        super().__init__()
        rules: dict[str, Any] = {"timeout": timeout, "retries": retries, "cooldown": cooldown}
        self.client = Client(url, token, buffer=buffer, **rules)
        self.asyncio = AsyncClient(url, token, **rules)
        self.asyncio.transport.breaker = self.client.transport.breaker  # one service, one outage
        self.lost = 0
        self.forget()
        forget_after_fork(self)

    def get_metadata(self) -> Metadata:
        """The name of the provider."""
        return Metadata(name="SteadyArm")

    # Evaluation

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: Context = None
    ) -> Details[bool]:
        """Evaluate a flag whose values are true and false."""
        return run(self._flag(self.client.core, flag_key, default_value, evaluation_context, _bool))

    async def resolve_boolean_details_async(
        self, flag_key: str, default_value: bool, evaluation_context: Context = None
    ) -> Details[bool]:
        """The same under asyncio."""
        return await self._flag(self.asyncio, flag_key, default_value, evaluation_context, _bool)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: Context = None
    ) -> Details[str]:
        """Evaluate a flag whose values are texts, such as the names of variants."""
        return run(self._flag(self.client.core, flag_key, default_value, evaluation_context, _text))

    async def resolve_string_details_async(
        self, flag_key: str, default_value: str, evaluation_context: Context = None
    ) -> Details[str]:
        """The same under asyncio."""
        return await self._flag(self.asyncio, flag_key, default_value, evaluation_context, _text)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: Context = None
    ) -> Details[int]:
        """Evaluate a flag whose values are whole numbers."""
        return run(self._flag(self.client.core, flag_key, default_value, evaluation_context, _int))

    async def resolve_integer_details_async(
        self, flag_key: str, default_value: int, evaluation_context: Context = None
    ) -> Details[int]:
        """The same under asyncio."""
        return await self._flag(self.asyncio, flag_key, default_value, evaluation_context, _int)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: Context = None
    ) -> Details[float]:
        """Evaluate a flag whose values are numbers."""
        return run(
            self._flag(self.client.core, flag_key, default_value, evaluation_context, _float)
        )

    async def resolve_float_details_async(
        self, flag_key: str, default_value: float, evaluation_context: Context = None
    ) -> Details[float]:
        """The same under asyncio."""
        return await self._flag(self.asyncio, flag_key, default_value, evaluation_context, _float)

    def resolve_object_details(
        self, flag_key: str, default_value: Object, evaluation_context: Context = None
    ) -> Details[Object]:
        """Evaluate a flag whose values are objects or lists, such as the levels of factors."""
        return run(
            self._flag(self.client.core, flag_key, default_value, evaluation_context, _object)
        )

    async def resolve_object_details_async(
        self, flag_key: str, default_value: Object, evaluation_context: Context = None
    ) -> Details[Object]:
        """The same under asyncio."""
        return await self._flag(self.asyncio, flag_key, default_value, evaluation_context, _object)

    async def _flag(
        self,
        client: AsyncClient,
        key: str,
        default: T,
        context: Context,
        typed: Callable[[Any], T],
    ) -> Details[T]:
        """The value of a unit's variant, or the default where the test has none."""
        unit = None if context is None else context.targeting_key
        if context is None or not unit:
            raise TargetingKeyMissingError(
                "the context has no targeting key; expected a text that names the unit, such as a "
                "visitor's id."
            )
        transport = client.transport
        try:
            if not transport.breaker.allows():
                raise transport.failure
            experiment = client.experiment(key)
            settings = await experiment.known()
            known = known_in(_plain(context.attributes), settings.attributes, settings.covariates)
            found = await experiment.ask(unit, *known)
        except NOTHING as error:
            kind = next(name for name, each in PROBLEMS.items() if isinstance(error, each))
            metadata = _scalars(FlagMetadata(key, False, problem=kind))
            return FlagResolutionDetails(default, reason=Reason.DISABLED, flag_metadata=metadata)
        except SteadyArmError as error:
            raise _translated(error) from error
        answer = FlagAnswer.of(key, found)
        return FlagResolutionDetails(
            typed(found.value),
            variant=answer.variant,
            reason=Reason(answer.reason),
            flag_metadata=_scalars(answer.metadata),
        )

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
        try:
            event = event_report(tracking_event_name, unit, value, key)
        except SteadyArmError as error:
            log.warning("an event was not reported: %s", error)
            return
        with self._waiting:
            full = self._count >= WAITING
            self._count += not full
        if full:
            self._lose(1, f"{WAITING} wait already")
            return
        self._start()
        self._events.put(event)

    def flush(self, within: float = PATIENCE) -> bool:
        """Wait until all events were sent, or kept in the buffer; False if that takes longer.

        Parameters
        ----------
        within : seconds
        """
        with self._waiting:
            return self._waiting.wait_for(lambda: not self._count, within)

    def shutdown(self) -> None:
        """Send the events that wait, within the timeout, then close connections.

        Those of evaluations under asyncio are closed by `await provider.asyncio.close()`, or with
        their event loop.
        """
        thread = self._thread
        if thread is not None:
            self._events.put(None)
            thread.join(self.client.transport.timeout)
            if thread.is_alive():
                self._lose(self._count, "the program ends")
        self.client.close()

    def forget(self) -> None:
        """Start without thread and events, as those are the parent's in the child of a fork."""
        self._events = SimpleQueue[RewardReport | None]()
        self._waiting, self._count = Condition(), 0
        self._thread: Thread | None = None

    def _start(self) -> None:
        with self._waiting:
            if self._thread is None:
                self._thread = Thread(target=self._send, name="steadyarm-events", daemon=True)
                self._thread.start()

    def _send(self) -> None:
        """Send events in batches until the provider is shut down."""
        going = True
        while going:
            batch = [self._events.get()]
            try:
                while len(batch) < BATCH:
                    batch.append(self._events.get_nowait())
            except Empty:
                pass
            going = None not in batch
            events = [one for one in batch if one is not None]
            self._report(events)
            with self._waiting:
                self._count -= len(events)
                self._waiting.notify_all()

    def _report(self, events: Sequence[RewardReport]) -> None:
        try:
            results = run(self.client.core.track_many(events)) if events else []
        except Exception as error:  # a thread has nobody to raise to
            self._lose(len(events), str(error))
            return
        transport = self.client.transport
        for event, result in zip(events, results, strict=True):
            if isinstance(result, SteadyArmError) and transport.is_new(event.name, result):
                log.warning("an event of %r was refused: %s", event.target, result)

    def _lose(self, count: int, reason: str) -> None:
        if count:
            self.lost += count
            log.warning("%d events were neither delivered nor kept: %s", count, reason)


# Values have the type that the program expects, or its default is used.


def _bool(value: Any) -> bool:
    return value if isinstance(value, bool) else _mismatch(value, "a boolean")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _mismatch(value, "a text")


def _int(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if whole else _mismatch(value, "a whole number")


def _float(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else _mismatch(value, "a number")


def _object(value: Any) -> Object:
    return value if isinstance(value, dict | list) else _mismatch(value, "an object or a list")


def _mismatch(value: Any, expected: str) -> Any:
    raise TypeMismatchError(
        f"the value of the variant is {value!r}; the program expects {expected}."
    )


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The context's attributes; times as texts, since a request has no other form for them."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in attributes.items()
    }


def _scalars(metadata: FlagMetadata) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(metadata)
    return found


def _translated(error: SteadyArmError) -> OpenFeatureError:
    """The error in OpenFeature's words."""
    if isinstance(error, UnknownExperimentError):
        return FlagNotFoundError(str(error))
    if isinstance(error, InvalidInputError):
        return InvalidContextError(str(error))
    return GeneralError(str(error))
