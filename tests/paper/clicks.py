"""Writes a small click log in exactly the format of Yahoo! R6A, from a known drifting taste."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MIDNIGHT = 1241136000  # the first of May 2009
POOLS_PER_DAY = 24  # the pool of articles changes every hour
ARTICLES, POOL = 40, 20
ORDER = (2, 3, 4, 5, 6, 1)  # in which the log names its features


def format_features(values: Sequence[float]) -> str:
    return " ".join(f"{j}:{values[j - 1]:.6f}" for j in ORDER)


def write_log(
    folder: Path, days: Sequence[int] = (1, 2, 3, 4, 5, 6, 7), lines: int = 4000, seed: int = 7
) -> NDArray[np.float64]:
    """Write one file a day; the tastes (days, 6, 6): P(click) = user' taste[day] article.

    As in the original, features 2 to 6 are memberships that add up to 1, feature 1 is constant,
    and the displayed article is drawn evenly from the pool of the hour.
    """
    rng = np.random.default_rng(seed)
    tastes = _tastes(rng, days)
    features = _memberships(rng, ARTICLES)
    texts = [f"|{109500 + k} {format_features(row)}" for k, row in enumerate(features.tolist())]
    folder.mkdir(parents=True, exist_ok=True)
    for day, taste in zip(days, tastes, strict=True):
        users = _memberships(rng, lines)
        hour = np.arange(lines) * POOLS_PER_DAY // lines
        pools = np.argsort(rng.random((POOLS_PER_DAY, ARTICLES)), axis=1)[:, :POOL]
        pool_texts = [" ".join(texts[k] for k in sorted(members)) for members in pools.tolist()]
        shown = pools[hour, rng.integers(POOL, size=lines)]
        rates = np.einsum("ni,ij,nj->n", users, taste, features[shown])
        clicks = (rng.random(lines) < rates).astype(np.int64)
        stamps = MIDNIGHT + 86400 * (day - 1) + np.arange(lines) * 86400 // lines
        rows = zip(stamps, shown, clicks, users.tolist(), hour, strict=True)
        text = "".join(
            f"{stamp} {109500 + article} {click} |user {format_features(user)} {pool_texts[h]}\n"
            for stamp, article, click, user, h in rows
        )
        path = folder / f"ydata-fp-td-clicks-v1_0.200905{day:02}.gz"
        path.write_bytes(gzip.compress(text.encode(), 1, mtime=0))
    return tastes


def _tastes(rng: np.random.Generator, days: Sequence[int]) -> NDArray[np.float64]:
    """A taste per day, swinging over the week; between 0 and 1, so every rate is one too."""
    still = rng.uniform(0.02, 0.5, size=(5, 5))
    swing = rng.uniform(-0.9, 0.9, size=still.shape)
    phase = rng.uniform(0, 2 * np.pi, size=still.shape)
    tastes = np.zeros((len(days), 6, 6))
    for t, day in enumerate(days):
        tastes[t, 1:, 1:] = still * (1 + swing * np.sin(2 * np.pi * day / 7 + phase))
    return tastes


def _memberships(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """(count, 6) features: a constant and five memberships, to six decimals as in the log."""
    members = rng.dirichlet(np.full(5, 0.5), size=count)
    return np.hstack([np.ones((count, 1)), np.floor(members * 1e6) / 1e6])
