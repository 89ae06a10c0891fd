"""Small tests, played in pieces, that the tests of inference share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import steadyarm as sa
from steadyarm.environments import Noise
from steadyarm.inference.evidence import Evidence
from steadyarm.segments import Direction, Segment, SegmentStats


def played(
    policy: sa.Policy[Any],
    world: sa.Environment | sa.Replay,
    trials: int,
    seed: int = 0,
    pieces: int | None = 40,
) -> list[tuple[Segment, SegmentStats]]:
    """A batch of tests, cut into pieces of whole blocks, or not cut."""
    rng = np.random.default_rng(seed)
    state = policy.start(world.arms, world.budget, trials, seed=seed)
    out = []
    while (segment := policy.next_segment(state)) is not None:
        if pieces is not None:
            unit = segment.block if segment.order == "blocks" else 1
            most = max(1, world.budget // pieces // unit) * unit
            segment = replace(segment, rounds=np.minimum(segment.rounds, most))
        stats = world.play(segment, state.played, rng, squares=True)
        out.append((segment, stats))
        state = policy.observe(state, segment, stats)
    return out


def moving(budget: int = 2000, noise: Noise | None = None) -> sa.Environment:
    """Five arms in three dimensions, one turn of a wave."""
    X = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.6, 0], [-0.3, 0.5, 0.8]])
    wave = np.sin(2 * np.pi * np.arange(budget) / budget)[:, None]
    thetas = np.array([0.5, 0.3, 0.1]) + wave * np.array([-0.4, 0.4, 0.2])
    return sa.Environment.from_parameters(sa.ArmSet.from_features(X), thetas, noise)


def one_segment(
    counts: list[int],
    sums: list[float],
    squares: list[float],
    shuffled: bool = False,
    direction: Direction = "maximize",
) -> Evidence:
    """Evidence of one segment of arms that share nothing."""
    N = np.array([counts])
    weights = N / N.sum()
    segment = Segment.shuffled(N) if shuffled else Segment(weights, N.sum(axis=1))
    stats = SegmentStats(N, np.array([sums]), np.array([squares]))
    arms = sa.ArmSet.one_hot([f"arm {k}" for k in range(len(counts))])
    return Evidence.from_segments(arms, [(segment, stats)], direction)


def members(evidence: Evidence, rows: slice) -> Evidence:
    """The evidence of some tests of a batch."""
    return _part(evidence, (rows,))


def first_pieces(evidence: Evidence, count: int) -> Evidence:
    """What was known after some pieces."""
    return _part(evidence, (slice(None), slice(count)))


def _part(evidence: Evidence, where: tuple[slice, ...]) -> Evidence:
    names = ("rounds", "scores", "squares", "within", "weights", "references")
    parts: dict[str, Any] = {name: getattr(evidence, name) for name in names}
    kept: dict[str, Any] = {k: None if v is None else v[where] for k, v in parts.items()}
    binary = None if evidence.binary is None else evidence.binary[where[0]]
    return replace(evidence, binary=binary, **kept)
