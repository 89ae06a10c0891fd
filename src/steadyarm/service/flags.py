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
    InvalidInputError,
    SteadyArmError,
    StorageError,
    StorageVersionError,
    UnknownAssignmentError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.live.assigner import LiveAssignment, Report, Visit
from steadyarm.live.experiment import Experiment
from steadyarm.service.auth import Claims, allowed, discreet
from steadyarm.service.catalog import Catalog, Measures
from steadyarm.service.handlers import claims_of_many, happened_at
from steadyarm.service.problems import RefusedError, check_size, kind_of, problem_of
from steadyarm.service.service import Live, Service
from steadyarm.storages.records import AssignmentResult, Summary
from steadyarm.wire import flags, requests, responses
from steadyarm.wire.flags import NOTHING, TARGETING_KEY
from steadyarm.wire.requests import checked
from steadyarm.wording import did_you_mean, shortened, strung

UNIT_TOKEN = "unitToken"  # in a context: a signed unit, which else is in a header
Context = Mapping[str, Any]  # of an evaluation
Outcome = Literal["stored", "repeated"] | SteadyArmError | RefusedError
ASSIGN_FIRST = "Assign the unit before its events; units outside of the test do not count."
LISTED = 20  # names of events, or experiments, in the reason why an event was not counted

# Flags


async def evaluate(
    service: Service, request: Request, body: requests.Evaluation
) -> tuple[int, flags.FlagAnswer]:
    """Evaluate a flag: assign a variant of the experiment of that name to a unit."""
    live = await service.find(request.path_params["name"])
    (found,) = await live.ask(_visits(live.experiment, body.context or {}))
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
    known = [one for one in service.catalog.experiments if allowed(request.scope, one.name)]
    keys = tuple(one.key for one in known if not one.config.get("bulk"))
    (joined,) = await service.catalog.joined([(unit, keys)]) if keys else [frozenset[int]()]
    strangers = frozenset(keys) - joined
    asked = [one for one in known if one.key not in strangers]
    over = [one for one in known if one.key in strangers and one.outside is not None]
    seen = await _outside(service, unit, over)
    found = await asyncio.gather(*(_in_bulk(service, request, one, unit, context) for one in asked))
    answers: dict[str, flags.FlagAnswer | flags.FlagProblem | None]
    answers = {name: _flag(service, request, name, one) for name, one in seen.items()}
    answers |= {one.name: answer for one, answer in zip(asked, found, strict=True)}
    ordered = (answers.get(one.name) for one in known)
    return 200, flags.FlagAnswers([one for one in ordered if one is not None])


async def _outside(
    service: Service, unit: str, experiments: Sequence[Summary]
) -> dict[str, LiveAssignment]:
    """What a unit sees of tests that are over and that it was not in, by experiment."""
    lives = [(one, await _found(service, one.name)) for one in experiments]

    def read() -> dict[str, LiveAssignment]:
        answers = {}
        for summary, live in lives:
            if live is not None:
                stored = AssignmentResult((None,), summary.state, summary.outside)
                (shown,) = live.experiment.known([unit], stored)
                if shown is not None:
                    answers[summary.name] = shown
        return answers

    return await service.run_short(read) if lives else {}


async def _found(service: Service, name: str) -> Live | None:
    try:
        return await service.find(name)
    except (UnknownExperimentError, InvalidInputError):  # pruned, or a policy of somebody's own
        return None


async def _in_bulk(
    service: Service, request: Request, experiment: Summary, unit: str, context: Context
) -> flags.FlagAnswer | flags.FlagProblem | None:
    """The evaluation of one of all flags; None if the unit gets none here."""
    name = experiment.name
    live = await _found(service, name)
    if live is None:
        return None
    if not live.experiment.settings.bulk:
        kept = await live.known(unit)
        return None if kept is None else _flag(service, request, name, kept)
    try:
        (found,) = await live.ask(_visits(live.experiment, context))
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


def _unit(context: Context) -> str:
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


def _visits(experiment: Experiment, context: Context) -> list[Visit]:
    """The unit in a context, with the attributes and covariates that an experiment declares."""
    settings = experiment.settings
    attributes, covariates = flags.known_in(context, settings.attributes, settings.covariates)
    return experiment.visits([_unit(context)], [attributes], [covariates])


# Events


def claims_of_events(body: requests.NewEvents) -> Claims:
    """Whom many events are for."""
    return claims_of_many(body.events)


async def event(
    service: Service, request: Request, body: requests.NewEvent
) -> tuple[int, responses.EventAnswer]:
    """Report an event of a unit to every experiment that measures it; 422 if none counts it."""
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
    if refusal := _refusal(service, request, body, found):
        raise refusal
    return 200, _answer(request, found)


async def event_many(
    service: Service, request: Request, body: requests.NewEvents
) -> tuple[int, responses.EventAnswers]:
    """Report many events, in their order; an error takes the place of one not counted."""
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
    reported = zip(good, await _report(service, request, good, times), strict=True)
    entries = (_entry(service, request, one, found) for one, found in reported)
    return 200, responses.EventAnswers([next(entries) if one is None else one for one in answers])


def _entry(
    service: Service, request: Request, event: requests.NewEvent, found: Mapping[str, Outcome]
) -> responses.EventAnswer | responses.RefusedReward:
    """What became of one of many events."""
    if refusal := _refusal(service, request, event, found):
        return responses.RefusedReward(problem_of(refusal, request.scope["request_id"]))
    return _answer(request, found)


def _measuring(service: Service, request: Request, event: str) -> tuple[Measures, ...]:
    """The experiments that measure an event, of those that the request may touch."""
    found = service.catalog.measuring(event)
    return tuple(one for one in found if allowed(request.scope, one.name))


async def _report(
    service: Service, request: Request, events: Sequence[requests.NewEvent], times: Sequence[Any]
) -> list[dict[str, Outcome]]:
    """What became of each event, by experiment; without those that the unit is not in."""
    catalog = service.catalog
    found: list[dict[str, Outcome]] = [{} for _ in events]
    asked = [_measuring(service, request, one.event) for one in events]

    async def told(measured: Sequence[Sequence[Measures]]) -> None:
        wanted = await _with_units(catalog, events, measured)
        rows: dict[str, list[tuple[int, Report]]] = {}
        for i, (one, at, measures) in enumerate(zip(events, times, wanted, strict=True)):
            for name, metric, _, yes_no in measures:
                value = 1.0 if yes_no and one.value > 0 else one.value
                report = Report(one.unit, {metric: value}, at, one.id)
                rows.setdefault(name, []).append((i, report))
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
    missed = []
    for event, before, done in zip(events, asked, found, strict=True):
        known = {one.key for one in before}
        there = _measuring(service, request, event.event)
        new = (one for one in there if one.key not in known)
        missed.append(tuple(one for one in new if one.name not in done))
    if any(missed):
        await told(missed)
    await catalog.note_unmatched(one.event for one in events)
    stored = sum(outcome == "stored" for one in found for outcome in one.values())
    service.metrics.rewards.inc(stored)
    return found


async def _with_units(
    catalog: Catalog, events: Sequence[requests.NewEvent], wanted: Sequence[Sequence[Measures]]
) -> Sequence[Sequence[Measures]]:
    """Of the experiments that measure each event those that its unit is in.

    One alone stays: it says so itself when it is told, which is cheaper than to ask before.
    """
    several = [i for i, measures in enumerate(wanted) if len(measures) > 1]
    if not several:
        return wanted
    found = list(wanted)
    sought = [(events[i].unit, tuple(one.key for one in wanted[i])) for i in several]
    for i, keys in zip(several, await catalog.joined(sought), strict=True):
        found[i] = [one for one in wanted[i] if one.key in keys]
    return found


async def _tell(service: Service, name: str, rows: Sequence[Report]) -> Sequence[Outcome | None]:
    """What became of events in one experiment; None for units that have no assignment in it.

    An error of one experiment does not concern the others.
    """
    while True:
        live = None
        try:
            live = await service.find(name)
            return [
                None
                if outcome == "outside" or await _stranger(live, row, outcome)
                else _as_event(outcome)
                for row, outcome in zip(rows, await live.tell(rows), strict=True)
            ]
        except UnknownExperimentError:
            if live is None:  # it was pruned
                return [None] * len(rows)
            service.drop(live)  # it was pruned, but there may be another one of its name
        except WrongStateError:  # it was archived
            return [None] * len(rows)
        except (SteadyArmError, RefusedError) as error:
            return [error] * len(rows)


async def _stranger(live: Live, row: Report, outcome: Outcome) -> bool:
    """Whether the unit of an event has no assignment; values are checked before units are."""
    if isinstance(outcome, InvalidInputError):
        return await live.known(str(row.target)) is None
    return isinstance(outcome, UnknownAssignmentError)


def _passing(outcome: Outcome) -> bool:
    """Whether an event was refused for a reason that passes, so that it is to be sent again."""
    return isinstance(outcome, StorageError | StorageVersionError | RefusedError)


def _refusal(
    service: Service, request: Request, event: requests.NewEvent, found: Mapping[str, Outcome]
) -> RefusedError | None:
    """Why no experiment counted an event; None if one did, or may when it is sent again."""
    if any(not isinstance(one, Exception) or _passing(one) for one in found.values()):
        return None
    kind = "event-not-counted"
    names = [one.name for one in _measuring(service, request, event.event)]
    if not names and not found:
        service.metrics.refused.labels("unknown-event").inc()
        known = [one for one in service.catalog.events if _measuring(service, request, one)]
        events = strung(known, LISTED) + did_you_mean(event.event, known) if known else "none."
        detail = f"No experiment measures the event {shortened(event.event)}; the events are "
        return RefusedError(kind, detail + events, experiments=[])
    reasons: dict[str, Exception] = {
        name: discreet(request.scope, one)
        for name, one in found.items()
        if isinstance(one, Exception)
    }
    for name in names[:LISTED]:
        detail = f"{event.unit!r} has no assignment in {name!r} that counts."
        reasons.setdefault(name, RefusedError("unknown-assignment", detail, ASSIGN_FIRST))
    service.metrics.refused.labels(kind_of(next(iter(reasons.values())))).inc()
    refused = [f"{name}: {reasons[name]}" for name in found or reasons]
    return RefusedError(
        kind,
        f"The event {event.event!r} was not counted. {' '.join(refused[:3])}",
        experiments=_answer(request, reasons).experiments,
    )


def _as_event(outcome: Outcome) -> Outcome:
    """The same outcome; requests for events call the key of an event id."""
    if isinstance(outcome, InvalidInputError) and outcome.field == "event":
        return InvalidInputError(
            'a unit may have several events of this metric; give each an id, such as "order 17", '
            "so that one that is reported twice counts once.",
            field="id",
        )
    return outcome


def _answer(
    request: Request, found: Mapping[str, Outcome] | Mapping[str, Exception]
) -> responses.EventAnswer:
    request_id = request.scope["request_id"]
    return responses.EventAnswer(
        [
            responses.RefusedEvent(name, problem_of(discreet(request.scope, outcome), request_id))
            if isinstance(outcome, Exception)
            else responses.EventStatus(name, outcome)
            for name, outcome in found.items()
        ]
    )
