"""Analysis: what a log says, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.units import Units
from steadyarm.arms import ArmSet
from steadyarm.inference.counterfactuals import Counterfactuals
from steadyarm.inference.drift import DriftReport
from steadyarm.inference.evidence import Evidence, json_ready
from steadyarm.inference.health import HealthReport
from steadyarm.inference.intervals import Intervals
from steadyarm.wording import strung

MOST_LINES = 30


@dataclass(frozen=True, eq=False)
class Analysis:
    """The verdict on a log.

    Attributes
    ----------
    log : what was analysed
    arms : the variants
    rows, rewards : in the log, and used for estimates
    counts, means : (K,) rows with a reward and their plain mean, which drift can mislead
    intervals : estimates, intervals, gaps and the plausible set
    drift : did the world move?
    health : can the log be trusted?
    counterfactuals : what raw means, an early stop or elimination would have concluded
    evidence : the scores behind it, for further analyses
    notes : how the log was read, one sentence each
    units : how often units are in the log, if some have several rows; variances are by unit then
    anytime : whether intervals hold at every look, or for one look at an end fixed in advance
    """

    log: str
    arms: ArmSet
    rows: int
    rewards: int
    counts: NDArray[np.int64]
    means: NDArray[np.float64]
    intervals: Intervals
    drift: DriftReport
    health: HealthReport
    counterfactuals: Counterfactuals
    evidence: Evidence
    notes: tuple[str, ...]
    units: Units | None = None
    anytime: bool = False

    @property
    def recommended(self) -> str:
        """The arm with the best estimate."""
        return self.intervals.arms.names[int(self.intervals.recommended[0])]

    @property
    def shown(self) -> NDArray[np.int64]:
        """The arms that the rows of `intervals` are: all, or a short list of a large set."""
        shown = self.intervals.shown
        return np.arange(self.arms.size, dtype=np.int64) if shown is None else shown

    @property
    def plausible(self) -> tuple[str, ...]:
        """Arms that cannot be ruled out as the best."""
        return self.intervals.plausible_names()

    @property
    def estimates(self) -> NDArray[np.float64]:
        """(K,) estimated time-averaged reward of every arm that is `shown`."""
        return np.asarray(self.intervals.estimates[0])

    @property
    def size(self) -> str:
        """Rows, units where they repeat, and rewards, in words."""
        units = "" if self.units is None else f" of {self.units.units:,} units"
        return f"{self.rows:,} rows{units}, {self.rewards:,} rewards"

    @property
    def verdict(self) -> str:
        """A few sentences; where a health check fails they say so instead of who is the best."""
        if self.health.unhealthy:
            return f"{self.health.unhealthy} The best estimate is that of {self.recommended}."
        level = f"{self.intervals.level:.0%}".replace("%", " %")
        others = [name for name in self.plausible if name != self.recommended]
        more = self.intervals.others
        if not others and not more:
            sure = f"At level {level} it is the only variant that can be the best."
        elif more:
            count = f"{len(self.plausible) + more:,} of {self.arms.size:,} variants"
            sure = f"At level {level} {count} cannot be ruled out as the best."
        elif len(others) == self.arms.size - 1:
            sure = f"At level {level} no variant can be ruled out as the best."
        else:
            sure = f"At level {level} these may be the best, too: {strung(others, 8)}."
        return f"The best variant is {self.recommended}. {sure}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is unknown or infinite is None."""
        i = self.intervals
        found = {
            "log": self.log,
            "rows": self.rows,
            "rewards": self.rewards,
            "units": self.units,
            "anytime": self.anytime,
            "recommended": self.recommended,
            "plausible": self.plausible,
            "verdict": self.verdict,
            "level": i.level,
            "direction": self.evidence.direction,
            "method": i.method,
            "assumption": i.assumption,
            "arms": [
                {
                    "arm": name,
                    "rows": self.counts[arm],
                    "mean": self.means[arm],
                    "estimate": i.estimates[0, k],
                    "standard_error": i.standard_errors[0, k],
                    "interval": [i.low[0, k], i.high[0, k]],
                    "gap": i.gaps[0, k],
                    "gap_interval": [i.gap_low[0, k], i.gap_high[0, k]],
                    "plausible": i.plausible[0, k],
                }
                for k, (arm, name) in enumerate(zip(self.shown.tolist(), i.arms.names, strict=True))
            ],
            "health": self.health.to_dict(),
            "drift": self.drift.to_dict(),
            "otherwise": self.counterfactuals.to_dict(),
            "notes": self.notes,
        }
        plain: dict[str, Any] = json_ready(found)
        return plain

    def __str__(self) -> str:
        i = self.intervals
        level = f"{i.level:.0%}".replace("%", " %")
        width = max(6, *(len(name) for name in i.arms.names)) + 2
        lines = [self.verdict, "", f"{self.log}: {self.size}."]
        head = f"{'variant':<{width}}{'rows':>12}{'estimate':>11}{level + ', all at once':>24}"
        lines.append(f"{head}{'behind by':>11}{'plain mean':>12}")
        sign = 1 if self.evidence.direction == "maximize" else -1
        order = np.argsort(-sign * i.estimates[0], kind="stable")
        counts, means = self.counts[self.shown], self.means[self.shown]
        for k in order[:MOST_LINES]:
            reach = f"{i.low[0, k]:.4g} to {i.high[0, k]:.4g}"
            gap = "" if k == order[0] else f"{i.gaps[0, k]:.4g}"
            mark = "*" if i.plausible[0, k] else " "
            lines.append(
                f"{i.arms.names[k]:<{width}}{counts[k]:>12,}{i.estimates[0, k]:>11.4g}"
                f"{reach:>24}{gap:>11}{means[k]:>12.4g} {mark}"
            )
        if len(order) > MOST_LINES:
            more = self.arms.size - MOST_LINES
            lines.append(f"… and {more} more variants, see the JSON output")
        lines += ["* may be the best", "", str(self.health), "", f"Drift: {self.drift.verdict}"]
        return "\n".join([*lines, "", *self.notes])
