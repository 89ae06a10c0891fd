"""Transport: requests to the service, tried again where that is safe, within a time limit.

This is the one place where responses become structs, and problems the errors of `Experiment`.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import IO, Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from steadyarm.client.pools import (
    Answer,
    BlockingPool,
    Pool,
    Request,
    SendingError,
    forget_after_fork,
)
from steadyarm.errors import (
    InvalidInputError,
    ServiceError,
    SteadyArmError,
    StorageError,
    UnknownAssignmentError,
)
from steadyarm.validation import finite_number, whole_number
from steadyarm.wire.responses import PROBLEM, PROBLEMS, Response
from steadyarm.wording import shortened

REMEMBERED = 100_000  # units

T = TypeVar("T")
Item = TypeVar("Item")
R = TypeVar("R", bound=Response)


class RecentUnits(Generic[T]):
    """Something about each of the units that were added or read last.

    Examples
    --------
    >>> units = RecentUnits(most=2)
    >>> for unit in ["u1", "u2", "u1", "u3"]:
    ...     units[unit] = unit.upper()
    >>> [unit in units for unit in ["u1", "u2", "u3"]]
    [True, False, True]
    >>> units.get("u1"), units.pop("u1"), units.get("u1")
    ('U1', 'U1', None)
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._units: OrderedDict[str, T] = OrderedDict()
        self._lock = Lock()
        forget_after_fork(self)

    def __contains__(self, unit: object) -> bool:
        return unit in self._units

    def __setitem__(self, unit: str, value: T) -> None:
        with self._lock:
            self._units[unit] = value
            self._units.move_to_end(unit)
            if len(self._units) > self._most:
                self._units.popitem(last=False)

    def get(self, unit: str) -> T | None:
        """What was added about a unit; None if it is not remembered."""
        with self._lock:
            if unit in self._units:
                self._units.move_to_end(unit)
            return self._units.get(unit)

    def pop(self, unit: str) -> T | None:
        """The same, and forget it."""
        with self._lock:
            return self._units.pop(unit, None)

    def forget(self) -> None:
        """Renew the lock, which another thread may have held during a fork."""
        self._lock = Lock()


# Responses: what they contain, or the error that they report.


KINDS: dict[str, type[SteadyArmError]] = PROBLEMS | {
    "malformed": InvalidInputError,
    "event-not-counted": UnknownAssignmentError,  # if no experiment has another reason
}
ADVICE = {401: "Give a token: Client(url, token=…).", 403: "Use a token of a wider scope."}


class ServiceDownError(ServiceError):
    """The service cannot be reached or fails on its side; the same request may work later.

    Examples
    --------
    >>> import steadyarm as sa
    >>> try:
    ...     sa.Client("http://127.0.0.1:9", retries=0).experiments()
    ... except ServiceDownError as error:
    ...     print(isinstance(error, sa.ServiceError))
    True
    """


class TooLargeError(ServiceError):
    """The service, or a proxy before it, refuses a request of this size; a smaller one may work."""


DOWN = (ServiceDownError, StorageError)  # what default arms and buffered rewards are for


def error_in(problem: Mapping[str, Any], status: int | None = None) -> SteadyArmError:
    """The error that a problem describes, in the service's own words.

    Examples
    --------
    >>> error_in({"type": "urn:steadyarm:problem:budget-spent", "detail": "All 10 are out."})
    BudgetSpentError('All 10 are out.')
    """
    status = problem.get("status", status)
    detail = str(problem.get("detail") or problem.get("title") or "the service gave no reason.")
    hint = str(problem.get("hint") or ADVICE.get(status or 0, ""))
    message = f"{detail} {hint}".strip()
    kind = str(problem.get("type", "")).removeprefix(PROBLEM)
    for refused in problem.get("experiments") or ():
        reason = error_in(refused["error"])
        if not isinstance(reason, UnknownAssignmentError):
            return reason
    if kind in KINDS:
        error = KINDS[kind](message)
        if isinstance(error, InvalidInputError):
            error.field, error.given = problem.get("field"), problem.get("given")
            error.expected = problem.get("expected")
        return error
    if identity := problem.get("request_id"):
        message = f"{message} (request {identity})"
    return _kind_of(413 if kind == "too-large" else status)(message)


def each_in(entries: list[Any], gives: type[R], count: int) -> list[R | SteadyArmError]:
    """The entries of a batch, each a struct or the error that took its place."""
    if len(entries) != count:
        raise ServiceError(
            f"the service answered with {len(entries)} entries to {count}; is it of another "
            "version than this client?"
        )
    found = understood(
        lambda: [
            error_in(one["error"]) if "error" in one else msgspec.convert(one, gives)
            for one in entries
        ]
    )
    for one in found:
        if isinstance(one, DOWN):  # it says nothing about the others: try again later
            raise one
    return found


async def in_halves(
    send: Callable[[Sequence[Item]], Awaitable[list[T]]],
    items: Sequence[Item],
    raising: type[SteadyArmError] | tuple[type[SteadyArmError], ...] = (ServiceError, StorageError),
) -> list[T | SteadyArmError]:
    """Results of `send`, also if one item makes it refuse all of them, or they are too many.

    raising : errors that say nothing about the items; others take the place of each

    Examples
    --------
    >>> from steadyarm.client.pools import run
    >>> async def send(items):
    ...     if "bad" in items:
    ...         raise InvalidInputError("one is bad.")
    ...     return [item.upper() for item in items]
    >>> run(in_halves(send, ["a", "b", "bad", "d"]))
    ['A', 'B', InvalidInputError('one is bad.'), 'D']
    """
    try:
        return [*await send(items)]
    except (InvalidInputError, TooLargeError) as error:
        if len(items) == 1:
            return [error]
        middle = len(items) // 2
        first = await in_halves(send, items[:middle], raising)
        return first + await in_halves(send, items[middle:], raising)
    except raising:
        raise
    except SteadyArmError as error:
        return [error] * len(items)


def understood(read: Callable[[], T]) -> T:
    """What is read in a response; ServiceError if no SteadyArm service could have sent it."""
    try:
        return read()
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> ServiceError:
    return ServiceError(
        f"the service's answer cannot be read ({error!r}); is it of another version than this "
        "client?"
    )


def _error_of(answer: Answer) -> SteadyArmError:
    """The error that an answer of 3xx, 4xx or 5xx means."""
    try:
        problem = json.loads(answer.content)
    except ValueError:
        problem = None
    if isinstance(problem, Mapping) and "type" in problem:
        return error_in(problem, answer.status)
    # Somebody else answered: a proxy, a load balancer, another program on that port.
    return _kind_of(answer.status)(
        f"{answer.url} answered {answer.status} {answer.reason}, and not as a SteadyArm service "
        "does; is the address right, and the service behind it running?"
    )


def _kind_of(status: Any) -> type[ServiceError]:
    if status == 413:
        return TooLargeError
    later = isinstance(status, int) and (status == 429 or status >= 500)
    return ServiceDownError if later else ServiceError


def _encoded(body: Any) -> bytes:
    try:
        plain = msgspec.to_builtins(body)
        return json.dumps(plain, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{shortened(body)} cannot be sent: {error}; expected numbers, texts and lists."
        ) from None


# Breaker: after a failure only one call in some seconds waits for the service.


class Breaker:
    """Remembers that the service is down, so that a page need not find out each time.

    Examples
    --------
    >>> now = 0.0
    >>> breaker = Breaker(cooldown=5.0, clock=lambda: now)
    >>> breaker.allows(), breaker.failed(), breaker.allows()
    (True, None, False)
    >>> now = 6.0
    >>> breaker.allows(), breaker.allows()  # one tries again, others go on
    (True, False)
    >>> breaker.worked(), breaker.allows()
    (True, True)
    """

    def __init__(self, cooldown: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.cooldown = cooldown
        self._clock = clock
        self._until: float | None = None  # None: all is well
        self._lock = Lock()
        forget_after_fork(self)

    @property
    def open(self) -> bool:
        """Whether the last call failed."""
        return self._until is not None

    def allows(self) -> bool:
        """Whether to try; after the cooldown one caller tries on behalf of all."""
        if self._until is None:
            return True
        with self._lock:
            now = self._clock()
            if self._until is not None and now < self._until:
                return False
            self._until = now + self.cooldown
            return True

    def failed(self) -> None:
        """The service could not be reached, after all retries."""
        with self._lock:
            self._until = self._clock() + self.cooldown

    def worked(self) -> bool:
        """It answered; True if it had failed before."""
        if self._until is None:
            return False
        with self._lock:
            recovered, self._until = self._until is not None, None
            return recovered

    def forget(self) -> None:
        """Renew the lock, which another thread may have held during a fork."""
        self._lock = Lock()


BATCH = 250  # entries of one request: well below what services accept, unless set up otherwise
PATIENCE = 30.0  # seconds for what nobody's page waits for: batches, verdicts, exports
FIRST_PAUSE = 0.05  # seconds; doubled with every further try
BUSY = (429, 502, 503, 504)  # answers after which the same request may succeed
REASONS = 1000  # for which events are refused: names of events may be anything


class Transport:
    """The way to one service: what is sent when, how often, and what answers mean.

    A call has `timeout` seconds in all. Every try may take half of what is left, the last one all
    of it, and so one that cannot be repeated; pauses between them double, and are jittered so that
    many clients do not come at once.

    pool : makes the connections, from an address and headers; see `pools.py`

    Attributes
    ----------
    failure : why the breaker opened last
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 2.0,
        retries: int = 3,
        cooldown: float = 5.0,
        jitter: random.Random | None = None,
        pool: Callable[[str, Mapping[str, str]], Pool] = BlockingPool,
    ) -> None:
        self.url = _checked(url)
        self.timeout = finite_number(timeout, "timeout")
        if self.timeout <= 0:
            raise InvalidInputError(f"timeout is {timeout!r}; expected seconds above 0.")
        self.retries = whole_number(retries, "retries")
        self.breaker = Breaker(cooldown)
        self.failure: SteadyArmError = ServiceDownError(f"the service at {self.url} is down.")
        self.recovered: Callable[[], None] = _nothing  # called when the service is back
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._random = jitter or random.Random()
        self._refused = set[tuple[str, type[SteadyArmError]]]()
        self.pool = pool(self.url, self._headers)

    def for_threads(self) -> Transport:
        """The same way, with connections of its own that threads may use; one breaker for both."""
        other = copy.copy(self)
        other.pool = BlockingPool(self.url, self._headers)
        return other

    def is_new(self, event: str, error: SteadyArmError) -> bool:
        """Whether an event of this name is refused for such a reason for the first time.

        It is logged then, and not again.
        """
        reason = event, type(error)
        new = reason not in self._refused and len(self._refused) < REASONS
        if new:
            self._refused.add(reason)
        return new

    async def call(
        self,
        gives: type[R],
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        within: float | None = None,
        repeatable: bool = True,
        stamped: bool = False,
    ) -> R:
        """The content of a good response; raises the error that another one means.

        gives : what a good response contains
        within : seconds in all, `timeout` by default
        stamped : the body, a mapping, gets the time at which it is sent, anew at every try
        repeatable : False if doing it twice differs from once; then it is only tried again if
            there was no connection, because a request that was sent may have been processed
        """
        content = None if body is None or stamped else _encoded(body)
        deadline = time.monotonic() + (within or self.timeout)
        for attempt in range(self.retries + 1):
            self._check_open()
            left = max(deadline - time.monotonic(), 0.001)
            last = attempt == self.retries
            wanted, unsent = 0.0, False
            if stamped:
                content = _encoded(body | {"sent": datetime.now(UTC).isoformat()})
            timeout = left / 2 if repeatable and not last else left
            try:
                answer = await self.pool.send(
                    Request(method, self._address(path), content, query, timeout)
                )
            except SendingError as error:
                problem: SteadyArmError = self._unreachable(error)
                unsent = error.unsent
                again = repeatable or unsent
            else:
                if answer.status not in BUSY:
                    return self._content(answer, gives)
                problem, again = _error_of(answer), repeatable
                wanted = _retry_after(answer.headers.get("Retry-After"))
            pause = max(wanted, FIRST_PAUSE * 2**attempt * self._random.uniform(0.5, 1.5))
            if last or not again or time.monotonic() + pause >= deadline:
                break
            await self.pool.sleep(pause)
        self._check_open()  # else closing it would be taken for an outage
        if unsent or within is None:  # a verdict that takes long does not mean that all is lost
            self.failure = type(problem)(str(problem))  # without its traceback, as this stays
            self.breaker.failed()
        raise problem

    async def download(self, file: IO[bytes], *path: str, query: Mapping[str, Any]) -> None:
        """Write the content of a long answer into a file, piece by piece; not tried again."""
        self._check_open()
        try:
            answer = await self.pool.download(
                Request("GET", self._address(path), None, query, PATIENCE), file
            )
        except SendingError as error:
            raise self._unreachable(error) from None
        if answer.status != 200:
            raise _error_of(answer)

    def _check_open(self) -> None:
        if self.pool.closed:
            raise ServiceError("this client was closed; make another one.")

    def _address(self, path: tuple[str, ...]) -> str:
        return "/".join([self.url, "v1", *(quote(part, safe=":") for part in path)])

    def _content(self, answer: Answer, gives: type[R]) -> R:
        if answer.status < 500 and self.breaker.worked():
            self.recovered()
        if not 200 <= answer.status < 300:
            raise _error_of(answer)
        try:
            return msgspec.json.decode(answer.content, type=gives)
        except msgspec.ValidationError as error:
            raise _unreadable(error) from None
        except ValueError:
            text = answer.content.decode(errors="replace")
            raise ServiceError(
                f"{answer.url} answered with {shortened(text)}, which is no JSON; is this the "
                "address of a SteadyArm service?"
            ) from None

    def _unreachable(self, error: SendingError) -> ServiceDownError:
        reason = "did not answer in time" if error.slow else f"cannot be reached: {error}"
        return ServiceDownError(
            f"the service at {self.url} {reason}; is it running, and is the address right?"
        )


def _nothing() -> None:
    pass


def _checked(url: Any) -> str:
    try:
        parts = urlsplit(url.rstrip("/"))
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (AttributeError, TypeError, ValueError):
        good = False
    if not good:
        raise InvalidInputError(
            f'url is {url!r}; expected the address of a service, such as "http://localhost:8000".'
        )
    address: str = url.rstrip("/")
    return address.removesuffix("/v1").rstrip("/") if parts.path.endswith("/v1") else address


def _retry_after(value: str | None) -> float:
    """Seconds that the service wants to be left alone; given as such or as a date."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
