"""The appendix of a report on a live test: method, assumptions, and how to check it, in words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from steadyarm import __version__
from steadyarm.files import toml_of
from steadyarm.live.lifecycle import description_of
from steadyarm.live.replay import Replay
from steadyarm.live.scorecard import Scorecard
from steadyarm.live.settings import Settings
from steadyarm.live.verdict import Verdict
from steadyarm.policies import Policy
from steadyarm.reports.document import Block, Code, Heading, Items, Note, Paragraph
from steadyarm.wording import counted, number, percent, span

LONGEST = 16_000  # characters of a description that is printed
# Each policy in a few words, and in a paragraph.
POLICIES = {
    "Steady": (
        "more visits where it counts, some for all",
        "Variants are assigned in shuffled blocks that hold each of them in fixed numbers. A "
        "part of the visits is always spread so that every variant can be compared whatever "
        "happens; the rest goes where the comparison for the first place is still open. No "
        "variant is ever dropped for good.",
    ),
    "Uniform": (
        "equal shares throughout",
        "Every variant gets the same share from the first visit to the last.",
    ),
    "G-BAI": (
        "fixed shares, the best against any drift",
        "Shares are fixed before the first visit so that the worst-known variant is known as "
        "well as possible. Rewards do not change them.",
    ),
    "P1-RAGE": (
        "half fixed shares, half for variants that may win",
        "One half of the visits follows fixed shares; the other half goes to the variants that "
        "would matter in a run of RAGE on what is known so far.",
    ),
    "P1-Peace": (
        "half fixed shares, half for variants that may win",
        "One half of the visits follows fixed shares; the other half goes to the variants that "
        "would matter in a run of Peace on what is known so far.",
    ),
    "Mixed-Peace": (
        "half fixed shares, half for those not dropped",
        "One half of the visits follows fixed shares; the other half goes to the variants that "
        "were not dropped yet. Dropped ones can still win.",
    ),
    "Peace": (
        "drops variants from time to time",
        "The test runs in epochs. After each, variants that seem to be behind are dropped for "
        "good.",
    ),
    "OD-LinBAI": (
        "drops about half of the variants each time",
        "The test runs in epochs. After each, about half of the variants are dropped for good.",
    ),
    "Sequential-Halving": (
        "drops half of the variants each time",
        "The test runs in epochs of equal shares. After each, the worse half is dropped for good.",
    ),
    "P1": (
        "more visits for better ranks",
        "Variants are ranked by what is known so far; the one of rank k gets a share "
        "proportional to 1/k.",
    ),
    "Adjacent-BAI": (
        "fixed numbers of visits, for comparing neighbours",
        "Numbers of visits are fixed beforehand, for comparing variants that differ in little, "
        "and assigned in one random order.",
    ),
    "Linear-Thompson": (
        "visits by the chance to be the best",
        "Every variant is assigned with the probability that it is the best, as far as is "
        "known. Variants that are behind are hardly measured any more.",
    ),
    "Top-Two-Thompson": (
        "visits for the leader and its challengers",
        "Visits are shared between the likely best variant and its challengers.",
    ),
}
OWN = "a policy of your own"
UNBIASED = (
    "The chances of all variants are on record for every visit, so estimates are right on average "
    "however rewards drift."
)
EPOCHS = (
    "It leaves variants out on the way, so its estimates are right only if nothing drifts during "
    "the test."
)
TRUSTING = (
    "It does not keep a chance for every variant at every visit, and its estimates trust that "
    "nothing drifts during the test."
)
WEIGHTED = (
    "Estimates are of the reward on average over the whole test: every reward is weighted by one "
    "over the probability with which its variant was drawn, so that neither changing shares nor "
    "drift distort the comparison."
)
LAST_EPOCH = "Estimates come from the rewards of the last epoch alone."
ALL_ALIKE = "Estimates take all rewards alike, whenever they came, so drift can distort them."
VARIANCES = {
    "rounds": "the scatter of single rewards",
    "lists": "the scatter of rewards of the same variant within blocks",
    "differences": "the differences between neighbouring blocks",
}
MISSING = {
    "zero": "A reward that never came counts as zero.",
    "drop": "A reward that never came counts as the mean of its variant's rewards around it; that "
    "is right if rewards are lost regardless of their value.",
    "fail": "There is no verdict while a reward is missing.",
}


@dataclass(frozen=True)
class Fingerprint:
    """SHA-256 of an exported log, and how many rows it has."""

    sha256: str
    rows: int


def fingerprint_of(lines: Iterable[str]) -> Fingerprint:
    r"""The fingerprint of a log, from the text of its CSV file, a part at a time.

    Examples
    --------
    >>> fingerprint_of(["unit,arm\r\n", "v1,A\r\nv2,B\r\n"]).rows
    2
    """
    digest, ends = hashlib.sha256(), 0
    for text in lines:
        digest.update(text.encode())
        ends += text.count("\r\n")
    return Fingerprint(digest.hexdigest(), ends - 1)


def appendix(
    card: Scorecard, fingerprint: Fingerprint | None, replayed: Replay | None
) -> Iterator[Block]:
    """What somebody needs who wants to check the report."""
    settings = card.settings
    yield Heading("Appendix: method, assumptions, checks", appendix=True)
    yield Heading("How variants were chosen", 3)
    yield Items(policy_in_words(settings))
    yield Heading("Which rewards count", 3)
    yield Items(rewards_in_words(settings))
    yield Heading("Estimates and intervals", 3)
    if card.verdict is None:
        yield Paragraph(f"There are none yet: {card.obstacle}")
    else:
        yield Items((estimates_in_words(settings.policy), *intervals_in_words(card.verdict)))
    yield Heading("Settings", 3)
    text = toml_of({"name": card.name, **description_of(settings)}).strip()
    if len(text) > LONGEST:
        yield Paragraph(
            f"They take {counted(len(text), 'character')} and are not printed; the file that an "
            "export writes beside the log has them."
        )
    else:
        yield Paragraph(
            "With this file steadyarm experiment create makes the same test again. "
            f"SteadyArm {__version__}; times are in UTC."
        )
        yield Code(text, "toml")
    yield from _fingerprint(card, fingerprint)
    yield from _replay(card, replayed)


def _fingerprint(card: Scorecard, found: Fingerprint | None) -> Iterator[Block]:
    yield Heading("The log's fingerprint", 3)
    if found is None:
        yield Paragraph("It was left out of this report. These commands give it:")
    else:
        ends = (
            "It stays the same as long as no further reward is recorded."
            if card.ended
            else "The test has not ended, so it changes with every further visit and reward."
        )
        yield Paragraph(
            f"SHA-256 of the log as a CSV file, {counted(found.rows, 'row')}. Anybody with access "
            f"to the storage can check it with the commands below. {ends}"
        )
        yield Code(found.sha256, "text")
    file = f"{card.name}.csv"
    yield Code(f"steadyarm experiment export {card.name} {file}\nsha256sum {file}")


def _replay(card: Scorecard, found: Replay | None) -> Iterator[Block]:
    yield Heading("The replay check", 3)
    if found is None:
        yield Paragraph("It was left out of this report. This command makes it:")
    else:
        what = (
            f"{counted(found.assignments, 'assignment')}, {counted(found.rewards, 'reward')} and "
            f"{counted(found.segments, 'segment')} were computed anew from the log"
        )
        if found.agrees:
            yield Note(f"{what}; all agree to the bit.", "ok")
        else:
            yield Note(f"{what}, and they do not agree with what is stored:", "fail")
            yield Items(found.differences)
    yield Code(f"steadyarm experiment replay {card.name}")


def in_short(policy: Policy[Any]) -> str:
    """The policy in a few words."""
    short, _ = POLICIES.get(policy.name, (OWN, ""))
    return f"{policy.name} ({short})"


def policy_in_words(settings: Settings) -> tuple[str, ...]:
    """How variants were chosen."""
    policy = settings.policy
    _, long = POLICIES.get(policy.name, ("", f"Variants are chosen by {OWN}, {policy.name}."))
    said = [long]
    said.append(UNBIASED if policy.unbiased else EPOCHS if policy.waits else TRUSTING)
    if settings.control is not None:
        share = settings.control_share
        always = "" if share is None else f" and always gets {percent(share)}"
        said.append(f"{settings.control} is the control{always}.")
    floors = settings.min_share
    if floors and len(set(floors.values())) == 1 and len(floors) > 3:
        share = next(iter(floors.values()))
        said.append(f"{len(floors):,} variants get at least {percent(share)} each.")
    else:
        said += [f"{name} gets at least {percent(share)}." for name, share in floors.items()]
    units = (
        "A unit, such as a visitor, keeps the variant that it got first."
        if settings.sticky == "unit"
        else "Every request is drawn anew, for the same unit, too."
    )
    draws = (
        f"Which variant comes at which place follows from the seed, {settings.seed}; anybody can "
        "compute it again."
    )
    return (*said, units, draws)


def estimates_in_words(policy: Policy[Any]) -> str:
    """What estimates are made of."""
    return WEIGHTED if policy.unbiased else LAST_EPOCH if policy.waits else ALL_ALIKE


def in_the_way(policy: Policy[Any]) -> str:
    """Why a policy that is not unbiased allows no estimates but its own; begins a sentence.

    Examples
    --------
    >>> import steadyarm as sa
    >>> in_the_way(sa.Peace())
    'Peace leaves variants out on the way'
    >>> in_the_way(sa.LinearThompson())
    'Linear-Thompson does not give every variant a chance at every visit'
    """
    if policy.waits:
        return f"{policy.name} leaves variants out on the way"
    return f"{policy.name} does not give every variant a chance at every visit"


def rewards_in_words(settings: Settings) -> tuple[str, ...]:
    """Which rewards count, and as what."""
    good = "Larger" if settings.direction == "maximize" else "Smaller"
    window = "Rewards count whenever they come."
    if settings.reward_window is not None:
        grace = settings.reward_grace
        arriving = f"and arrive at most {span(grace)} after that" if grace else "and arrive by then"
        window = (
            f"Rewards count if they happen within {span(settings.reward_window)} {arriving}; later "
            "ones are refused."
        )
    if settings.reward_window is not None and settings.missing == "fail":
        window = (
            f"Rewards are expected within {span(settings.reward_window)}; later ones count, too."
        )
    ends = (
        "No range of possible rewards was declared."
        if settings.reward_range is None
        else f"Rewards lie between {number(settings.reward_range[0])} and "
        f"{number(settings.reward_range[1])}; others are refused."
    )
    return (f"{good} rewards are better.", window, MISSING[settings.missing], ends)


def intervals_in_words(verdict: Verdict) -> tuple[str, ...]:
    """What intervals promise, and what must be true for it."""
    looks = (
        "They hold at all times at once, so the test may be watched and stopped at any time."
        if verdict.anytime
        else "They hold at the end of the test, together with all verdicts before it."
    )
    if verdict.stopping is not None and verdict.method.startswith("group-sequential"):
        looks = "They hold at all looks at once, so the test may be stopped at any of them."
    method = verdict.method.rpartition(", ")[2]
    kind = {
        "group-sequential": "Repeated confidence intervals for large samples",
        "asymptotic": "Confidence sequences for large samples",
        "empirical Bernstein": "Confidence sequences for tests of any size, as rewards have a "
        "declared range",
    }.get(verdict.method.partition(",")[0], "Intervals for large samples")
    source = (
        f"; their width comes from {VARIANCES[method]}" if method in VARIANCES else (f": {method}")
    )
    return (
        f"Intervals hold for all variants at once with probability {percent(verdict.level)}; so "
        "does the list of variants that are not ruled out. It follows from the intervals of "
        f"distances from the leader, so those of variants may overlap. {looks}",
        f"{kind}{source}. What must be true: {verdict.assumption}",
    )
