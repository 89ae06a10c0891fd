"""Evidence from sums by period and arm, for separate arms: a row needs only its own probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.health import Finding, Status
from steadyarm.inference.logged import LoggedSegment
from steadyarm.inference.srm import ALARM, NOTICE, srm_from_sums
from steadyarm.segments import Direction, Segment

__all__ = ["Tally", "assignment_finding", "logged_segments", "tally_evidence", "tally_rows"]

Floats = NDArray[np.float64]
SUMS = ("s", "ss", "i0", "i02", "i1", "i2", "w", "w2", "ww")


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums (J, K) by bucket and arm, named as `propensity_sums` does.

    Attributes
    ----------
    buckets : (J,) in order of time
    n, m : (J, K) rows, and rows with a reward
    sums : the other sums by name
    least : (K,) least probability of each arm
    """

    buckets: list[Any]
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    sums: dict[str, Floats]
    least: Floats


def tally_rows(rows: list[dict[str, Any]], names: Sequence[str]) -> Tally:
    """Arrays of what a database returned: several rows of a bucket and arm, or none, are fine."""
    buckets = sorted({row["bucket"] for row in rows})
    place = {bucket: j for j, bucket in enumerate(buckets)}
    arm = {name: k for k, name in enumerate(names)}
    shape = (len(buckets), len(names))
    n, m = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    sums = {name: np.zeros(shape) for name in SUMS}
    least = np.ones(len(names))
    for row in rows:
        where = place[row["bucket"]], arm[row["arm"]]
        n[where] += int(row["n"])
        m[where] += int(row["m"])
        for name in SUMS:
            sums[name][where] += float(row[name] or 0.0)
        least[where[1]] = min(least[where[1]], float(row["least"]))
    return Tally(buckets, n, m, sums, least)


def tally_evidence(
    arms: ArmSet,
    tally: Tally,
    period: NDArray[np.int64],
    direction: Direction,
    reference: bool,
) -> Evidence:
    """Scores and their squares, by period.

    A row of arm k has the score v + e_k (r - v_k) / p. Its reference v is the mean reward of each
    arm in earlier buckets, fixed before the row's arm was drawn, so scores stay unbiased. In the
    first bucket it is the mean of all rewards of that bucket, which moves the result by about one
    row's share in all rows.
    """
    J, K = int(period.max()) + 1, arms.size
    rounds, scores = np.zeros((1, J), dtype=np.int64), np.zeros((1, J, K))
    squares = np.zeros((1, J, K, K))
    seen, total = np.zeros(K), np.zeros(K)
    for j, piece in enumerate(period):
        m, s = tally.m[j], tally.sums["s"][j]
        before = (seen.sum(), total.sum()) if seen.any() else (m.sum(), s.sum())
        common = before[1] / max(before[0], 1)
        v = np.where(seen > 0, total / np.maximum(seen, 1), common) if reference else np.zeros(K)
        i1, i2, w, w2, ww = (tally.sums[name][j] for name in ("i1", "i2", "w", "w2", "ww"))
        c = w - v * i1
        count = int(m.sum())
        rounds[0, piece] += count
        scores[0, piece] += count * v + c
        mixed = np.outer(v, c)
        level = count * np.outer(v, v) + mixed + mixed.T
        squares[0, piece] += level + np.diag(np.maximum(ww - 2 * v * w2 + v**2 * i2, 0.0))
        seen, total = seen + m, total + s
    return Evidence(arms, rounds, scores, squares, direction=direction)


def logged_segments(
    tally: Tally, period: NDArray[np.int64], count_missing: bool
) -> list[LoggedSegment]:
    """Rows and rewards by period. Allocations are not known: shares of the rows stand for them."""
    pieces = []
    for j in range(int(period.max()) + 1):
        n, m = tally.n[period == j].sum(axis=0), tally.m[period == j].sum(axis=0)
        segment = Segment((n / max(n.sum(), 1))[None], np.array([n.sum()]))
        pieces.append(LoggedSegment(segment, n[None], None, (m if count_missing else n)[None]))
    return pieces


def assignment_finding(names: Sequence[str], tally: Tally, of: str = "visits") -> Finding:
    """Whether the rows of each arm, each standing for 1/p, stand for all rows.

    of : what rows are, for people
    """
    sums, squares = tally.sums["i0"].sum(axis=0), tally.sums["i02"].sum(axis=0)
    counts = tally.n.sum(axis=0)
    found = srm_from_sums(
        names, int(counts.sum()), sums, squares - sums, 1 / tally.least, counts, of
    )
    status: Status = "fail" if found.p_value < ALARM else "warn" if found.p_value < NOTICE else "ok"
    if status == "ok":
        unseen = not (sums > 0).all()
        return Finding("assignments", "warn" if unseen else "ok", found.p_value, found.verdict)
    return Finding(
        "assignments",
        status,
        found.p_value,
        found.verdict,
        f"Compare serving and logging of {found.culprit} with the others (redirects, bots, "
        "crashes, filters), and see whether the logged probabilities are those that were used.",
    )
