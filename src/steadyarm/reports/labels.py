"""Short names of variants throughout a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steadyarm.inference import DriftReport, Otherwise
from steadyarm.looks.look import Look
from steadyarm.verdict import Verdict

__all__ = ["labelled", "labelled_otherwise"]


def labelled(look: Look) -> Look:
    """The same look with the short names of its variants; the settings keep the whole ones."""
    labels = look.labels
    if look.settings.arms.large or labels == look.names:
        return look
    short = dict(zip(look.names, labels, strict=True))
    return replace(
        look,
        verdict=None if look.verdict is None else _verdict(look.verdict, short),
        course=None if look.course is None else replace(look.course, names=labels),
        shares=None if look.shares is None else replace(look.shares, names=labels),
        drift=None if look.drift is None else _drift(look.drift, short),
    )


def labelled_otherwise(other: Otherwise, look: Look) -> Otherwise:
    """What would have been concluded otherwise, with the same names."""
    if look.settings.arms.large:
        return other
    short = dict(zip(look.names, look.labels, strict=True))
    return replace(
        other,
        names=look.labels,
        best=short[other.best],
        raw=None if other.raw is None else replace(other.raw, leader=short[other.raw.leader]),
        early=tuple(replace(early, leader=short[early.leader]) for early in other.early),
        dropped=tuple(
            replace(drop, names=tuple(short[name] for name in drop.names)) for drop in other.dropped
        ),
        winner=short[other.winner],
    )


def _verdict(verdict: Verdict, short: Mapping[str, str]) -> Verdict:
    plausible = tuple(short[name] for name in verdict.plausible)
    names = tuple(short[name] for name in verdict.names)
    return replace(verdict, name=short[verdict.name], names=names, plausible=plausible)


def _drift(drift: DriftReport, short: Mapping[str, str]) -> DriftReport:
    return replace(
        drift,
        names=tuple(short[name] for name in drift.names),
        best=short[drift.best],
        leaders=tuple(short[name] for name in drift.leaders),
    )
