"""What units outside of the test see: the default after its end, and roll-outs.

A test is over when it is stopped or its budget is spent. Its units keep their variants. Whoever
comes later sees the default: the recommended variant if the decision is clear, else the control,
and without a control the leader. The default is chosen once, when the first such unit comes, and
stored: a late reward may change the leader, but not what somebody was shown. Only an operator
changes that, with a roll-out.

Who belongs to a share of a roll-out is a pure function of the experiment's seed and the unit
(`place_of_unit`), so that all processes agree, and shares that grow keep their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import random
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import to_datetime
from steadyarm.validation import finite_number
from steadyarm.wording import percent, when

DEFAULT_CHOSEN = "experiment.default"  # entries of the audit log
ROLLED_OUT = "experiment.rolled_out"
LONGEST_REASON = 1000  # characters


def place_of_unit(seed: int, unit: str) -> float:
    """Where a unit stands among all units of an experiment, from 0 to below 1.

    A request without a unit stands anywhere, anew each time.

    Examples
    --------
    >>> place_of_unit(1, "visitor 1") == place_of_unit(1, "visitor 1")
    True
    >>> round(place_of_unit(1, "visitor 1"), 4), round(place_of_unit(2, "visitor 1"), 4)
    (0.5282, 0.469)
    """
    if not unit:
        return random()
    hashed = blake2b(f"{seed}\0{unit}".encode(), digest_size=8).digest()
    return (int.from_bytes(hashed, "big") >> 11) / 2**53


@dataclass(frozen=True)
class RollOut:
    """A variant that units get outside of the test.

    Attributes
    ----------
    variant : its name
    share : of all units that it reaches, from 0 to 1
    since : when it began, in microseconds since 1970
    holdback : share of those that keep the control, so that the lasting effect can be seen
    follow_up : name of the experiment in the same storage that says who keeps it, and what they
        bring; None without a holdback
    """

    variant: str
    share: float
    since: int
    holdback: float = 0.0
    follow_up: str | None = None


@dataclass(frozen=True)
class Outside:
    """What an experiment shows outside of its test; storages keep it as plain values.

    Attributes
    ----------
    default : the variant that units without one see; None before the first such unit
    reason : why it was chosen, in a sentence
    since : when, in microseconds since 1970; None before
    spent : whether the test was over because its budget was spent
    roll_outs : the newest first; units that it does not reach see what they saw before
    follow_ups : names of all follow-ups there have been, also of roll-outs that have ended: rewards
        of units that they follow may still come
    """

    default: str | None = None
    reason: str = ""
    since: int | None = None
    spent: bool = False
    roll_outs: tuple[RollOut, ...] = ()
    follow_ups: tuple[str, ...] = ()

    @property
    def roll_out(self) -> RollOut | None:
        """The newest roll-out."""
        return self.roll_outs[0] if self.roll_outs else None

    def rolled(self, seed: int, unit: str) -> RollOut | None:
        """The roll-out that reaches the unit; None if none does.

        Examples
        --------
        >>> both = Outside(roll_outs=(RollOut("B", 0.5, 7), RollOut("A", 1.0, 3)))
        >>> both.rolled(1, "visitor 1").variant, both.rolled(2, "visitor 1").variant
        ('A', 'B')
        """
        if not self.roll_outs:
            return None
        place = place_of_unit(seed, unit)
        return next((one for one in self.roll_outs if place < one.share), None)

    def after(self, new: RollOut) -> Outside:
        """The same after a further roll-out: of the same variant, or in front of those before."""
        before = list(self.roll_outs)
        if before and before[0].variant == new.variant:
            before.pop(0)
        # what newer roll-outs cover as a whole is shown to nobody
        kept = [one for one in before if one.share > new.share]
        known = dict.fromkeys([*self.follow_ups, new.follow_up])
        follow_ups = tuple(name for name in known if name is not None)
        return replace(self, roll_outs=(new, *kept), follow_ups=follow_ups)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only."""
        lists = {"follow_ups": list(self.follow_ups)}
        return vars(self) | lists | {"roll_outs": [vars(one).copy() for one in self.roll_outs]}

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> Outside | None:
        """What `to_dict` wrote; None for None."""
        if stored is None:
            return None
        roll_outs = tuple(RollOut(**one) for one in stored["roll_outs"])
        # What was stored before there were `follow_ups` names those of its roll-outs.
        current = [one.follow_up for one in reversed(roll_outs) if one.follow_up is not None]
        follow_ups = tuple(stored.get("follow_ups", current))
        return cls(**dict(stored) | {"roll_outs": roll_outs, "follow_ups": follow_ups})


def outside_texts(outside: Outside | None) -> list[str]:
    """What is shown outside of the test, in sentences.

    Examples
    --------
    >>> outside_texts(Outside("A", "It is the control.", 0))
    ['New visitors see A, outside of the test. It is the control.']
    >>> outside_texts(Outside(roll_outs=(RollOut("B", 0.1, 0), RollOut("C", 1.0, 0))))[1]
    'C was rolled out before, at 1970-01-01 00:00 UTC, and is still shown to 90 % of all visitors.'
    """
    if outside is None:
        return []
    found, reached = [], 0.0
    for one in outside.roll_outs:
        whom, since = (
            f"{percent(one.share - reached)} of all visitors",
            when(to_datetime(one.since)),
        )
        said = f"is rolled out to {whom} since {since}{_held_back(one)}"
        if reached:
            said = f"was rolled out before, at {since}, and is still shown to {whom}"
        found.append(f"{one.variant} {said}.")
        reached = one.share
    everybody = reached >= 1
    if outside.default is not None and not everybody:
        who = "Other new visitors" if found else "New visitors"
        found.append(f"{who} see {outside.default}, outside of the test. {outside.reason}")
    return found


def _held_back(one: RollOut) -> str:
    if one.follow_up is None:
        return ""
    return f"; {percent(one.holdback)} of them keep the control, see {one.follow_up}"


def check_change(outside: Outside, new: RollOut, change: bool) -> None:
    """Refuse a roll-out that takes something away from units, unless the operator says so.

    change : whether that was said
    """
    before = outside.roll_out
    if before is None or change:
        return
    if before.variant != new.variant:
        raise InvalidInputError(
            f"{before.variant!r} is rolled out to {percent(before.share)} of units; to roll out "
            f"{new.variant!r} in its place, say so: change=True, on the command line --change.",
            field="variant",
        )
    if new.share < before.share:
        raise InvalidInputError(
            f"{before.variant!r} is rolled out to {percent(before.share)} of units, and a share of "
            f"{percent(new.share)} takes it away from some, who then see what they saw before; if "
            "you want that, say so: change=True, on the command line --change.",
            field="share",
        )
    if new.holdback != before.holdback:
        raise InvalidInputError(
            f"{percent(before.holdback)} of those units are held back, and {percent(new.holdback)} "
            "would be others; if you want that, say so: change=True, on the command line --change.",
            field="holdback",
        )


def checked_reason(reason: Any) -> str:
    """A sentence for the audit log."""
    if isinstance(reason, str) and len(reason) <= LONGEST_REASON and "\0" not in reason:
        return reason
    raise InvalidInputError.of("reason", reason, f"a text of up to {LONGEST_REASON} characters")


def checked_share(share: Any, what: str = "share") -> float:
    """A share of all units, from 0 to 1."""
    value = finite_number(share, what)
    if not 0 <= value <= 1:
        raise InvalidInputError.of(what, share, "a number from 0 to 1")
    return value
