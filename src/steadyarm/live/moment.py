"""Moment: the stored state of a test at one moment, and the results that follow from it.

Experiments, scorecards and analyses of exports all read tests through it, so their results agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from steadyarm.live.breakdowns import Breakdown, compute_breakdown
from steadyarm.live.estimates import MetricResult
from steadyarm.live.measured import metric_results
from steadyarm.live.results import LiveResults, compute_results
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import EarlyStop
from steadyarm.live.units import check_attribute
from steadyarm.live.verdict import Verdict
from steadyarm.storages.records import DaySums, SeriesSums, Snapshot, to_datetime


@dataclass(frozen=True, eq=False)
class Moment:
    """The stored state of a test at one moment.

    Attributes
    ----------
    settings : the settings of the test
    snapshot, days, series : its sums, as the methods of `Storage` give them; the series are needed
        for metrics and attributes only
    now : that moment, in microseconds since 1970
    stopped : that the test stopped itself
    """

    settings: Settings
    snapshot: Snapshot
    days: tuple[DaySums, ...]
    series: tuple[SeriesSums, ...]
    now: int
    stopped: EarlyStop | None

    @cached_property
    def results(self) -> LiveResults:
        """All that the test says of itself."""
        return compute_results(
            self.settings, self.snapshot, self.days, self.now, stopped=self.stopped
        )

    @cached_property
    def spans(self) -> dict[int, tuple[datetime, datetime]]:
        """First and last assignment of each segment that has one."""
        return {
            record.index: (to_datetime(record.opened), to_datetime(tally.last))
            for record, tally in self.snapshot.segments
            if tally.last is not None
        }

    def metrics(self, level: float, anytime: bool | None = None) -> tuple[MetricResult, ...]:
        """Results of the secondary metrics and guardrails."""
        if not self.settings.further:
            return ()
        return metric_results(
            self.settings, self.snapshot, self.series, self.now, level, anytime, self.stopped
        )

    def recommend(
        self,
        level: float,
        anytime: bool | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> Verdict:
        """The verdict with all metrics; `Experiment.recommend` describes the parameters."""
        results = self.results.check_complete()
        return results.recommend(level, anytime, reward_range, self.metrics(level, anytime))

    def breakdown(
        self,
        attribute: str,
        level: float,
        anytime: bool | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> Breakdown:
        """The results by level of an attribute."""
        check_attribute(self.settings.attributes, attribute)
        results = self.results.check_complete()
        verdict = results.recommend(level, anytime, reward_range)
        against = verdict.control or verdict.name
        asked = attribute, against, level, anytime, reward_range
        return compute_breakdown(results, self.snapshot, self.series, *asked)
