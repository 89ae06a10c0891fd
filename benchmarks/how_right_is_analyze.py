"""How often are the intervals of `analyze` right when units have several rows?

Two weeks, users with five rows each or with 2 to about 90 (heavy), and a level of their own
(standard deviation 1, as the noise). "kept": drawn at the first visit; "anew": at every visit;
"adaptive": 80 % to the leader so far, day by day. Gap: how often its 95 % interval is right.
A/A: how often one of two equal variants is the only plausible one. SRM: how often the log
fails. Last: how often some of twelve daily looks at two equal variants is wrong, by anytime and
by one-look intervals.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.analysis.clusters import MANY, unit_evidence
from steadyarm.analysis.sums import Plan
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.intervals import fixed_budget
from steadyarm.inference.sequences import confidence_sequence
from steadyarm.inference.srm import ALARM, srm_from_propensities

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
DAYS, USERS, GAP = 14, 600, 0.3
ARMS = sa.ArmSet.one_hot(["A", "B"])
CELLS = {name: (k, np.eye(2)[k]) for k, name in enumerate(ARMS.names)}


@dataclass(frozen=True)
class Log:
    """Rows in order of users: who, when, what, how probable, and what came of it."""

    unit: Integers
    day: Integers
    arm: Integers
    p: Floats
    reward: Floats

    def until(self, day: int) -> Log:
        """The rows up to the end of a day."""
        keep = self.day <= day
        _, unit = np.unique(self.unit[keep], return_inverse=True)
        return Log(unit, self.day[keep], self.arm[keep], self.p[keep], self.reward[keep])

    def by_row(self) -> Log:
        """The same, every row a unit of its own."""
        return Log(np.arange(len(self.unit)), self.day, self.arm, self.p, self.reward)


def simulated(rng: np.random.Generator, heavy: bool, kept: bool, adaptive: bool, gap: float) -> Log:
    """A log in which A is better by `gap`."""
    visits = np.full(USERS, 5)
    if heavy:
        often = (rng.random(USERS) < 0.03) * rng.integers(20, 80, USERS)
        visits = 1 + rng.geometric(0.3, USERS) + often
    unit = np.repeat(np.arange(USERS), visits)
    first = np.concatenate([[0], np.cumsum(visits)[:-1]])
    start = rng.uniform(0, 7, USERS)
    time = start[unit] + rng.uniform(0, 7, len(unit))
    time[first] = start
    day, level = time.astype(np.int64), rng.normal(size=USERS)
    reward = level[unit] + rng.normal(size=len(unit))
    arm, p = np.zeros(len(unit), dtype=np.int64), np.zeros(len(unit))
    share = 0.5  # of B
    for today in range(DAYS):
        now = np.flatnonzero(day == today)
        draws = rng.random(len(unit)) < share
        drawn = now if not kept else np.intersect1d(now, first)
        arm[drawn] = draws[drawn]
        p[drawn] = np.where(draws[drawn], share, 1 - share)
        if kept:
            arm[now], p[now] = arm[first[unit[now]]], p[first[unit[now]]]
        reward[now] += gap * (arm[now] == 0)
        if adaptive:
            seen = day <= today
            mean = [reward[seen & (arm == k)].mean() for k in (0, 1)]
            share = 0.8 if mean[1] > mean[0] else 0.2
    return Log(unit, day, arm, p, reward)


def evidence_of(log: Log) -> Evidence:
    """What `analyze` makes of it, with the sums that a database would give."""
    U = int(log.unit.max()) + 1
    cell = 2 * log.unit + log.arm
    sums: dict[str, Any] = {
        name: np.bincount(cell, weight, 2 * U).reshape(U, 2)
        for name, weight in (
            ("m", None),
            ("s", log.reward),
            ("i", 1 / log.p),
            ("w", log.reward / log.p),
        )
    }
    start = np.full(U, DAYS)
    np.minimum.at(start, log.unit, log.day)
    size = sums["m"].sum(axis=1).astype(np.float64)
    if (sums["m"] > 0).sum() < 1.5 * U < 1.5 * MANY:  # few units, that keep their variants
        first = start == start.min()
        others = size[first].sum() - size[first]
        raised = np.ones(U)
        raised[first] += size[first] / np.where(others > 0, others, np.inf)
        sums |= {name: sums[name] * raised[:, None] for name in "iw"}
    cells: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    sizes: list[dict[str, Any]] = []
    for today in np.unique(start).tolist():
        here = start == today
        bucket = {"bucket": date(2026, 3, 2) + timedelta(days=today)}
        own = {name: values[here].astype(np.float64) for name, values in sums.items()}
        for k, name in enumerate(ARMS.names):
            if own["m"][:, k].any():
                cells.append(bucket | {"arm": name} | {n: v[:, k].sum() for n, v in own.items()})
            for j, other in enumerate(ARMS.names):
                if (own["m"][:, k] * own["m"][:, j]).any():
                    products = {
                        a + b: (own[a][:, k] * own[b][:, j]).sum() for a in "miw" for b in "miw"
                    }
                    pairs.append(bucket | {"arm": name, "arm_2": other} | products)
        cubes = (size[here] ** 3).sum()
        sizes.append(bucket | {"units": int(here.sum()), "cubes": cubes})
    found = cells, pairs, sizes
    plan = Plan("day", "D")
    return unit_evidence(ARMS, found, ["arm"], lambda _: CELLS, plan, "maximize", True)[0]


def covers(evidence: Evidence, gap: float) -> bool:
    """Whether the one-look interval of the gap is right."""
    found = fixed_budget(evidence, recommended=[0])
    return bool(found.gap_low[0, 1] <= gap <= found.gap_high[0, 1])


def srm_fails(log: Log, kept: bool) -> bool:
    """Whether the assignments raise an alarm: of first visits if units keep their variant."""
    rows = np.unique(log.unit, return_index=True)[1] if kept else np.arange(len(log.unit))
    found = srm_from_propensities(ARMS.names, log.arm[rows], log.p[rows])
    return bool(found.p_value < ALARM)


def watched(log: Log) -> tuple[bool, bool]:
    """Whether some daily look at equal variants is wrong: anytime, one-look."""
    always = once = False
    for day in range(2, DAYS):
        evidence = evidence_of(log.until(day))
        found = confidence_sequence(evidence, len(log.unit), recommended=[0])
        always |= not found.gap_low[0, 1] <= 0 <= found.gap_high[0, 1]
        once |= not covers(evidence, 0.0)
    return always, once


def rate(hits: int, tests: int) -> str:
    """A share with its exact 95 % interval."""
    low, high = binomtest(hits, tests).proportion_ci(0.95)
    return f"{hits / tests:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Simulate logs and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=1000, help="simulated logs of each kind")
    parser.add_argument("--watched", type=int, default=200, help="of these, looked at daily")
    args = parser.parse_args()
    print(f"{args.tests} logs of {USERS} users, a gap of {GAP}; {args.watched} watched\n")
    print(
        f"{'log':<24}{'gap, by unit':<24}{'gap, by row':<24}{'A/A, by unit':<24}"
        f"{'A/A, by row':<24}{'SRM':<24}{'anytime wrong':<24}one-look wrong"
    )
    for heavy in (False, True):
        for kept in (True, False):
            for adaptive in (False, True):
                hits = np.zeros(7, dtype=np.int64)
                for i in range(args.tests):
                    rng = np.random.default_rng([1, i])
                    log = simulated(rng, heavy, kept, adaptive, GAP)
                    hits[0] += covers(evidence_of(log), GAP)
                    hits[1] += covers(evidence_of(log.by_row()), GAP)
                    log = simulated(rng, heavy, kept, adaptive, 0.0)
                    hits[2] += fixed_budget(evidence_of(log)).plausible[0].sum() == 1
                    hits[3] += fixed_budget(evidence_of(log.by_row())).plausible[0].sum() == 1
                    hits[4] += srm_fails(log, kept)
                    if i < args.watched:
                        always, once = watched(log)
                        hits[5] += always
                        hits[6] += once
                name = f"{'heavy' if heavy else 'even'}, {'kept' if kept else 'anew'}"
                name += ", adaptive" if adaptive else ""
                of = [args.tests] * 5 + [min(args.watched, args.tests)] * 2
                shown = [f"{rate(int(h), n):<24}" for h, n in zip(hits, of, strict=True)]
                print(f"{name:<24}" + "".join(shown).rstrip(), flush=True)


if __name__ == "__main__":
    main()
