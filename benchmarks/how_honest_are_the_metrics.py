"""How honest are the metrics: how often is it right what a test says beside its reward?

A shop of three variants, 6,048 visits in four weeks, in worlds that stand still, have a weekly
rhythm or trends, late events, or few buyers. Both other variants break the guardrails by exactly
their margins, so that neither may be called safe. Values and lifts of capped revenue, revenue per
order, cancellations and loading times must be right for all variants at once: at the end, or at
three analyses together. Shares have Wilson's 95 % interval; FAIL where coverage lies below 94 %, or
false "safe" above 5 %. Results that are refused count nowhere; "unknown" have an infinite limit.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.live.decisions import SegmentLedger, first_state, stored_state, transition
from steadyarm.live.measured import judged, results_by_metric, safety_of
from steadyarm.live.metrics import Metric, MetricResult
from steadyarm.live.settings import Settings
from steadyarm.segments import SegmentStats, columns_between
from steadyarm.storages.records import ExperimentRecord, SegmentRecord, SeriesSums, Snapshot, Tally

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

LEVEL, LEAST, MOST = 0.95, 0.94, 0.05
NAMES = ("today", "guest", "fast")
DAYS, A_DAY = 28, 216
VISITS = DAYS * A_DAY
STEP = 400 * 1_000_000  # microseconds from one visit to the next
BEGIN = 1_700_000_000 * 1_000_000
LOOKS = (VISITS // 3, 2 * VISITS // 3, VISITS)
CHUNK = 50
TWICE, LOST = 0.2, 0.1  # share of buyers that buy again, and of these orders that come too late
AMOUNT, CAP, SIGMA, QUANTILES = 40.0, 150.0, 1.2, 200
CANCELLED, WORSE = 0.04, 0.01  # share of visits today, and by how much both variants are worse
LOADING, SLOWER, SPREAD = 1.0, 0.05, 0.3  # seconds
REPORTED = 0.9  # share of the visits whose loading time is known
DAY = 86400 * 1_000_000
DELAYS = {"orders": 2 * DAY, "revenue": 2 * DAY, "cancelled": 2 * DAY, "loading": DAY // 24}


@dataclass(frozen=True, eq=False)
class World:
    """What visitors do, by day and variant.

    Few of them buy, once or twice, for lognormal amounts that count up to a cap; orders steer the
    test. Some cancel, and the loading time is known of most. Late events come within two days and
    in any order.

    Attributes
    ----------
    buys : (days, K) probability of buying
    amounts : (days, K, QUANTILES) amounts of an order, all equally likely
    cancels, loads : (days, K) probability of a cancellation, mean of the loading time
    late : events come late
    """

    buys: Floats
    amounts: Floats
    cancels: Floats
    loads: Floats
    late: bool = False

    @property
    def again(self) -> float:
        """The share of buyers whose second order counts."""
        return TWICE * (1 - LOST * self.late)

    def truths(self) -> dict[str, Floats]:
        """(VISITS, K) mean of every metric over the visits up to each."""
        once = np.minimum(self.amounts, CAP).mean(axis=2)
        both = np.empty_like(once)
        for at in np.ndindex(*once.shape):
            sums = self.amounts[at][:, None] + self.amounts[at]
            both[at] = np.minimum(sums, CAP).mean()
        means = {
            "orders": self.buys * (1 + self.again),
            "revenue": self.buys * ((1 - self.again) * once + self.again * both),
            "cancelled": self.cancels,
            "loading": self.loads,
        }
        visits = np.arange(1, VISITS + 1)[:, None]
        found = {
            name: np.repeat(mean, A_DAY, axis=0).cumsum(axis=0) / visits
            for name, mean in means.items()
        }
        return found | {"per order": found["revenue"] / found["orders"]}


@cache
def world_of(name: str) -> World:
    """A world by its name, one of `WORLDS`."""
    days = np.arange(DAYS)
    lift = np.array([1.0, 1.1, 0.95])
    course = np.tile(lift, (DAYS, 1))
    if name in ("rhythm", "late"):
        week = np.array([1.1, 1.2, 1.2, 1.1, 1.0, 0.7, 0.7])[days % 7, None]
        course = week * (lift + (days % 7 >= 5)[:, None] * np.array([0.0, 0.3, -0.2]))
    elif name == "trend":
        course = lift + np.linspace(-1, 1, DAYS)[:, None] * np.array([0.2, -0.2, 0.4])
    ranks = ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    scale = 1 + 0.5 * (np.roll(course, 1, axis=1) - 1)
    amounts = AMOUNT * scale[:, :, None] * np.exp(SIGMA * ranks - SIGMA**2 / 2)
    return World(
        (0.01 if name == "few buyers" else 0.05) * course,
        np.round(4 * amounts) / 4,  # sums of such numbers are exact
        _worse(CANCELLED * course, CANCELLED, WORSE),
        _worse(LOADING * (1 + 0.2 * (course - 1)), LOADING, SLOWER),
        late=name == "late",
    )


WORLDS = ("stationary", "rhythm", "trend", "late", "few buyers")


def _worse(course: Floats, today: float, by: float) -> Floats:
    """The course with these means over time: both variants are worse by that much."""
    return np.asarray(course - course.mean(axis=0) + today + np.array([0.0, by, by]))


def settings_of(world: World, seed: int) -> Settings:
    """A test of such a shop; visits come every 400 seconds."""
    window = {name: delay / 1e6 if world.late else 60.0 for name, delay in DELAYS.items()}
    metrics = (
        Metric("orders", "primary", "count", several="sum", window=window["orders"], grace=0),
        Metric("revenue", kind="money", several="sum", window=window["revenue"], grace=0, cap=CAP),
        Metric("per order", ratio=("revenue", "orders")),
        Metric(
            *("cancelled", "guardrail", "yes/no", "", "minimize"),
            window=window["cancelled"],
            grace=0,
            margin=WORSE,
        ),
        Metric(
            *("loading", "guardrail", "number", "s", "minimize"),
            window=window["loading"],
            grace=0,
            margin=SLOWER,
        ),
    )
    arms = sa.ArmSet.one_hot(list(NAMES))
    return Settings(arms, sa.Steady(), VISITS, seed, control="today", metrics=metrics)


@dataclass(eq=False)
class Play:
    """One simulated test: which variant each visitor saw, and what came of it and when.

    Attributes
    ----------
    buys : (visits, K) orders within the window, of each variant that might be shown
    shown : (visits,) variants; parts : segments with the visit that each begins with
    """

    settings: Settings
    world: World
    seed: int
    buys: Counts = field(init=False)
    shown: Counts = field(init=False)
    parts: list[tuple[int, SegmentRecord]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draws = np.random.default_rng([11, self.seed])
        self._luck = self._draws.random(VISITS)
        self._day = np.arange(VISITS) // A_DAY
        again = self._draws.random(VISITS) < self.world.again
        self.buys = (self._luck[:, None] < self.world.buys[self._day]) * (1 + again)[:, None]
        self._drawn = self._draws.integers(QUANTILES, size=(2, VISITS))
        self._noise = self._draws.standard_normal(VISITS)
        self._reported = self._draws.random(VISITS) < REPORTED
        later = self._drawn.max(axis=0) / QUANTILES * self._draws.random(VISITS) * self.world.late
        self.delays = {name: later * delay for name, delay in DELAYS.items()}
        self.shown = np.zeros(VISITS, dtype=np.int64)
        self._assign()
        self.values = self._events()

    def _assign(self) -> None:
        """Draw all segments, as `Experiment.ask` would with orders as rewards.

        A segment is observed at the first visit after the windows of all of its visits.
        """
        settings, now = self.settings, BEGIN
        state = stored_state(settings, first_state(settings))
        ledgers: list[SegmentLedger] = []
        current: SegmentLedger | None = None
        opened, visit = 0, 0
        patience = settings.patience
        assert patience is not None
        while visit < VISITS:
            now = BEGIN + visit * STEP
            for ledger in ledgers:
                over = ledger.exhausted and ledger.last is not None
                if over and ledger.last is not None and now > ledger.last + patience:
                    self._enter(ledger)
            need = current is None or current.exhausted
            for ledger in ledgers if need else ():
                if ledger.unsettled:
                    self._enter(ledger, now)
            if need or any(ledger.complete for ledger in ledgers):
                spare = VISITS - opened
                found = transition(settings, state, ledgers, current, spare, need)
                assert found is not None
                state = found.state
                ledgers = [ledger for ledger in ledgers if ledger not in found.closed]
                current = None if current in found.closed else current
                if found.superseded is not None:
                    assert current is not None
                    opened -= current.rounds
                    current.supersede()
                    opened += current.rounds
                    at, record = self.parts[-1]
                    cut = replace(record, segment=current.segment, superseded=True)
                    self.parts[-1] = at, cut
                    continue
                if found.opened is not None:
                    index, segment = len(self.parts), found.opened
                    stats = SegmentStats(*np.zeros((3, 1, segment.columns)))
                    current = SegmentLedger(
                        index, segment, stats, carried_on=found.carried_on, unsettled=True
                    )
                    ledgers.append(current)
                    opened += current.rounds
                    record = SegmentRecord(index, segment, found.carried_on, False, 0, now)
                    self.parts.append((visit, record))
                elif need:
                    continue
            assert current is not None
            due = [ledger.last for ledger in ledgers if ledger.exhausted and ledger.last]
            until = visit + current.rounds - current.used
            if due:  # the first visit at which a segment is over
                until = min(until, max((min(due) + patience - BEGIN) // STEP + 1, visit + 1))
            columns = columns_between(
                current.segment,
                settings.seed,
                current.index,
                current.used,
                current.used + until - visit,
            )
            self.shown[visit:until] = columns
            current.used += until - visit
            current.last = BEGIN + (until - 1) * STEP
            visit = until
        self.state = state

    def _enter(self, ledger: SegmentLedger, now: int | None = None) -> None:
        """Enter the orders of a segment that have come by now; all, if its windows have ended."""
        begin = self.parts[ledger.index][0]
        at = np.arange(begin, begin + ledger.used)
        shown, orders = self.shown[at], self.buys[at, self.shown[at]]
        ledger.assigned = counts = np.bincount(shown, minlength=len(NAMES))
        if now is not None:
            came = BEGIN + at * STEP + self.delays["orders"][at].astype(np.int64)
            orders = orders * (came < now)
            counts = np.bincount(shown[orders > 0], minlength=len(NAMES))
        counted = np.array([np.bincount(shown, w, len(NAMES)) for w in (orders, orders**2)])
        ledger.stats = SegmentStats(counts[None], counted[:1], counted[1:])
        ledger.unsettled = now is not None

    def _events(self) -> dict[str, Floats]:
        """What visitors bring of each metric, nan for nothing.

        Who buys late buys for more, and slow pages sell less. Amounts of two orders are apart in
        `amounts`.
        """
        k, at = self.shown, (self._day, self.shown)
        orders = self.buys[np.arange(VISITS), k].astype(float)
        self.amounts = self.world.amounts[at][np.arange(VISITS), self._drawn]
        spent = np.where(orders > 0, self.amounts[0], 0.0) + np.where(
            orders > 1, self.amounts[1], 0.0
        )
        noise = 0.5 * ndtri(1 - self._luck) + 0.75**0.5 * self._noise
        loading = np.round(1024 * (self.world.loads[at] + SPREAD * noise)) / 1024
        return {
            "orders": np.where(orders > 0, orders, np.nan),
            "revenue": np.where(orders > 0, np.minimum(spent, CAP), np.nan),
            "cancelled": np.where(self._luck > 1 - self.world.cancels[at], 1.0, np.nan),
            "loading": np.where(self._reported, loading, np.nan),
        }

    def sums(self, visits: int, now: int) -> tuple[Snapshot, tuple[SeriesSums, ...]]:
        """What a storage has after so many visits, at that time.

        Of units with two orders both are taken to come when the last one does, which matters to no
        visit whose window has ended.
        """
        came = BEGIN + np.arange(VISITS) * STEP
        values = {
            name: np.where(came + self.delays[name] <= now, value, np.nan)[:visits]
            for name, value in self.values.items()
        }
        values["revenue*orders"] = values["revenue"] * values["orders"]
        pairs, series = [], []
        for begin, record in self.parts:
            if begin >= visits:
                break
            end = min(begin + record.rounds, visits)
            shown = self.shown[begin:end]
            assigned = np.bincount(shown, minlength=len(NAMES))
            exact = {
                name: _exact_sums(shown, value[begin:end], record.index, name)
                for name, value in values.items()
            }
            own = exact.pop("orders")
            last = BEGIN + (end - 1) * STEP
            sums = tuple(assigned.tolist()), own.rewarded, own.sums, own.squares
            pairs.append((record, Tally(*sums, last)))
            series += [part for part in exact.values() if any(part.rewarded)]
        state = {"state": self.state.to_dict(), "rounds": 0}
        head = ExperimentRecord(
            name="shop", tag="s", state="running", config={}, created=BEGIN, policy_state=state
        )
        return Snapshot(head, tuple(pairs)), tuple(series)


def _exact_sums(shown: Counts, values: Floats, segment: int, name: str) -> SeriesSums:
    """Sums by variant: all values are multiples of 1/1024, so that these are exact."""
    known = ~np.isnan(values)
    shown, values = shown[known], values[known]
    counts = np.bincount(shown, minlength=len(NAMES))
    sums, squares = (
        tuple(map(Fraction, np.bincount(shown, w, len(NAMES)).tolist()))
        for w in (values, values**2)
    )
    return SeriesSums(segment, 0, name, tuple(counts.tolist()), sums, squares, (0,) * len(NAMES))


# What is said, and whether it is right

VERDICTS = ("PASS", "FAIL")
STATEMENTS = {
    "revenue": ("values", "lifts", "relative"),
    "per order": ("values", "lifts", "relative"),
    "cancelled": ("values", "lifts", "relative", "safe", "safe, relative"),
    "loading": ("values", "lifts", "relative", "safe", "safe, relative"),
}
SHARES = {"cancelled": f"{100 * WORSE / CANCELLED:g}%", "loading": f"{100 * SLOWER / LOADING:g}%"}


def stacked(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of tests that have the same number of pieces, as that of a batch."""
    first = parts[0]

    def together(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    optional = ("within", "weights", "references", "binary")
    known = [name for name in optional if getattr(first, name) is not None]
    names = ("rounds", "scores", "squares", *known)
    return replace(first, **{name: together(name) for name in names})


def results_at(
    plays: Sequence[Play], visits: int, anytime: bool
) -> Iterator[tuple[int, MetricResult]]:
    """What is known of each metric after so many visits, with the index of the test.

    These are the results of `metric_results` at a level of 95 % for each metric, which secondary
    ones would share among each other. Tests are judged together where they are of the same shape.
    """
    wait = 3 * DAY if visits == VISITS else 0  # until the last window has ended
    now = BEGIN + (visits - 1) * STEP + wait
    alike: dict[Any, list[tuple[int, int, Evidence]]] = {}
    for i, play in enumerate(plays):
        for metric, own in results_by_metric(play.settings, *play.sums(visits, now), now):
            if isinstance(own, sa.SteadyArmError):
                yield i, MetricResult(metric, NAMES, obstacle=str(own))
                continue
            assert own.spending(LEVEL, anytime) == (LEVEL, anytime)
            one, judgeable = own.evidence, sum(piece.used for piece in own.mature)
            kept = one.within is None, one.references is None
            shape = metric.name, one.rounds.shape[1], one.block, *kept
            alike.setdefault(shape, []).append((i, judgeable, one))
    settings = plays[0].settings
    metrics = {metric.name: metric for metric in settings.metrics}
    for (name, *_), group in alike.items():
        which, visited, parts = zip(*group, strict=True)
        found = judged(settings, metrics[name], stacked(parts), LEVEL, anytime)
        for i, seen, result in zip(which, visited, found, strict=True):
            yield i, replace(result, visits=seen)


Answer = dict[tuple[str, str], tuple[bool, bool]]


def right(found: MetricResult, truth: Floats) -> dict[str, bool]:
    """Which statements are right; none is made where there is no result.

    truth : (K,) true means over the visits that were judged
    """
    if found.estimates is None:
        return {}
    apart, slack = truth - truth[0], 1e-9

    def inside(ends: Floats | None, true: Floats) -> bool:
        assert ends is not None
        known = ~np.isnan(ends).any(axis=1)
        return bool(((ends[:, 0] <= true + slack) & (true - slack <= ends[:, 1]) | ~known).all())

    answers = {
        "values": inside(found.intervals, truth),
        "lifts": inside(found.lift_intervals, apart),
        "relative": inside(found.relative_intervals, apart / truth[0]),
    }
    if found.metric.role == "guardrail":
        share = replace(found, metric=replace(found.metric, margin=SHARES[found.name]))
        for name, each, by in (("safe", found, apart), ("safe, relative", share, apart / truth[0])):
            margin = each.metric.margin_share or each.metric.margin
            assert isinstance(margin, float)
            bad = by[1:] >= margin - slack
            safe = np.array([word == "safe" for word in safety_of(each)[1:]])
            answers[name] = not bool((bad & safe).any())
    return answers


def known(found: MetricResult, statement: str) -> bool:
    """Whether all limits that a statement rests on are finite."""
    relative = "relative" in statement
    ends = found.relative_intervals if relative else found.lift_intervals
    ends = found.intervals if statement == "values" else ends
    return ends is not None and bool(np.isfinite(ends).all())


def tests(world: str, seeds: Sequence[int], watched: bool) -> list[Answer]:
    """Some tests: for each statement whether it was right, and known, at all analyses."""
    place, truths = world_of(world), truths_of(world)
    plays = [Play(settings_of(place, seed), place, seed) for seed in seeds]
    found: list[Answer] = [{} for _ in seeds]
    for visits in LOOKS if watched else LOOKS[-1:]:
        for i, result in results_at(plays, visits, watched):
            truth = truths[result.name][max(result.visits, 1) - 1]
            for statement, good in right(result, truth).items():
                at = result.name, statement
                so_far, finite = found[i].get(at, (True, True))
                found[i][at] = so_far and good, finite and known(result, statement)
    return found


@cache
def truths_of(world: str) -> dict[str, Floats]:
    """The truths of a world by its name."""
    return world_of(world).truths()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=2000, help="analysed once, in each world")
    parser.add_argument("--watched", type=int, help="analysed three times; default: a quarter")
    parser.add_argument(
        "--worlds", nargs="*", choices=WORLDS, default=list(WORLDS), help="default: all"
    )
    parser.add_argument("--first", type=int, default=0, help="seed of the first test")
    parser.add_argument("--processes", type=int, default=2, help="that play tests side by side")
    options = parser.parse_args()
    few = options.tests // 4 if options.watched is None else options.watched
    begin, failed = perf_counter(), 0
    print(f"{options.tests} tests analysed once and {few} watched in each world; in %.\n")
    head = f"{'world':<12}{'analyses':<10}{'metric':<11}{'statement':<22}{'share':>8}"
    print(f"{head}{'of':>20}{'unknown':>9}")
    with ProcessPoolExecutor(options.processes) as pool:
        for world in options.worlds:
            for watched, number in ((False, options.tests), (True, few)):
                seeds = range(options.first, options.first + number)
                lots = [seeds[i : i + CHUNK] for i in range(0, number, CHUNK)]
                runs = pool.map(tests, [world] * len(lots), lots, [watched] * len(lots))
                answers = [answer for run in runs for answer in run]
                kind = "watched" if watched else "once"
                for line, bad in lines(answers):
                    print(f"{world:<12}{kind:<10}{line}", flush=True)
                    failed += bad
    result = "PASS" if not failed else f"FAIL in {failed} places"
    print(f"\n{result}, {perf_counter() - begin:.0f} s")


def lines(answers: Sequence[Answer]) -> Iterator[tuple[str, bool]]:
    """A line for every statement, and whether it is wrong too often."""
    for metric, statements in STATEMENTS.items():
        for statement in statements:
            made = [
                answer[metric, statement] for answer in answers if (metric, statement) in answer
            ]
            if not made:
                continue
            good = sum(right for right, _ in made)
            unknown = sum(not finite for _, finite in made)
            guard = statement.startswith("safe")
            count = len(made) - good if guard else good
            ends = binomtest(count, len(made)).proportion_ci(0.95, method="wilson")
            bad = bool(ends.low > MOST if guard else ends.high < LEAST)
            share = f"{100 * count / len(made):8.2f}"
            between = f"({100 * ends.low:.1f}-{100 * ends.high:.1f})"
            name = f"false {statement}" if guard else statement
            rest = f"{len(made):>6}{100 * unknown / len(made):9.1f}"
            yield f"{metric:<11}{name:<22}{share} {between:<13}{rest}  {VERDICTS[bad]}", bad


if __name__ == "__main__":
    main()
