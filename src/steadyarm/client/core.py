"""Client logic without I/O: requests, retries and answers. `blocking` and `asyncio` send calls."""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from steadyarm.covariates import add_expected_to_each
from steadyarm.errors import (
    InvalidInputError,
    ServiceError,
    SteadyArmError,
    StorageError,
    UnknownAssignmentError,
)
from steadyarm.live.assigner import At, Values, finite_values
from steadyarm.live.units import Covariates, Given
from steadyarm.storages.records import LATEST, to_datetime, to_micros, validate_unit
from steadyarm.validation import check_choice, finite_number, length_error, whole_number
from steadyarm.wire.responses import (
    PROBLEM,
    PROBLEMS,
    AssignmentAnswer,
    Assignments,
    EventAnswer,
    EventAnswers,
    EventStatus,
    ExperimentAnswer,
    Recommendation,
    RewardStatus,
    RewardStatuses,
    SettingsAnswer,
)
from steadyarm.wording import shortened

log = logging.getLogger("steadyarm.client")

BATCH = 100  # entries of one request: the fewest that a service must take (`max_batch`)
PATIENCE = 30.0  # seconds for calls that no page waits for: batches and verdicts
KEPT_ALIVE = 20.0  # seconds, less than servers keep idle connections: they must not close first
FIRST_PAUSE = 0.05  # seconds; doubled with every further try
BUSY = (429, 502, 503, 504)  # answers after which the same request may succeed
REMEMBERED = 100_000  # units that were shown a default arm
MOST_KINDS = 1000  # of warnings: names of events may be anything
EVERY = 60.0  # seconds between two warnings of the same kind
LISTED = 20  # variants in a message

OnUnknown = Literal["ignore", "raise"]
# What becomes of a reward: "kept" until the service is back, "ignored" if it is of a default arm or
# of a unit without an assignment, "lost" if the service is down and there is no buffer.
Outcome = Literal["stored", "repeated", "outside", "kept", "ignored", "lost"]
Result = Outcome | SteadyArmError
Report = dict[str, Any]  # a reward or an event, as it is sent

R = TypeVar("R")
S = TypeVar("S", bound=msgspec.Struct)


class ServiceDownError(ServiceError):
    """The service cannot be reached or fails on its side; the same request may work later.

    Examples
    --------
    >>> import steadyarm as sa
    >>> try:
    ...     sa.Client("http://127.0.0.1:9", retries=0).experiment("shop").status()
    ... except ServiceDownError as error:
    ...     print(isinstance(error, sa.ServiceError))
    True
    """


class BusyError(Exception):
    """The service cannot serve a request now.

    retry_after : seconds for which it wants to be left alone
    """

    def __init__(self, problem: SteadyArmError, retry_after: float) -> None:
        super().__init__(problem, retry_after)
        self.problem, self.retry_after = problem, retry_after


DOWN = (ServiceDownError, StorageError)  # errors that default arms and buffered rewards are for
KINDS: dict[str, type[SteadyArmError]] = PROBLEMS | {
    "malformed": InvalidInputError,
    "event-not-counted": UnknownAssignmentError,  # unless an experiment has another reason
}
ADVICE = {401: "Give a token: Client(url, token=…).", 403: "Use a token of a wider scope."}


def read_error(problem: Mapping[str, Any], status: int | None = None) -> SteadyArmError:
    """Read the error that a problem describes.

    Examples
    --------
    >>> read_error({"type": "urn:steadyarm:problem:budget-spent", "detail": "All 10 are out."})
    BudgetSpentError('All 10 are out.')
    """
    status = problem.get("status", status)
    detail = str(problem.get("detail") or problem.get("title") or "the service gave no reason.")
    hint = str(problem.get("hint") or ADVICE.get(status or 0, ""))
    message = f"{detail} {hint}".strip()
    kind = str(problem.get("type", "")).removeprefix(PROBLEM)
    for refusal in problem.get("experiments") or ():
        reason = read_error(refusal["error"])
        if not isinstance(reason, UnknownAssignmentError):
            return reason
    if kind in KINDS:
        error = KINDS[kind](message)
        if isinstance(error, InvalidInputError):
            error.field, error.given = problem.get("field"), problem.get("given")
            error.expected = problem.get("expected")
        return error
    if request_id := problem.get("request_id"):
        message = f"{message} (request {request_id})"
    return _service_error(status, message)


def _service_error(status: Any, message: str) -> ServiceError:
    later = isinstance(status, int) and (status == 429 or status >= 500)
    return ServiceDownError(message) if later else ServiceError(message)


def _read_failure(response: httpx2.Response) -> SteadyArmError:
    """Read the error of a response of 3xx, 4xx or 5xx."""
    try:
        problem = json.loads(response.content)
    except ValueError:
        problem = None
    if isinstance(problem, Mapping) and "type" in problem:
        return read_error(problem, response.status_code)
    # A proxy, a load balancer or another program on that port answered.
    return _service_error(
        response.status_code,
        f"{response.url} answered {response.status_code} {response.reason_phrase}, and not as a "
        "SteadyArm service does; is the address right, and the service behind it running?",
    )


class Breaker:
    """Remembers that the service is down, so that a page need not find out each time.

    Examples
    --------
    >>> now = 0.0
    >>> breaker = Breaker(cooldown=5.0, clock=lambda: now)
    >>> breaker.allows(), breaker.fail(), breaker.allows()
    (True, None, False)
    >>> now = 6.0
    >>> breaker.allows(), breaker.allows()  # one tries again, others go on
    (True, False)
    >>> breaker.succeed(), breaker.allows()
    (True, True)
    """

    def __init__(self, cooldown: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.cooldown = cooldown
        self._clock = clock
        self._until: float | None = None  # None: all is well
        self._lock = Lock()

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

    def fail(self) -> None:
        """Note that the service could not be reached, after all retries."""
        with self._lock:
            self._until = self._clock() + self.cooldown

    def succeed(self) -> bool:
        """Note that the service answered; True if it had failed before."""
        if self._until is None:
            return False
        with self._lock:
            recovered, self._until = self._until is not None, None
            return recovered


@dataclass
class Call(Generic[R]):
    """One request to a service: its next try, and what the answer means.

    A call has `seconds` in all. Every try may take half of what is left; the last one, and one that
    must not be repeated, may take all of it. Pauses between tries double, and are jittered so that
    many clients do not come at once.

    read : turns the content of a good answer into the result
    seconds : in all; by default the timeout of the client, as somebody waits for the answer
    repeatable : whether doing it twice is the same as doing it once. Otherwise it is only tried
        again if there was no connection, because a request that was sent may have been processed
    stamped : whether the body, a mapping, says when it is sent
    """

    service: Service
    read: Callable[[bytes], R]
    method: str
    path: Sequence[str]
    body: Any = None
    query: Mapping[str, Any] | None = None
    seconds: float | None = None
    repeatable: bool = True
    stamped: bool = False

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + (self.seconds or self.service.timeout)
        self._attempt = 0

    def request(self) -> dict[str, Any]:
        """Arguments of `httpx2.Client.request` for the next try."""
        left = max(self._deadline - time.monotonic(), 0.001)
        halved = self.repeatable and self._attempt < self.service.retries
        body = self.body
        if self.stamped:
            body = body | {"sent": datetime.now(UTC).isoformat()}
        return {
            "method": self.method,
            "url": "/".join([self.service.url, "v1", *(quote(p, safe=":") for p in self.path)]),
            "content": None if body is None else _encode(body),
            "params": self.query,
            "timeout": left / 2 if halved else left,
        }

    def receive(self, response: httpx2.Response) -> R:
        """Read the result in a response; raise the error that a bad one means."""
        if response.status_code in BUSY:
            raise BusyError(_read_failure(response), _retry_after(response))
        if response.status_code < 500:
            self.service.note_answer()
        if not 200 <= response.status_code < 300:
            raise _read_failure(response)
        try:
            return self.read(response.content)
        except msgspec.ValidationError as error:
            raise ServiceError(
                f"the service's answer cannot be read ({error}); is it of another version than "
                "this client?"
            ) from None
        except ValueError:
            text = response.content.decode(errors="replace")
            raise ServiceError(
                f"{response.url} answered with {shortened(text)}, which is no JSON; is this the "
                "address of a SteadyArm service?"
            ) from None

    def pause_after(self, error: Exception) -> float:
        """Seconds until the next try after a failed one; raises the error if there is none."""
        unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        problem, wanted = self._describe(error), 0.0
        if isinstance(error, BusyError):
            problem, wanted = error.problem, error.retry_after
        pause = max(wanted, FIRST_PAUSE * 2.0**self._attempt * random.uniform(0.5, 1.5))
        last = self._attempt == self.service.retries
        late = time.monotonic() + pause >= self._deadline
        if not last and not late and (self.repeatable or unsent):
            self._attempt += 1
            return pause
        if unsent or self.seconds is None:  # a slow verdict does not mean that the service is down
            self.service.note_failure(type(problem)(str(problem)))  # without its traceback
        raise problem from None

    def _describe(self, error: Exception) -> SteadyArmError:
        slow = isinstance(error, httpx2.TimeoutException | TimeoutError)
        reason = "did not answer in time" if slow else f"cannot be reached: {error}"
        return ServiceDownError(
            f"the service at {self.service.url} {reason}; is it running, and is the address right?"
        )


class Service:
    """The service that a client talks to, and its state as the client has seen it last.

    Attributes
    ----------
    failure : why the breaker opened last
    recovered : called when the service answers again after it was down
    defaulted, ignored, lost : see `Client`
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout: float,
        retries: int,
        default_arm: str | None,
        cooldown: float,
        on_unknown: OnUnknown,
        buffered: bool,
    ) -> None:
        check_choice(on_unknown, "on_unknown", get_args(OnUnknown))
        self.url = _normalize_url(url)
        self.timeout = finite_number(timeout, "timeout")
        if self.timeout <= 0:
            raise InvalidInputError(f"timeout is {timeout!r}; expected seconds above 0.")
        self.retries = whole_number(retries, "retries")
        self.default_arm, self.on_unknown, self.buffered = default_arm, on_unknown, buffered
        self.breaker = Breaker(cooldown)
        self.failure: SteadyArmError = ServiceDownError(f"the service at {self.url} is down.")
        self.recovered: Callable[[], None] = lambda: None
        self.defaulted = self.ignored = self.lost = 0
        self._token = token
        self._lock = Lock()
        self._warned: dict[Hashable, float] = {}
        self._experiments: dict[tuple[str, str | None], ExperimentCore] = {}
        self._outside: dict[str, RecentUnits] = {}  # by experiment

    @property
    def connection(self) -> dict[str, Any]:
        """Arguments of `httpx2.Client`."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return {
            "headers": headers,
            "limits": httpx2.Limits(keepalive_expiry=KEPT_ALIVE),
            "verify": self.url.startswith("https:"),  # loading certificates takes 0.1 seconds
        }

    def experiment(self, name: str, default_arm: str | None) -> ExperimentCore:
        """Find the experiment of a name and default arm, always the same one."""
        if not isinstance(name, str) or not name.strip("."):
            raise InvalidInputError(
                f"the name is {name!r}; expected an experiment's, such as 'checkout'."
            )
        key = name, self.default_arm if default_arm is None else default_arm
        with self._lock:
            outside = self._outside.setdefault(name, RecentUnits())
            if key not in self._experiments:
                self._experiments[key] = ExperimentCore(self, *key, outside)
            return self._experiments[key]

    def count(self, what: Literal["defaulted", "ignored", "lost"], more: int = 1) -> None:
        """Add to the attribute of that name."""
        with self._lock:
            setattr(self, what, getattr(self, what) + more)

    def warn(self, kind: Hashable, message: str, *words: object, every: float = EVERY) -> None:
        """Log a warning, at most one of its kind in so many seconds."""
        with self._lock:
            now, before = time.monotonic(), self._warned.get(kind, -math.inf)
            if now - before < every or (before == -math.inf and len(self._warned) >= MOST_KINDS):
                return
            self._warned[kind] = now
        log.warning(message, *words)

    def note_answer(self) -> None:
        """Close the breaker: the service answered."""
        if self.breaker.succeed():
            self.recovered()

    def note_failure(self, error: SteadyArmError) -> None:
        """Open the breaker: the service did not answer, after all retries."""
        self.failure = error
        self.breaker.fail()

    def check_up(self, bridged: bool | None = None) -> None:
        """Raise the last failure while the breaker is open.

        bridged : whether there is something to do without it: a default arm or a buffer
        """
        if bridged is None:
            bridged = self.default_arm is not None or self.buffered
        if bridged and not self.breaker.allows():
            raise self.failure

    # Rewards and events

    def event(self, event: str, unit: str, value: float, id: str | None, at: At) -> Report:
        """Build an event, checked as the service does: a bad one must not stop others."""
        validate_unit(event, "the event", "names a metric, such as purchase")
        validate_unit(unit, purpose="names who did it, such as a visitor's id")
        number = finite_number(value, f"the value of {event!r}")
        report = {"unit": unit, "event": event, "value": number, "at": _format_time(at)}
        if id is not None:
            report["id"] = validate_unit(id, "the id of the event", "tells it from others")
        return report

    def deliver(self, experiment: str | None, reports: Sequence[Report]) -> Call[list[Result]]:
        """Send rewards of an experiment or, without one, events; the result has one for each."""

        def read_rewards(content: bytes) -> list[Result]:
            entries = _decode(RewardStatuses)(content).rewards
            results = _read_entries(entries, RewardStatus, len(reports))
            return [r if isinstance(r, SteadyArmError) else r.status for r in results]

        def read_events(content: bytes) -> list[Result]:
            entries = _decode(EventAnswers)(content).events
            results = _read_entries(entries, EventAnswer, len(reports))
            return [self._merge(*pair) for pair in zip(reports, results, strict=True)]

        seconds = _patience(reports)
        if experiment is None:
            body, path = {"events": reports}, ["events:batch"]
            return Call(self, read_events, "POST", path, body, seconds=seconds, stamped=True)
        body, path = {"rewards": reports}, ["experiments", experiment, "rewards:batch"]
        return Call(self, read_rewards, "POST", path, body, seconds=seconds, stamped=True)

    def _merge(self, event: Report, answer: EventAnswer | SteadyArmError) -> Result:
        """Merge the statuses of an event: "stored" if any experiment has stored it now."""
        if isinstance(answer, SteadyArmError):
            return answer
        results = _read_entries(answer.experiments, EventStatus, len(answer.experiments))
        for result in results:
            if isinstance(result, SteadyArmError):
                self.warn_of_event(event, result, "an event does not count everywhere")
        stored = any(isinstance(r, EventStatus) and r.status == "stored" for r in results)
        return "stored" if stored else "repeated"

    def settle(self, experiment: str | None, report: Report, result: Result) -> Result:
        """Ignore a reward or an event that no experiment counts, unless on_unknown="raise"."""
        if self.on_unknown == "raise" or not isinstance(result, UnknownAssignmentError):
            return result
        self.count("ignored")
        if experiment is None:
            self.warn_of_event(report, result, "an event was ignored")
        else:
            self.warn_of(experiment, result, "ignores rewards of units without an assignment")
        return "ignored"

    def warn_of_event(self, event: Report, error: SteadyArmError, what: str) -> None:
        """Log why an event is not counted, once for each name of an event and kind of error."""
        self.warn((event["event"], type(error)), "%s: %s", what, error, every=math.inf)

    def warn_of(self, experiment: str, error: SteadyArmError, effect: str) -> None:
        """Log what an error of an experiment leads to."""
        kind = type(error).__name__
        message = "the experiment %r %s: %s: %s"
        self.warn((experiment, effect, kind), message, experiment, effect, kind, error)

    def lose(
        self, experiment: str | None, count: int, error: SteadyArmError, default_arm: str | None
    ) -> list[Result]:
        """Count rewards of an outage without a buffer as lost; raise without a default arm."""
        if default_arm is None:
            raise error
        self.count("lost", count)
        self.warn_of(experiment or "", error, "loses rewards, as the client has no buffer")
        return ["lost"] * count


class RecentUnits:
    """The units that were added last.

    Examples
    --------
    >>> units = RecentUnits(most=2)
    >>> for unit in ["u1", "u2", "u1", "u3"]:
    ...     units.add(unit)
    >>> [unit in units for unit in ["u1", "u2", "u3"]]
    [True, False, True]
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._units: dict[str, None] = {}
        self._lock = Lock()

    def __contains__(self, unit: object) -> bool:
        return unit in self._units

    def add(self, unit: str) -> None:
        """Remember a unit, in place of the one that was added first if there are too many."""
        with self._lock:
            self._units.pop(unit, None)
            self._units[unit] = None
            if len(self._units) > self._most:
                del self._units[next(iter(self._units))]

    def remove(self, unit: str) -> None:
        """Forget a unit."""
        with self._lock:
            self._units.pop(unit, None)


class Visit(NamedTuple):
    """A unit to assign, with attributes and covariates."""

    unit: str | None
    attributes: Given | None = None
    covariates: Covariates | None = None


Answer = AssignmentAnswer | SteadyArmError


class ExperimentCore:
    """One experiment of a service: its calls, and what a program is given of their answers.

    outside : units that saw the default arm last. A reward that is reported by such a unit must not
        count for a variant that the unit was given elsewhere
    """

    def __init__(
        self, service: Service, name: str, default_arm: str | None, outside: RecentUnits
    ) -> None:
        self.service, self.name = service, name
        self.default_arm, self.outside = default_arm, outside
        self.settings: SettingsAnswer | None = None

    def status(self) -> Call[ExperimentAnswer]:
        """Read the settings and the progress."""
        return Call(self.service, self._read_status, "GET", ("experiments", self.name))

    def recommendation(self, level: float, anytime: bool | None) -> Call[Recommendation]:
        """Read the recommendation."""
        query: dict[str, Any] = {"level": level}
        if anytime is not None:
            query |= {"anytime": str(bool(anytime)).lower()}
        path = ("experiments", self.name, "recommendation")
        read = _decode(Recommendation)
        return Call(self.service, read, "GET", path, query=query, seconds=PATIENCE)

    def _read_status(self, content: bytes) -> ExperimentAnswer:
        answer = _decode(ExperimentAnswer)(content)
        names = answer.settings.names
        if self.settings is None and self.default_arm and names and self.default_arm not in names:
            message = "the default arm %r is no variant of the experiment %r; it has %s"
            log.warning(message, self.default_arm, self.name, shortened(list(names[:LISTED])))
        self.settings = answer.settings
        return answer

    # Assignments

    def check_up(self) -> None:
        """Raise the last failure while no page should wait for the service."""
        self.service.check_up(self.default_arm is not None)

    def visits(
        self,
        units: Sequence[str | None],
        attributes: Sequence[Given | None] | None,
        covariates: Sequence[Covariates | None] | None,
        expected: Sequence[float | None] | None,
    ) -> Iterator[Sequence[Visit]]:
        """Units with what is known of each, in batches for one request each."""
        lists = {"attributes": attributes, "covariates": covariates, "expected": expected}
        for what, given in lists.items():
            if given is not None and len(given) != len(units):
                raise length_error(units, given, what)
        none = [None] * len(units)
        numbers = add_expected_to_each(covariates, expected) or none
        visits = zip(units, attributes or none, numbers, strict=True)
        return _batches([Visit(*visit) for visit in visits])

    def assign(self, visits: Sequence[Visit]) -> Call[list[Answer]]:
        """Assign variants; an error takes the place of a unit that is refused.

        Where units keep their variant the request may be sent again, which gives the same ones.
        With sticky="none" every request is another assignment: one whose answer is lost stays
        without reward.
        """
        body: dict[str, Any] = {"units": [visit.unit for visit in visits]}
        if any(visit.attributes is not None for visit in visits):
            body["attributes"] = [_plain(visit.attributes) for visit in visits]
        if any(visit.covariates is not None for visit in visits):
            body["covariates"] = [_plain(visit.covariates) for visit in visits]

        def read(content: bytes) -> list[Answer]:
            entries = _decode(Assignments)(content).assignments
            return _read_entries(entries, AssignmentAnswer, len(visits))

        path = ("experiments", self.name, "assignments:batch")
        repeatable = self.settings is not None and self.settings.sticky == "unit"
        seconds = _patience(visits)
        return Call(self.service, read, "POST", path, body, seconds=seconds, repeatable=repeatable)

    def settle(self, visits: Sequence[Visit], answers: list[Answer]) -> list[Answer]:
        """Put the default arm in place of every error that is not the unit's fault."""
        return [self._settle(*pair) for pair in zip(visits, answers, strict=True)]

    def settle_failure(self, visits: Sequence[Visit], error: SteadyArmError) -> list[Answer]:
        """Give default arms after a request that failed; raise the error without a default arm."""
        if self.default_arm is None:
            raise error
        return self.settle(visits, [error] * len(visits))

    def _settle(self, visit: Visit, answer: Answer) -> Answer:
        unit = visit.unit or ""
        if isinstance(answer, AssignmentAnswer):
            self.outside.remove(unit)
            return answer
        if self.default_arm is None or isinstance(answer, InvalidInputError):
            return answer
        effect = f"answers with its default arm {self.default_arm!r}, outside the test"
        self.service.warn_of(self.name, answer, effect)
        if unit and isinstance(unit, str):
            self.outside.add(unit)
        self.service.count("defaulted")
        value: Any = self.default_arm
        if self.settings is not None and self.default_arm in self.settings.names:
            place = self.settings.names.index(self.default_arm)
            value = self.settings.variant_values[place]
        return AssignmentAnswer(
            id="",
            unit=unit,
            arm=self.default_arm,
            probability=None,
            created=datetime.now(UTC),
            new=False,
            value=value,
            in_test=False,
        )

    # Rewards

    def reports(self, rewards: Iterable[tuple[Any, ...]]) -> Iterator[Sequence[Report | Result]]:
        """Rewards as they are sent, or what became of one already, in batches."""
        return _batches([self._report(*reward) for reward in rewards])

    def _report(
        self,
        target: AssignmentAnswer | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> Report | Result:
        try:
            values, when = finite_values(reward), _format_time(at)
            whose = target.id if isinstance(target, AssignmentAnswer) else target
            if whose == "" or whose in self.outside:
                self.service.count("ignored")
                return "ignored"
            validate_unit(whose, "whose reward it is", "is an assignment, its id, or a unit")
        except SteadyArmError as error:
            return error
        report: Report = {
            "assignment" if isinstance(target, AssignmentAnswer) else "unit": whose,
            "reward" if isinstance(values, float) else "metrics": values,
            "at": when,
        }
        return report if event is None else report | {"event": event}

    def settle_rewards(
        self, reports: Sequence[Report | Result], results: Sequence[Result]
    ) -> list[Result]:
        """The result for each reward, of those that were sent and of the others."""
        sent = iter(results)
        return [
            self.service.settle(self.name, report, next(sent))
            if isinstance(report, dict)
            else report
            for report in reports
        ]


def select_unsent(reports: Sequence[Report | Result]) -> list[Report]:
    """The rewards that are to be sent."""
    return [report for report in reports if isinstance(report, dict)]


def refuse(reports: Sequence[Report], error: SteadyArmError) -> list[Result]:
    """Return the error for each reward; raise one that is about the service."""
    if isinstance(error, ServiceError | StorageError):
        raise error
    return [error] * len(reports)


def _batches(items: Sequence[R]) -> Iterator[Sequence[R]]:
    return (items[i : i + BATCH] for i in range(0, len(items), BATCH))


def _patience(items: Sequence[object]) -> float | None:
    return None if len(items) == 1 else PATIENCE


def _plain(values: Any) -> Any:
    return dict(values) if isinstance(values, Mapping) else values


def _decode(kind: type[S]) -> Callable[[bytes], S]:
    return msgspec.json.Decoder(kind).decode


def _read_entries(entries: list[Any], kind: type[S], count: int) -> list[S | SteadyArmError]:
    """The entries of a batch, each a struct or the error that took its place."""
    if len(entries) != count:
        raise msgspec.ValidationError(f"it has {len(entries)} entries for {count}")
    results: list[S | SteadyArmError] = []
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("error"), Mapping):
            error = read_error(entry["error"])
            if isinstance(error, DOWN):  # it says nothing about the others: try again later
                raise error
            results.append(error)
        else:
            results.append(msgspec.convert(entry, kind))
    return results


def _encode(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{shortened(body)} cannot be sent: {error}; expected numbers, texts and lists."
        ) from None


def _format_time(at: At) -> str:
    """Write a time as it is sent; by default now."""
    if at is None or isinstance(at, timedelta):
        return (datetime.now(UTC) - (at or timedelta())).isoformat()
    return to_datetime(to_micros(at, LATEST)).isoformat()


def _normalize_url(url: Any) -> str:
    try:
        parts = urlsplit(str(url).rstrip("/"))
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            path = parts.path.removesuffix("/v1").rstrip("/")
            return f"{parts.scheme}://{parts.netloc}{path}"
    except ValueError:
        pass
    raise InvalidInputError(
        f'url is {url!r}; expected the address of a service, such as "http://localhost:8000".'
    )


def _retry_after(response: httpx2.Response) -> float:
    """Seconds for which the service wants to be left alone."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", 0)))
    except ValueError:
        return 0.0
