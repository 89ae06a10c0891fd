"""What units outside of a test see: the default after its end, and roll-outs.

A test is over when it is stopped or its budget is spent. Its units keep their variants. Later
units see the default: the recommended variant if the decision is clear, else the control, and
without a control the leader. The default is chosen once, when the first such unit comes after the
last planned analysis, and stored. Late rewards may change the leader, but not the default. Only an
operator changes it, with a roll-out. Until that analysis new units see the control; without a
control the default is chosen immediately.

Who belongs to a share of a roll-out is a pure function of the experiment's seed and the unit
(`place_of_unit`), so that all processes agree, and shares that grow keep their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from random import random
from typing import TYPE_CHECKING, Any

from steadyarm.errors import InvalidInputError, RewardsPendingError, SteadyArmError, WrongStateError
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import ITSELF
from steadyarm.live.verdict import Verdict
from steadyarm.storages.records import ExperimentState, to_datetime
from steadyarm.validation import finite_number
from steadyarm.wording import percent, strung, when

if TYPE_CHECKING:
    from steadyarm.live.experiment import Experiment

DEFAULT_CHOSEN = "experiment.default"  # entries of the audit log
ROLLED_OUT = "experiment.rolled_out"
LONGEST_REASON = 1000  # characters
WAS_OPEN = "The test had no decision when the first of them came."


def place_of_unit(seed: int | str, unit: str) -> float:
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
    share : the share of all units that it reaches, from 0 to 1
    since : when it began, in microseconds since 1970
    """

    variant: str
    share: float
    since: int


@dataclass(frozen=True)
class AfterTest:
    """The choice of what units outside of a test see; storages store it as plain values.

    Attributes
    ----------
    default : the variant that units without one see; None before the first such unit
    reason : why it was chosen, in a sentence
    since : when, in microseconds since 1970; None before
    roll_out : the variant that is rolled out; None for none
    """

    default: str | None = None
    reason: str = ""
    since: int | None = None
    roll_out: RollOut | None = None

    def variant_for(self, seed: int, unit: str) -> str | None:
        """The variant that the roll-out shows to the unit; None if it does not reach it.

        Examples
        --------
        >>> half = AfterTest(roll_out=RollOut("B", 0.5, 7))
        >>> half.variant_for(1, "visitor 1"), half.variant_for(2, "visitor 1")
        (None, 'B')
        """
        shown = self.roll_out
        reached = shown is not None and place_of_unit(seed, unit) < shown.share
        return shown.variant if shown is not None and reached else None

    def to_dict(self) -> dict[str, Any]:
        """Numbers and texts only."""
        return asdict(self)

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> AfterTest | None:
        """What `to_dict` wrote; None for None."""
        if stored is None:
            return None
        roll_out = stored["roll_out"]
        return cls(**dict(stored) | {"roll_out": None if roll_out is None else RollOut(**roll_out)})


def outside_texts(outside: AfterTest | None) -> list[str]:
    """Describe in sentences what units outside of the test see.

    Examples
    --------
    >>> outside_texts(AfterTest("A", "It is the control.", 0))
    ['New visitors see the variant A, outside of the test. It is the control.']
    >>> outside_texts(AfterTest(roll_out=RollOut("B", 0.1, 0)))
    ['B is rolled out to 10 % of all visitors since 1970-01-01 00:00 UTC.']
    """
    if outside is None:
        return []
    texts, shown = [], outside.roll_out
    if shown is not None:
        since = when(to_datetime(shown.since))
        texts.append(
            f"{shown.variant} is rolled out to {percent(shown.share)} of all visitors since "
            f"{since}."
        )
    if outside.default is not None and (shown is None or shown.share < 1):
        who = "New visitors" if shown is None else "Other new visitors"
        texts.append(
            f"{who} see the variant {outside.default}, outside of the test. {outside.reason}"
        )
    return texts


# The default


def choose_default(experiment: Experiment, outside: AfterTest | None) -> AfterTest | None:
    """Choose and store what units see after the test; another process may have been faster.

    None, and nothing is stored, if rewards may still decide and there is a control to be shown.

    outside : what is shown outside of the test so far
    """
    default, reason, undecided = current_default(experiment)
    if undecided and outside is None and experiment.settings.control is not None:
        return None
    while outside is None or outside.default is None:
        now = experiment.now()
        chosen = replace(outside or AfterTest(), default=default, reason=reason, since=now)
        if experiment.storage.show_outside(
            experiment.key,
            None if outside is None else outside.to_dict(),
            chosen.to_dict(),
            DEFAULT_CHOSEN,
            now,
            by=ITSELF,
            detail={"variant": default, "reason": reason},
        ):
            return chosen
        outside = AfterTest.read(experiment.storage.find_assignments(experiment.key, []).outside)
    return outside


def current_default(experiment: Experiment) -> tuple[str, str, bool]:
    """The variant to show after the test on what is known now, why, and whether that may change."""
    verdict: Verdict | SteadyArmError
    try:
        verdict = experiment.recommend()
        undecided = verdict.decision.word == "running"
    except SteadyArmError as error:
        verdict, undecided = error, isinstance(error, RewardsPendingError)
    return *select_default(experiment.settings, verdict), undecided


def select_default(settings: Settings, verdict: Verdict | SteadyArmError) -> tuple[str, str]:
    """The variant to show after the test to units that have none, and why.

    verdict : on what is known now, or why there is none
    """
    control = settings.control
    if isinstance(verdict, Verdict):
        decision = verdict.decision
        if decision.word in ("ship", "keep") and decision.variant is not None:
            return decision.variant, decision.text
        if control is None:
            return verdict.name, f"It led, and there is no control. {WAS_OPEN}"
    elif control is None:
        return settings.arms.names[0], f"It is the first, and there is no control. {WAS_OPEN}"
    return control, f"It is the control. {WAS_OPEN}"


# Roll-outs


def roll_out(
    experiment: Experiment,
    variant: str | None,
    share: float,
    stop: bool,
    change: bool,
    by: str,
    reason: str,
) -> RollOut:
    """Roll out a variant; see `Experiment.roll_out`."""
    check_share(share)
    validate_reason(reason)
    names = experiment.arms.names
    if variant is not None and variant not in names:
        raise InvalidInputError(
            f"variant is {variant!r}; expected one of: {strung(names, 8)}.",
            field="variant",
        )
    storage, key = experiment.storage, experiment.key
    while True:
        # All that may be refused comes first: then the test still runs as it did.
        head = storage.find_assignments(key, [])
        stored = AfterTest.read(head.outside)
        _check_over(experiment, head.state, stored, stop)
        outside = stored or AfterTest()
        before = outside.roll_out
        chosen = variant or _variant_to_roll_out(experiment, outside)
        new = RollOut(chosen, float(share), experiment.now())
        _check_change(before, new, change)
        if before is not None and (before.variant, before.share) == (chosen, new.share):
            return before
        if stop and head.state in ("running", "paused"):
            experiment.stop(by)
        now = experiment.now()
        control = experiment.settings.control
        if control is not None:
            outside = replace(outside, default=control, reason="It is the control.", since=now)
        elif outside.default is None:
            default, why, _ = current_default(experiment)
            outside = replace(outside, default=default, reason=why, since=now)
        detail: dict[str, Any] = {"variant": chosen, "share": new.share, "reason": reason}
        if before is not None:
            detail["before"] = {"variant": before.variant, "share": before.share}
        after = replace(outside, roll_out=new).to_dict()
        if storage.show_outside(key, head.outside, after, ROLLED_OUT, now, by=by, detail=detail):
            return new


def _check_over(
    experiment: Experiment, state: ExperimentState, outside: AfterTest | None, stop: bool
) -> None:
    """Refuse a roll-out of a test that is not over."""
    name = experiment.name
    if state == "draft":
        raise WrongStateError(
            f"the experiment {name!r} is a draft and has no result to roll out; start it first."
        )
    if state in ("stopped", "archived") or stop or outside is not None:
        return
    if experiment.status().total_assigned < experiment.budget:
        raise WrongStateError(
            f"the experiment {name!r} is {state}, and a roll-out ends the test; confirm with "
            "stop=True (--stop on the command line)."
        )


def _variant_to_roll_out(experiment: Experiment, outside: AfterTest) -> str:
    """The variant to roll out where none is named."""
    if outside.roll_out is not None:
        return outside.roll_out.variant
    decision = experiment.recommend().decision
    if decision.word in ("ship", "keep") and decision.variant is not None:
        return decision.variant
    raise WrongStateError(
        f"nothing is clear enough to be rolled out by itself ({decision.text.rstrip('.')}); "
        "name the variant."
    )


def _check_change(before: RollOut | None, new: RollOut, change: bool) -> None:
    """Refuse a roll-out that takes something away from units, unless `change` allows it."""
    if before is None or change:
        return
    if before.variant != new.variant:
        raise InvalidInputError(
            f"{before.variant!r} is rolled out to {percent(before.share)} of units; confirm with "
            f"change=True (--change on the command line) to replace it by {new.variant!r}.",
            field="variant",
        )
    if new.share < before.share:
        raise InvalidInputError(
            f"{before.variant!r} is rolled out to {percent(before.share)} of units, and "
            f"{percent(new.share)} takes it away from some of them; confirm with change=True "
            "(--change on the command line).",
            field="share",
        )


def validate_reason(reason: Any) -> str:
    """A sentence for the audit log."""
    if isinstance(reason, str) and len(reason) <= LONGEST_REASON and "\0" not in reason:
        return reason
    raise InvalidInputError.of("reason", reason, f"a text of up to {LONGEST_REASON} characters")


def check_share(share: Any) -> None:
    """Refuse a share of all units that is not a number from 0 to 1."""
    if not 0 <= finite_number(share, "share") <= 1:
        raise InvalidInputError.of("share", share, "a number from 0 to 1")
