"""Simulated tests of which the levels of units are known, as sums that a storage would keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.live import breakdowns
from steadyarm.live.breakdowns import Breakdown, breakdown_of
from steadyarm.live.measured import by_series
from steadyarm.live.results import LiveResults, results_of
from steadyarm.segments import Segment
from steadyarm.storages.records import SegmentRecord, SeriesSums, Snapshot, Tally

Floats = NDArray[np.float64]
BLOCK = 24


class Crowd:
    """A test whose shares follow the rewards, played segment by segment without a storage.

    rates : (L, K) probability of a click by level and variant
    among : (L,) shares of the levels
    drift : how far all rates rise and fall during the test
    """

    def __init__(
        self,
        rates: Any,
        among: Any,
        segments: int = 10,
        rounds: int = 120,
        drift: float = 0.0,
        control: bool = True,
        money: bool = False,
    ) -> None:
        self.rates, self.among = np.array(rates), np.array(among)
        self.segments, self.rounds, self.drift, self.money = segments, rounds, drift, money
        levels, variants = self.rates.shape
        self.levels = [f"level {i}" for i in range(levels)]
        self.test = sa.create_experiment(
            "crowd",
            [f"variant {k}" for k in range(variants)],
            sa.Steady(),
            segments * rounds,
            "memory",
            seed=1,
            missing="zero",
            reward_window="1h",
            control="variant 0" if control else None,
            attributes={"crowd": self.levels},
        )
        self.snapshot = self.test.storage.snapshot(self.test.key, everything=True)

    def drawn(self, rng: np.random.Generator) -> tuple[LiveResults, Snapshot, list[SeriesSums]]:
        """One test: its results, and the sums by level."""
        variants = self.rates.shape[1]
        weights, seen, records, series = np.full(variants, 1 / variants), [], [], []
        for index in range(self.segments):
            segment = Segment(weights[None], np.array([self.rounds]), "blocks", BLOCK)
            arms = _blocks(rng, weights, self.rounds)
            level = rng.choice(len(self.among), size=self.rounds, p=self.among)
            wave = self.drift * np.sin(2 * np.pi * index / self.segments)
            rewards = (rng.random(self.rounds) < self.rates[level, arms] + wave) * 1.0
            if self.money:
                rewards *= np.round(np.exp(rng.normal(2, 0.7, self.rounds)), 2)
            tally, parts = self._sums(index, arms, level, rewards)
            records.append((SegmentRecord(index, segment, False, False, index, index), tally))
            series += parts
            seen.append(np.array(tally.sums, dtype=float) / np.maximum(tally.assigned, 1))
            best = np.arange(variants) == int(np.argmax(np.mean(seen, axis=0)))
            weights = np.where(best, 0.5, 0.5 / (variants - 1))
        moment = replace(self.snapshot, segments=tuple(records))
        return results_of(self.test.settings, moment, (), 10**15), moment, series

    def play(self, rng: np.random.Generator) -> Breakdown:
        """What is known of each level after one test."""
        results, moment, series = self.drawn(rng)
        against = self.test.settings.control or results.recommend().name
        return breakdown_of(results, moment, series, "crowd", against)

    def many(self, rng: np.random.Generator, tests: int) -> tuple[list[Evidence], Floats]:
        """Many tests at once: the evidence of each level as a batch, and p-values of interaction.

        What `play` computes test by test, without its intervals.
        """
        found: list[list[Evidence]] = [[] for _ in self.levels]
        p_values = []
        for _ in range(tests):
            results, moment, series = self.drawn(rng)
            sums, tested = by_series(series), []
            for level, batch in zip(self.levels, found, strict=True):
                parts = breakdowns._visits_of(f"crowd={level}", results, moment, sums)
                batch.append(breakdowns._alone(results, parts).evidence)
                each = [(tally.assigned, tally.rewarded, tally.sums) for _, tally in parts]
                seen, rewards, totals = np.sum(np.array(each, dtype=object), axis=0)
                if breakdowns.is_enough(seen, seen, totals, batch[-1], rewards):
                    tested.append(batch[-1])
            p = breakdowns.interaction(tested, row=0)
            p_values.append(np.nan if p is None else p)
        return [_together(batch) for batch in found], np.array(p_values)

    def _sums(
        self, index: int, arms: Any, level: Any, rewards: Floats
    ) -> tuple[Tally, list[SeriesSums]]:
        """The sums of a segment; visits without a reward are not reported."""

        def of(those: Any, values: Floats) -> tuple[Any, Any, Any]:
            counts, sums, squares = (
                np.bincount(arms[those], each[those], minlength=self.rates.shape[1]).tolist()
                for each in (np.ones(len(values)), values, values**2)
            )
            return (
                tuple(map(int, counts)),
                tuple(sums),
                tuple(squares),
            )

        bought, ones = rewards > 0, np.ones(len(rewards))
        assigned, rewarded = of(ones > 0, ones)[0], of(bought, rewards)
        parts = []
        for i, name in enumerate(self.levels):
            mine, none = level == i, (0,) * len(assigned)
            parts += [
                SeriesSums(index, 0, f"crowd={name}", *of(mine, ones), none),
                SeriesSums(index, 0, f"crowd={name}*reward", *of(mine & bought, rewards), none),
            ]
        return Tally(assigned, *rewarded, last=0), parts


def _together(tests: list[Evidence]) -> Evidence:
    """Tests with equally many pieces as one batch."""
    arrays = ("rounds", "scores", "squares", "weights", "references", "binary")
    batch: dict[str, Any] = {
        name: np.concatenate([getattr(test, name) for test in tests]) for name in arrays
    }
    return replace(tests[0], **batch)


def _blocks(rng: np.random.Generator, weights: Floats, rounds: int) -> NDArray[np.int64]:
    """Arms in blocks of BLOCK that hold each as often as its weight says, rounded at random."""
    found: list[NDArray[np.int64]] = []
    while sum(len(block) for block in found) < rounds:
        ends = np.floor(np.cumsum(BLOCK * weights) + rng.random() + 1e-9).astype(int)
        counts = np.diff(ends, prepend=ends[-1] - BLOCK)
        found.append(rng.permutation(np.repeat(np.arange(len(weights)), counts)))
    return np.concatenate(found)[:rounds]
