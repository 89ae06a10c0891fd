"""Decision: what follows from a verdict, in a word and in a sentence that a person would say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import LackOfFit, stopping
from steadyarm.segments import Direction
from steadyarm.wording import by_how_much, listed

if TYPE_CHECKING:
    from steadyarm.live.verdict import Verdict

Word = Literal["ship", "keep", "unclear", "unhealthy", "running"]

TOO_MANY = 100  # budgets beyond which nobody wants to know how many more visits would tell


@dataclass(frozen=True)
class Decision:
    """What to do, in a word and in a sentence.

    Attributes
    ----------
    word : "ship" a variant; "keep" the control; "unclear" if the test ended without a clear
        winner, or can find none any more; "unhealthy" if nothing must be decided; "running" if it
        is not decided yet
    text : the same as a person says it
    variant : the variant to ship or to keep; None if there is none
    more : about how many more visits would tell; None if there is nothing to tell, or nobody knows
    """

    word: Word
    text: str
    variant: str | None = None
    more: int | None = None


UNDECIDED = Decision("running", "Nothing is decided yet.")


class Guardrail(Protocol):
    """What a decision asks of a metric that must not get worse.

    Attributes
    ----------
    name : of the metric
    broken : names of the variants that are worse by more than is allowed
    unsure : names of the variants that may be
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def broken(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def unsure(self) -> Sequence[str]: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Compared:
    """The variants of a verdict against its control: who is shown to be better or worse.

    Attributes
    ----------
    control : row of the control
    chosen : row of the variant that is decided on, the control's to keep it; -1 for none
    better, worse : (K,) variants whose lift is shown to be good, or bad; the recommended variant
        is better than the control, too, if it is the declared winner
    lifts : (K,) by how much each is better, negative if it is worse: relative if that is defined
    intervals : (K, 2) of these
    share : whether these are shares of the control's value
    unit : of lifts that are not
    """

    control: int
    chosen: int
    better: NDArray[np.bool_]
    worse: NDArray[np.bool_]
    lifts: NDArray[np.float64]
    intervals: NDArray[np.float64]
    share: bool
    unit: str = ""

    def amount(self, row: int) -> str:
        """By how much a variant is better, with its interval."""
        low, high = self.intervals[row].tolist()
        return by_how_much(float(self.lifts[row]), low, high, self.share, self.unit)

    @property
    def unclear(self) -> NDArray[np.bool_]:
        """(K,) variants that do not differ clearly from the control."""
        apart = self.better | self.worse
        apart[self.control] = True
        return ~apart


def compared(verdict: Verdict, direction: Direction, unit: str = "") -> Compared | None:
    """How the variants compare with the control; None if there is no control.

    unit : of differences
    """
    absolute, ends = verdict.lifts, verdict.lift_intervals
    if verdict.control is None or absolute is None or ends is None:
        return None
    row = verdict.names.index(verdict.control)
    sign = 1.0 if direction == "maximize" else -1.0
    low, high = ends.T if sign > 0 else -ends[:, ::-1].T
    picked, sure = np.array([verdict.row]), np.array([verdict.sure])
    chosen = int(stopping.decided_for(picked, sure, low[None], high[None], row)[0])
    if chosen == row and verdict.others and not verdict.sure:
        chosen = stopping.UNDECIDED  # variants that are not on the short list may be better
    better, worse = low > 0, high < 0
    if verdict.sure and verdict.row != row:
        better[verdict.row] = True
    if verdict.sure and verdict.row == row:
        worse[np.arange(len(worse)) != row] = True
    others = np.arange(len(absolute)) != row
    shares, between = verdict.relative, verdict.relative_intervals
    known = others & ~np.isnan(absolute)
    share = shares is not None and between is not None and not np.isnan(shares[known]).any()
    if share and shares is not None and between is not None:
        turn = sign * (1.0 if verdict.estimates[row] >= 0 else -1.0)
        lifts, intervals = turn * shares, between if turn > 0 else -between[:, ::-1]
    else:
        lifts, intervals = sign * absolute, np.column_stack([low, high])
    better, worse = better & others, worse & others
    return Compared(row, chosen, better, worse, lifts, intervals, bool(share), unit)


def decision_of(
    verdict: Verdict,
    direction: Direction,
    budget: int,
    over: bool,
    spent: bool,
    guardrails: Sequence[Guardrail] = (),
    least: int = 0,
    unit: str = "",
) -> Decision:
    """What to do, as far as the verdict allows a decision.

    A variant is shipped if it is recommended, shown to be better than the control (without a
    control: declared the winner), and breaks no guardrail. The control is kept if every other
    variant is shown not to be better. Intervals that hold at all times may decide before the end.

    Parameters
    ----------
    direction, budget : of the test
    over : whether neither visits nor rewards are to come
    spent : whether all visits were assigned
    guardrails : metrics that must not get worse, as judged for each variant
    least : visits before the next decision is possible
    unit : of differences, see `by_how_much`
    """
    if verdict.unhealthy:
        return Decision("unhealthy", "Not healthy: do not decide.")
    if not np.nan_to_num(verdict.estimates).any():
        return Decision("unclear" if over else "running", "No best variant: all rewards are 0.")
    against, name = compared(verdict, direction, unit), verdict.name
    if not verdict.caution:
        if against is None and verdict.sure:
            lone = verdict.variants == 1
            why = "it is the only variant" if lone else "it is the best, all others are ruled out"
            return _guarded(Decision("ship", f"Ship {name}: {why}.", name), "", None, guardrails)
        if against is not None and against.chosen == verdict.row != against.control:
            better = f"it beats {verdict.control} by {against.amount(verdict.row)}"
            ship = Decision("ship", f"Ship {name}: {better}.", name)
            return _guarded(ship, better, verdict.control, guardrails)
        if against is not None and against.chosen == against.control:
            others = [one for one in verdict.names if one != verdict.control]
            no = f"{others[0]} is not better" if len(others) == 1 else "no other variant beats it"
            return Decision("keep", f"Keep {verdict.control}: {no}.", verdict.control)
    more = _more_visits(verdict, against, budget, least)
    tell = "" if more is None else f"; about {more:,} more visits would tell"
    if more is not None and not over and verdict.waiting >= more:
        more, tell = None, "; visits that are not included yet may tell"
    if over:
        return Decision("unclear", f"No clear winner{tell}.", None, more)
    if spent:
        return Decision("running", "Not decided yet: rewards of the last visits may still come.")
    return Decision("running", f"Too early to decide{tell}.", None, more)


def _guarded(
    ship: Decision, better: str, control: str | None, guardrails: Sequence[Guardrail]
) -> Decision:
    """The decision to ship a variant, unless a guardrail forbids it.

    better : what speaks for the variant
    """
    name = ship.variant
    broken = [one.name for one in guardrails if name in one.broken]
    unsure = [one.name for one in guardrails if name in one.unsure and name not in one.broken]
    said = f"{better}, but " if better else ""
    if broken:
        why = f"{said}{listed(broken)} got worse by more than is allowed"
        if control is None:
            return Decision("unclear", f"Do not ship {name}: {why}.")
        return Decision("keep", f"Keep {control}, not {name}: {why}.", control)
    if unsure:
        why = f"{said}{listed(unsure)} may have got worse by more than is allowed"
        return Decision("unclear", f"Do not ship {name} yet: {why}.")
    return ship


def _more_visits(verdict: Verdict, against: Compared | None, budget: int, least: int) -> int | None:
    """About how many more visits would tell the best challenger from what it is compared with.

    If the estimates are true, an interval that is w wide on the side of 0 excludes 0 after
    (w / |lift|)² times as many visits. Rounded to two digits; None if that is far too many.
    """
    k = verdict.row
    if against is not None and k != against.control:
        lift, (low, high) = against.lifts[k], against.intervals[k]
    else:  # the recommended variant against the best of the others
        gaps = np.where(np.arange(len(verdict.gaps)) == k, np.nan, verdict.gaps)
        if np.isnan(gaps).all():
            return None
        rival = int(np.nanargmin(gaps))
        lift, (low, high) = verdict.gaps[rival], verdict.gap_intervals[rival]
    width = lift - low if lift > 0 else high - lift
    if not isfinite(high - low) or lift == 0 or width <= abs(lift):
        return None
    more = verdict.judged * ((width / abs(lift)) ** 2 - 1)
    if not 0 < more <= TOO_MANY * budget:
        return None
    more = max(more, least)
    unit = 10 ** max(floor(log10(more)) - 1, 0)
    return int(max(round(more / unit), 1) * unit)


def doubt_of(verdict: Verdict, direction: Direction, fit: Callable[[], LackOfFit | None]) -> str:
    """Why a lead that would decide rests on a model that may not fit; empty if it does not.

    fit : tests the model on the rewards that the verdict rests on
    """
    against, rows = compared(verdict, direction), np.arange(len(verdict.gaps))
    decides = verdict.sure or (against is not None and against.chosen != stopping.UNDECIDED)
    if not decides or verdict.shown is not None or (found := fit()) is None:
        return ""
    rivals = rows != verdict.row
    if against is not None and not verdict.sure and verdict.row != against.control:
        rivals = rows == against.control
    sign = 1.0 if direction == "maximize" else -1.0
    return found.doubt(verdict.names, verdict.row, rivals, verdict.gaps, verdict.level, sign)
