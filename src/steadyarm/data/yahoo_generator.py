"""Writes a small click log in exactly the format of Yahoo! R6A, from a known drifting taste.

The data set itself may not be passed on; with this the whole path from log to world can be tried
and tested.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadyarm.data.yahoo_lines import FEATURES, format_features
from steadyarm.errors import InvalidInputError

__all__ = ["YahooTruth", "write_yahoo_log"]

MIDNIGHT = 1241136000  # the first of May 2009
POOLS_PER_DAY = 24  # the pool of articles changes every hour


@dataclass(frozen=True)
class YahooTruth:
    """The taste behind a generated log: P(click) = user' taste[day] article.

    Attributes
    ----------
    tastes : (days, 6, 6) in features 1 to 6; rows of the user, columns of the article
    """

    tastes: NDArray[np.float64]

    def click_rates(
        self, users: NDArray[np.float64], articles: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """(days, n) probability of a click for each user and article, every day."""
        return np.asarray(np.einsum("ni,tij,nj->tn", users, self.tastes, articles))


def write_yahoo_log(
    folder: str | Path,
    days: Sequence[int] = (1, 2, 3, 4, 5, 6, 7),
    lines: int = 5000,
    articles: int = 40,
    pool: int = 20,
    seed: int = 0,
    compress: bool = True,
) -> YahooTruth:
    """Write one file a day into `folder` and say by which tastes users clicked.

    As in the original, features 2 to 6 are memberships that add up to 1, feature 1 is constant,
    and the displayed article is drawn evenly from the pool of the hour.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     truth = write_yahoo_log(folder, days=(1,), lines=10, compress=False, seed=1)
    ...     text = (Path(folder) / "ydata-fp-td-clicks-v1_0.20090501").read_text()
    >>> text.splitlines()[0][:60], len(text.splitlines()), truth.tastes.shape
    ('1241136000 109508 0 |user 2:0.038162 3:0.108658 4:0.246971 5', 10, (1, 6, 6))
    """
    if not days or lines < 1 or not 1 <= pool <= articles:
        raise InvalidInputError(
            f"days is {tuple(days)}, lines is {lines}, pool is {pool} of {articles} articles; "
            "expected at least one of each and a pool of at most all articles."
        )
    rng = np.random.default_rng(seed)
    tastes = _tastes(rng, days)
    features = _memberships(rng, articles)
    texts = [f"|{109500 + k} {format_features(row)}" for k, row in enumerate(features.tolist())]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for day, taste in zip(days, tastes, strict=True):
        users = _memberships(rng, lines)
        hour = np.arange(lines) * POOLS_PER_DAY // lines
        pools = np.argsort(rng.random((POOLS_PER_DAY, articles)), axis=1)[:, :pool]
        pool_texts = [" ".join(texts[k] for k in sorted(members)) for members in pools.tolist()]
        shown = pools[hour, rng.integers(pool, size=lines)]
        rates = np.einsum("ni,ij,nj->n", users, taste, features[shown])
        clicks = (rng.random(lines) < rates).astype(np.int64)
        stamps = MIDNIGHT + 86400 * (day - 1) + np.arange(lines) * 86400 // lines
        rows = zip(stamps, shown, clicks, users.tolist(), hour, strict=True)
        path = Path(folder) / f"ydata-fp-td-clicks-v1_0.200905{day:02}"
        text = "".join(
            f"{stamp} {109500 + article} {click} |user {format_features(user)} {pool_texts[h]}\n"
            for stamp, article, click, user, h in rows
        )
        if compress:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            path.write_bytes(text.encode())
    return YahooTruth(tastes)


def _tastes(rng: np.random.Generator, days: Sequence[int]) -> NDArray[np.float64]:
    """A taste per day, swinging over the week; between 0 and 1, so every rate is one too."""
    still = rng.uniform(0.02, 0.5, size=(FEATURES - 1, FEATURES - 1))
    swing = rng.uniform(-0.9, 0.9, size=still.shape)
    phase = rng.uniform(0, 2 * np.pi, size=still.shape)
    tastes = np.zeros((len(days), FEATURES, FEATURES))
    for t, day in enumerate(days):
        tastes[t, 1:, 1:] = still * (1 + swing * np.sin(2 * np.pi * day / 7 + phase))
    return tastes


def _memberships(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """(count, 6) features: a constant and five memberships, to six decimals as in the log."""
    members = rng.dirichlet(np.full(FEATURES - 1, 0.5), size=count)
    return np.hstack([np.ones((count, 1)), np.floor(members * 1e6) / 1e6])
