"""Who comes first, and where each variant stands; the same on pages and in reports."""

from __future__ import annotations

from typing import Literal

import numpy as np

from steadyarm.looks.look import Look
from steadyarm.verdict import Verdict

__all__ = ["Standing", "order_of", "standing_of"]

Standing = Literal["best", "leads", "ahead", "open", "maybe", "out", "dropped", "unknown"]


def order_of(look: Look) -> list[int]:
    """Variants from the best to the worst: the recommended one, then by their estimates.

    They are told by their rows: of a large set those that are shown have one. Those without an
    estimate come last; without a verdict variants stay as they were given.
    """
    if look.verdict is None:
        return list(range(len(look.names)))
    sign = 1.0 if look.settings.direction == "maximize" else -1.0
    order = np.argsort(-sign * look.verdict.estimates, kind="stable").tolist()  # nan goes last
    order.remove(look.verdict.row)  # first even where its estimate is not
    return [look.verdict.row, *order]


def standing_of(look: Look, k: int) -> Standing:
    """Where a variant stands; a test whose last rewards may still come counts as running.

    best : recommended at the end, with all others that were measured ruled out
    leads : recommended while the test runs
    ahead : recommended at the end, but others are not ruled out
    open, maybe : not ruled out, while the test runs and at its end
    out : ruled out
    dropped : the policy stopped measuring it
    unknown : there is no verdict
    """
    verdict = look.verdict
    if verdict is None:
        return "unknown"
    # Reports call variants by their short names.
    names = look.names if verdict.name == look.names[verdict.row] else look.labels
    if k == verdict.row:
        if not look.settled:
            return "leads"
        others = {names[j] for j in range(len(names)) if j != k and not _dropped(look, verdict, j)}
        alone = bool(others) and others.isdisjoint(verdict.plausible) and not verdict.others
        good = look.light != "fail" and not verdict.caution
        return "best" if alone and good else "ahead"
    if _dropped(look, verdict, k):
        return "dropped"
    if names[k] not in verdict.plausible:
        return "out"
    return "maybe" if look.settled else "open"


def _dropped(look: Look, verdict: Verdict, k: int) -> bool:
    """Whether a variant has no estimate; one that is still handed out merely has no reward yet."""
    planned = look.planned is not None and bool(look.planned[k] > 0)
    return bool(np.isnan(verdict.estimates[k])) and not planned
