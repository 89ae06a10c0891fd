"""Flags and events: requests that name no experiment.

A flag of OpenFeature is an experiment, and its evaluation an assignment. OFREP defines requests
and answers. An event names an action of a unit, and goes to every experiment that measures it.
Both pass the queues of each experiment (`Live`), as assignments and rewards do. `routes` lists the
handlers, and `handlers` describes what a handler is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
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
from steadyarm.live.assigner import (
    At,
    LiveAssignment,
    Report,
    ReportStatus,
    Visit,
    validate_values,
)
from steadyarm.live.experiment import Experiment
from steadyarm.service.auth import Claims, allowed
from steadyarm.service.handlers import check_entries, claims_of_many, happened_at
from steadyarm.service.problems import RefusedError, check_size, kind_of, problem_of
from steadyarm.service.service import Live, Measures, Service
from steadyarm.storages.records import AssignmentResult, Summary
from steadyarm.storages.service import UNKNOWN_EVENT, Refusal
from steadyarm.wire import flags, requests, responses
from steadyarm.wire.flags import NOTHING, TARGETING_KEY
from steadyarm.wording import did_you_mean, shortened, strung

UNIT_TOKEN = "unitToken"  # in a context: a signed unit, which else is in a header
PREVIEW = "preview"
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
    (found,) = await live.ask([_visit(live.experiment, body.context or {})])
    if isinstance(found, SteadyArmError) and not isinstance(found, NOTHING):
        raise found
    return 200, _flag(service, request, live.experiment.name, found)


async def evaluate_all(
    service: Service, request: Request, body: requests.Evaluation
) -> tuple[int, flags.FlagAnswers]:
    """Evaluate all flags of a unit; only experiments that were created with bulk assign here."""
    context = body.context or {}
    unit = _unit(context)
    await service.catalog.refresh()
    summaries = [one for one in service.catalog.experiments if allowed(request.scope, one.name)]
    # Others are read only if the unit is in them, or if they are over and show a variant to all.
    keys = [summary.key for summary in summaries if not summary.config.get("bulk")]
    (joined,) = await service.catalog.find_joined([unit], keys) if keys else [frozenset[int]()]
    shown = [
        summary
        for summary in summaries
        if summary.config.get("bulk") or summary.key in joined or summary.outside is not None
    ]
    answers = await asyncio.gather(
        *(
            _in_bulk(service, request, summary, summary.key in joined, unit, context)
            for summary in shown
        )
    )
    return 200, flags.FlagAnswers([answer for answer in answers if answer is not None])


async def _in_bulk(
    service: Service, request: Request, summary: Summary, joined: bool, unit: str, context: Context
) -> flags.FlagAnswer | flags.FlagProblem | None:
    """The evaluation of one of all flags; None if the unit gets none here.

    joined : whether the unit may have an assignment; if not, nothing of it is read
    """
    name = summary.name
    try:
        live = await service.find(name)
    except (UnknownExperimentError, InvalidInputError):  # pruned, or a policy of somebody's own
        return None
    answer: LiveAssignment | SteadyArmError | None
    try:
        if live.experiment.settings.bulk:
            (answer,) = await live.ask([_visit(live.experiment, context)])
        else:
            nothing = AssignmentResult((None,), summary.state, summary.outside)
            answer = await live.find_known(unit, None if joined else nothing)
    except InvalidInputError as error:
        answer = error
    if answer is None:
        return None
    if isinstance(answer, StorageError):  # then no answer is better than one without flags
        raise answer
    if isinstance(answer, SteadyArmError) and not isinstance(answer, NOTHING):
        problem = problem_of(answer, request.scope)
        return flags.FlagProblem.of(problem, name)
    return _flag(service, request, name, answer)


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
        return flags.FlagAnswer.disabled(name, problem_of(found, request.scope))
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


def _visit(experiment: Experiment, context: Context) -> Visit:
    """The unit in a context, with the attributes and covariates that an experiment declares."""
    settings = experiment.settings
    attributes, covariates = flags.select_declared(
        context, settings.attributes, settings.covariates
    )
    preview = _preview(context, experiment.name)
    return experiment.validate_visit(_unit(context), attributes, covariates, preview=preview)


def _preview(context: Context, name: str) -> str | None:
    """The variant of an experiment that somebody wants to look at, outside of the test.

    A context has it as {"preview": {"shop": "B"}} or, as from the address of a page, "shop=B".
    """
    given = context.get(PREVIEW)
    if isinstance(given, str):
        experiment, _, variant = given.partition("=")
        given = {experiment: variant}
    shown = given.get(name) if isinstance(given, Mapping) else None
    return shown if isinstance(shown, str) else None


# Events


def claims_of_events(body: requests.NewEvents) -> Claims:
    """Whom many events are for."""
    return claims_of_many(body.events)


async def event(
    service: Service, request: Request, body: requests.NewEvent
) -> tuple[int, responses.EventAnswer]:
    """Report an event of a unit to every experiment that measures it; 422 if none counts it."""
    (outcomes,) = await _report(service, request, [(body, happened_at(body.at, body.sent))])
    errors = {name: outcome for name, outcome in outcomes.items() if _may_pass(outcome)}
    if errors:  # a client that reads only the status must know that it has to send the event again
        stored = [name for name, outcome in outcomes.items() if not isinstance(outcome, Exception)]
        kept = f"The event is stored in {strung(stored, 8)}. " if stored else ""
        error = next(iter(errors.values()))
        raise RefusedError(
            error.kind if isinstance(error, RefusedError) else "storage-unavailable",
            f"{kept}The event is not stored in {strung(list(errors), 8)}.",
            "Send it again. It counts once where it is stored.",
            {"Retry-After": "1"},
        )
    if refusal := _explain_refusal(service, request, body, outcomes):
        raise refusal
    return 200, _answer(request, outcomes)


async def event_many(
    service: Service, request: Request, body: requests.NewEvents
) -> tuple[int, responses.EventAnswers]:
    """Report many events, in their order; an error takes the place of one not counted."""
    check_size(len(body.events), service.settings.max_batch, "events")
    entries = check_entries(requests.NewEvent, body.events, body.sent)
    events = [entry for entry in entries if isinstance(entry, tuple)]
    reported = iter(await _report(service, request, events))
    answers: list[responses.EventAnswer | responses.RefusedReward] = []
    for entry in entries:
        outcomes: dict[str, Outcome] = {}
        refused: Exception | None
        if isinstance(entry, tuple):
            outcomes = next(reported)
            refused = _explain_refusal(service, request, entry[0], outcomes)
        else:
            refused = entry
        answers.append(
            _answer(request, outcomes)
            if refused is None
            else responses.RefusedReward(problem_of(refused, request.scope))
        )
    return 200, responses.EventAnswers(answers)


def _measuring(service: Service, request: Request, event: str) -> tuple[Measures, ...]:
    """The experiments that measure an event, of those that the request may touch."""
    measuring = service.catalog.measuring(event)
    return tuple(measures for measures in measuring if allowed(request.scope, measures.name))


async def _report(
    service: Service, request: Request, events: Sequence[tuple[requests.NewEvent, At]]
) -> list[dict[str, Outcome]]:
    """Report events to all experiments that measure them, and return statuses by experiment."""
    await service.catalog.refresh()
    places: dict[str, list[int]] = {}
    for i, (event, _) in enumerate(events):
        places.setdefault(event.event, []).append(i)
    reports: dict[str, list[tuple[int, requests.NewEvent, At]]] = {}
    for name, indices in places.items():
        measuring = _measuring(service, request, name)
        keys, units = [measures.key for measures in measuring], [events[i][0].unit for i in indices]
        # One experiment alone says by itself which units it has.
        alone = len(keys) < 2
        joined = [keys] * len(units) if alone else await service.catalog.find_joined(units, keys)
        for i, own in zip(indices, joined, strict=True):
            event, at = events[i]
            for measures in measuring:
                if measures.key in own:
                    reports.setdefault(measures.name, []).append((i, event, at))
    for rows in reports.values():
        rows.sort(key=itemgetter(0))  # as they were sent
    told = await asyncio.gather(
        *(_tell(service, name, [row[1:] for row in rows]) for name, rows in reports.items())
    )
    outcomes: list[dict[str, Outcome]] = [{} for _ in events]
    for (name, rows), results in zip(reports.items(), told, strict=True):
        for (i, *_), outcome in zip(rows, results, strict=True):
            if outcome is not None:
                outcomes[i][name] = outcome
    await service.catalog.note_refusals(_refusals(service, events, outcomes))
    stored = sum(outcome == "stored" for one in outcomes for outcome in one.values())
    service.metrics.rewards.inc(stored)
    service.metrics.events.inc(stored)
    return outcomes


def _refusals(
    service: Service,
    events: Sequence[tuple[requests.NewEvent, At]],
    outcomes: Sequence[Mapping[str, Outcome]],
) -> Iterator[Refusal]:
    """Which experiments refused events, and which events no experiment measures."""
    for (event, _), found in zip(events, outcomes, strict=True):
        measuring = service.catalog.measuring(event.event)
        if not measuring:
            yield Refusal(event.event, UNKNOWN_EVENT, event.unit)
        for measures in measuring:
            outcome = found.get(measures.name)
            if isinstance(outcome, Exception) and not _may_pass(outcome):
                reason = kind_of(outcome)
                yield Refusal(event.event, reason, event.unit, str(outcome), measures.key)
            elif not found:  # no experiment has the unit
                yield Refusal(event.event, "unknown-assignment", event.unit, "", measures.key)


async def _tell(
    service: Service, name: str, events: Sequence[tuple[requests.NewEvent, At]]
) -> Sequence[Outcome | None]:
    """Report events to one experiment; None for units that have no assignment in it.

    An error of one experiment does not concern the others.
    """
    while True:
        live = None
        try:
            live = await service.find(name)
            return [
                None
                if outcome == "outside" or await _is_stranger(live, event.unit, outcome)
                else _as_event(outcome)
                for (event, _), outcome in zip(events, await _record(live, events), strict=True)
            ]
        except UnknownExperimentError:
            if live is None:  # it was pruned
                return [None] * len(events)
            service.drop(live)  # it was pruned, but there may be another one of its name
        except WrongStateError:  # it was archived
            return [None] * len(events)
        except (SteadyArmError, RefusedError) as error:
            return [error] * len(events)


async def _record(
    live: Live, events: Sequence[tuple[requests.NewEvent, At]]
) -> list[ReportStatus | SteadyArmError]:
    """Record events in all metrics that they feed, in one transaction.

    An event whose value one of them refuses counts in none. Windows differ between metrics, so an
    event counts if it is in time for one of them.
    """
    experiment = live.experiment
    outcomes: list[ReportStatus | SteadyArmError | None] = [None] * len(events)
    places: list[int] = []
    reports: list[Report] = []
    for place, (event, at) in enumerate(events):
        values = experiment.settings.values_of_event(experiment.name, event.event, event.value)
        try:
            validate_values(experiment.settings, values, event.id)
        except InvalidInputError as error:
            outcomes[place] = error
            continue
        reports += [Report(event.unit, {name: values[name]}, at, event.id) for name in values]
        places += [place] * len(values)
    told = await live.tell(reports) if reports else []
    for place, answer in zip(places, told, strict=True):
        counted = not isinstance(answer, SteadyArmError)
        if outcomes[place] is None or (counted and outcomes[place] != "stored"):
            outcomes[place] = answer
    return [outcome for outcome in outcomes if outcome is not None]


async def _is_stranger(live: Live, unit: str, outcome: Outcome) -> bool:
    """Whether the unit of an event has no assignment; values are checked before units are."""
    if isinstance(outcome, InvalidInputError):
        return await live.find_known(unit) is None
    return isinstance(outcome, UnknownAssignmentError)


def _may_pass(outcome: Outcome) -> bool:
    """Whether an event was refused for a reason that passes, so that it is to be sent again."""
    return isinstance(outcome, StorageError | StorageVersionError | RefusedError)


def _explain_refusal(
    service: Service, request: Request, event: requests.NewEvent, found: Mapping[str, Outcome]
) -> RefusedError | None:
    """Why no experiment counted an event; None if one did, or may when it is sent again."""
    if any(not isinstance(one, Exception) or _may_pass(one) for one in found.values()):
        return None
    kind = "event-not-counted"
    names = [one.name for one in _measuring(service, request, event.event)]
    if not names and not found:
        service.metrics.refused.labels("unknown-event").inc()
        known = [one for one in service.catalog.events if _measuring(service, request, one)]
        events = strung(known, LISTED) + did_you_mean(event.event, known) if known else "none."
        detail = f"No experiment measures the event {shortened(event.event)}; the events are "
        return RefusedError(kind, detail + events, experiments=[])
    reasons = {name: error for name, error in found.items() if isinstance(error, Exception)}
    for name in names[:LISTED]:
        detail = f"{event.unit!r} has no assignment in {name!r} that counts."
        reasons.setdefault(name, RefusedError("unknown-assignment", detail, ASSIGN_FIRST))
    service.metrics.refused.labels(kind_of(next(iter(reasons.values())))).inc()
    refused = [
        responses.RefusedEvent(name, problem_of(error, request.scope))
        for name, error in reasons.items()
    ]
    first = " ".join(f"{one.name}: {one.error.detail}" for one in refused[:3])
    return RefusedError(
        kind, f"The event {event.event!r} was not counted. {first}", experiments=refused
    )


def _as_event(outcome: Outcome) -> Outcome:
    """The same outcome; requests for events call the key of an event id."""
    if isinstance(outcome, InvalidInputError) and outcome.field == "event":
        return InvalidInputError(
            'a unit may have several events of this metric; give each an id, such as "order 17", '
            "so that repeated reports count once.",
            field="id",
        )
    return outcome


def _answer(request: Request, found: Mapping[str, Outcome]) -> responses.EventAnswer:
    return responses.EventAnswer(
        [
            responses.RefusedEvent(name, problem_of(outcome, request.scope))
            if isinstance(outcome, Exception)
            else responses.EventStatus(name, outcome)
            for name, outcome in found.items()
        ]
    )
