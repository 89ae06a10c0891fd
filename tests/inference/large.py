"""Tests with pieces of few of many arms, for what large sets are tested with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import steadyarm as sa
from steadyarm.segments import Order, Segment, SegmentStats, columns_between

SMALL = sa.ArmSet.factorial({f"s{i}": ["off", "on"] for i in range(6)})  # 64 arms, rank 22
LARGE = sa.ArmSet.factorial({f"s{i}": ["off", "on"] for i in range(13)})  # 8,192 arms, rank 92
Log = list[tuple[Segment, SegmentStats]]


def effects(arms: sa.ArmSet, seed: int = 5) -> np.ndarray:
    theta = np.random.default_rng(seed).normal(size=arms.rank) * 0.02
    theta[0] = 0.4
    return theta


def played(
    arms: sa.ArmSet,
    pieces: int = 12,
    columns: int = 40,
    blocks: int = 4,
    order: Order = "iid",
    seed: int = 1,
    move: float = 0.0,
    reference: bool = True,
) -> Log:
    """A test whose pieces play different arms; successes and failures."""
    rng, theta, log = np.random.default_rng(seed), effects(arms), []
    for j in range(pieces):
        if j % 3 == 0:
            chosen = np.sort(rng.choice(arms.size, columns, replace=False))
            X = arms.coordinates_of(chosen)
            counts = rng.integers(1, 4, columns)
        w = counts / counts.sum()
        b = int(counts.sum())
        segment = Segment(
            w[None],
            np.array([blocks * b]),
            order,
            b if order == "blocks" else 1,
            0.9 * theta[None] if reference and j % 2 else None,
            chosen,
        )
        at = columns_between(segment, seed, j, 0, blocks * b)
        shifted = theta.copy()
        shifted[1] += move * (j >= pieces / 2)
        wins = (rng.random(at.size) < np.clip(X @ shifted, 0, 1)[at]).astype(float)
        n, s = np.bincount(at, minlength=columns), np.bincount(at, wins, columns).astype(float)
        log.append((segment, SegmentStats(n[None], s[None], s[None])))
    return log


def dense(arms: sa.ArmSet, log: Log) -> Log:
    """The same with a column for every arm."""

    def spread(values: Any, at: Any) -> Any:
        out = np.zeros((1, arms.size), dtype=values.dtype)
        out[:, at] = values
        return out

    return [
        (
            replace(segment, weights=spread(segment.weights, segment.arms), arms=None),
            SegmentStats(
                *(spread(v, segment.arms) for v in (stats.counts, stats.sums, stats.squares))
            ),
        )
        for segment, stats in log
    ]
