"""Flags and events: what programs that know no experiments ask for, and report.

A flag of OpenFeature is an experiment, and its evaluation an assignment; OFREP says how requests
and answers look. An event names what a unit did, and goes to every experiment that measures it.
Both pass the queues of each experiment (`Live`), as assignments and rewards do. `routes` lists the
handlers, and `handlers` says what a handler is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from starlette.requests import Request

from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RewardsPendingError,
    SteadyArmError,
    StorageError,
    StorageVersionError,
    UnknownAssignmentError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.live.assignments import LiveAssignment, Reported
from steadyarm.live.settings import Settings
from steadyarm.service.catalog import Measures
from steadyarm.service.handlers import claims_of_many, happened_at
from steadyarm.service.problems import RefusedError, check_size, problem_of
from steadyarm.service.publishable import Claims, allowed, discreet
from steadyarm.service.service import Live, Service, Visit
from steadyarm.storages.records import Summary
from steadyarm.wire import flags, requests, responses
from steadyarm.wire.flags import TARGETING_KEY
from steadyarm.wire.requests import checked
from steadyarm.wording import strung

UNIT_TOKEN = "unitToken"  # in a context: a signed unit, which else is in a header
Known = Mapping[str, Any]  # the context of an evaluation
Outcome = Literal["stored", "repeated"] | SteadyArmError | RefusedError

# Nothing can be shown for now, or any more: the application uses the default in its own code.
NOTHING = (WrongStateError, BudgetSpentError, RewardsPendingError)

# Flags


async def evaluate(
    service: Service, request: Request, body: requests.Evaluation
) -> tuple[int, flags.FlagAnswer]:
    """Evaluate a flag: assign a variant of the experiment of that name to a unit."""
    live = await service.find(request.path_params["name"])
    visit = _visit(live.experiment.settings, body.context or {})
    (found,) = await live.ask([visit])
    if isinstance(found, SteadyArmError) and not isinstance(found, NOTHING):
        raise found
    return 200, _flag(service, request, live.experiment.name, found)


async def evaluate_all(
    service: Service, request: Request, body: requests.Evaluation
) -> tuple[int, flags.FlagAnswers]:
    """Evaluate all flags of a unit; only experiments that were created with bulk assign here."""
    context = body.context or {}
    unit = _unit(context)
    await service.catalog.refreshed()
    found = await asyncio.gather(
        *(
            _in_bulk(service, request, one, unit, context)
            for one in service.catalog.experiments
            if allowed(request.scope, one.name)
        )
    )
    return 200, flags.FlagAnswers([one for one in found if one is not None])


async def _in_bulk(
    service: Service, request: Request, experiment: Summary, unit: str, context: Known
) -> flags.FlagAnswer | flags.FlagProblem | None:
    """The evaluation of one of all flags; None if the unit gets none here."""
    name = experiment.name
    try:
        live = await service.find(name)
    except (UnknownExperimentError, InvalidInputError):  # pruned, or a policy of somebody's own
        return None
    if not live.experiment.settings.bulk:
        kept = await live.known(unit)
        return None if kept is None else _flag(service, request, name, kept)
    try:
        (found,) = await live.ask([_visit(live.experiment.settings, context)])
    except InvalidInputError as error:
        found = error
    if isinstance(found, StorageError):  # then no answer is better than one without flags
        raise found
    if isinstance(found, SteadyArmError) and not isinstance(found, NOTHING):
        problem = problem_of(found, request.scope["request_id"])
        return flags.FlagProblem.of(problem, name)
    return _flag(service, request, name, found)


def claims_of_context(body: requests.Evaluation) -> Claims:
    """Whom an evaluation is for; a unit token may be in the context."""
    context = body.context or {}
    unit, token = context.get(TARGETING_KEY), context.get(UNIT_TOKEN)
    return Claims(
        [unit if isinstance(unit, str) else None], token if isinstance(token, str) else None
    )


def _flag(
    service: Service, request: Request, name: str, found: LiveAssignment | SteadyArmError
) -> flags.FlagAnswer:
    if isinstance(found, SteadyArmError):
        return flags.FlagAnswer.disabled(name, problem_of(found, request.scope["request_id"]))
    if found.new:
        service.metrics.assignments.inc()
    return flags.FlagAnswer.of(name, found)


def _unit(context: Known) -> str:
    """The unit in a context."""
    unit = context.get(TARGETING_KEY)
    if isinstance(unit, str) and unit:
        return unit
    expected = "a text that names the unit, such as a visitor's id"
    if unit is None or unit == "":
        raise InvalidInputError(
            f"the context has no {TARGETING_KEY}; expected {expected}.",
            field=TARGETING_KEY,
            expected=expected,
        )
    raise InvalidInputError.of(TARGETING_KEY, unit, expected)


def _visit(settings: Settings, context: Known) -> Visit:
    """The unit in a context, and what an experiment has declared to know of it."""
    return _unit(context), *flags.known_in(context, settings.attributes, settings.covariates)


# Events


def claims_of_events(body: requests.NewEvents) -> Claims:
    """Whom many events are for."""
    return claims_of_many(body.events)


async def event(
    service: Service, request: Request, body: requests.NewEvent
) -> tuple[int, responses.EventAnswer]:
    """Report an event of a unit to every experiment that measures it; there may be none."""
    (found,) = await _report(service, request, [body], [happened_at(body.at, body.sent)])
    again = [name for name, outcome in found.items() if _passing(outcome)]
    if again:  # whoever reads only the status must know that the event is to be sent again
        stored = [name for name, outcome in found.items() if not isinstance(outcome, Exception)]
        kept = f"The event is stored in {strung(stored, 8)}. " if stored else ""
        error = found[again[0]]
        assert isinstance(error, Exception)
        raise RefusedError(
            error.kind if isinstance(error, RefusedError) else "storage-unavailable",
            f"{kept}The event is not stored in {strung(again, 8)}.",
            "Send it again, which changes nothing where it is stored.",
            {"Retry-After": "1"},
        )
    return 200, _answer(request, found)


async def event_many(
    service: Service, request: Request, body: requests.NewEvents
) -> tuple[int, responses.EventAnswers]:
    """Report many events, in their order; an error takes the place of one refused."""
    check_size(len(body.events), service.settings.max_batch, "events")
    answers: list[Any] = []
    good: list[requests.NewEvent] = []
    times: list[Any] = []
    request_id = request.scope["request_id"]
    for entry in body.events:
        try:
            one = checked(requests.NewEvent, entry)
            times.append(happened_at(one.at, one.sent or body.sent))
            good.append(one)
            answers.append(None)
        except InvalidInputError as error:
            answers.append(responses.RefusedReward(problem_of(error, request_id)))
    found = iter(await _report(service, request, good, times))
    return 200, responses.EventAnswers(
        [_answer(request, next(found)) if one is None else one for one in answers]
    )


async def _report(
    service: Service, request: Request, events: Sequence[requests.NewEvent], times: Sequence[Any]
) -> list[dict[str, Outcome]]:
    """What became of each event, by experiment; without those that the unit is not in."""
    catalog = service.catalog
    found: list[dict[str, Outcome]] = [{} for _ in events]

    def measuring(event: str) -> tuple[Measures, ...]:
        return tuple(one for one in catalog.measuring(event) if allowed(request.scope, one.name))

    asked = [measuring(one.event) for one in events]

    async def told(wanted: Sequence[Sequence[Measures]]) -> None:
        rows: dict[str, list[tuple[int, Reported]]] = {}
        for i, (one, at, measures) in enumerate(zip(events, times, wanted, strict=True)):
            for name, metric in measures:
                rows.setdefault(name, []).append((i, (one.unit, {metric: one.value}, at, one.id)))
        telling = [_tell(service, name, [row for _, row in rows[name]]) for name in rows]
        # A task for each costs more than the whole rest of a request, and most have one.
        several = len(telling) > 1
        outcomes = await asyncio.gather(*telling) if several else [await one for one in telling]
        for name, each in zip(rows, outcomes, strict=True):
            for (i, _), outcome in zip(rows[name], each, strict=True):
                if outcome is not None:
                    found[i][name] = outcome

    # Another process may just have created an experiment: that is checked while these are written.
    complete = catalog.refreshed()
    try:
        await told(asked)
        await complete
    finally:
        complete.cancel()
    missed = [
        tuple(one for one in measuring(event.event) if one not in before)
        for event, before in zip(events, asked, strict=True)
    ]
    if any(missed):
        await told(missed)
    stored = sum(outcome == "stored" for one in found for outcome in one.values())
    service.metrics.rewards.inc(stored)
    return found


async def _tell(service: Service, name: str, rows: Sequence[Reported]) -> Sequence[Outcome | None]:
    """What became of events in one experiment; None for units that have no assignment in it.

    An error of one experiment does not concern the others.
    """
    while True:
        live = None
        try:
            live = await service.find(name)
            return [
                None if outcome == "outside" or await _stranger(live, row, outcome) else outcome
                for row, outcome in zip(rows, await live.tell(rows), strict=True)
            ]
        except UnknownExperimentError:
            if live is None:  # it was pruned
                return [None] * len(rows)
            service.drop(live)  # it was pruned, but there may be another one of its name
        except (WrongStateError, InvalidInputError):  # archived, or a policy of somebody's own
            return [None] * len(rows)
        except (SteadyArmError, RefusedError) as error:
            return [error] * len(rows)


async def _stranger(live: Live, row: Reported, outcome: Outcome) -> bool:
    """Whether the unit of an event has no assignment; values are checked before units are."""
    if isinstance(outcome, InvalidInputError):
        return await live.known(str(row[0])) is None
    return isinstance(outcome, UnknownAssignmentError)


def _passing(outcome: Outcome) -> bool:
    """Whether an event was refused for a reason that passes, so that it is to be sent again."""
    return isinstance(outcome, StorageError | StorageVersionError | RefusedError)


def _answer(request: Request, found: Mapping[str, Outcome]) -> responses.EventAnswer:
    request_id = request.scope["request_id"]
    return responses.EventAnswer(
        [
            responses.RefusedEvent(name, problem_of(discreet(request.scope, outcome), request_id))
            if isinstance(outcome, Exception)
            else responses.EventStatus(name, outcome)
            for name, outcome in found.items()
        ]
    )
