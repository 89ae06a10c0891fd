"""The paper's Yahoo! world: principal components and daily ridge regressions of the click log.

Memberships add up to one, so a user's six features span five dimensions and an article's too;
their outer products span 25, and 24 once the mean is taken off. The paper's 24 components hence
lose nothing but the rounding of the log to six decimals.
"""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import Environment, GaussianNoise, repeating
from steadyarm.errors import InvalidInputError
from steadyarm.paper.yahoo_log import (
    FEATURES,
    DistinctSample,
    Moments,
    YahooDay,
    format_features,
    outer_products,
)

# From the log's sums to principal components and daily ridge regressions.


DIMENSION = 24
NEGLIGIBLE = 1e-9  # of the largest variance; rounding to six decimals leaves less


@dataclass(frozen=True)
class Basis:
    """Principal components: coordinates are (x - centre) @ directions.

    Attributes
    ----------
    centre : (36,) mean of the outer products
    directions : (36, d) orthonormal columns
    variances : (d,) variance along each direction, falling
    """

    centre: NDArray[np.float64]
    directions: NDArray[np.float64]
    variances: NDArray[np.float64]

    def coordinates(self, products: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, d) coordinates of (n, 36) outer products."""
        return (products - self.centre) @ self.directions


def principal_components(moments: Moments, dimension: int = DIMENSION) -> Basis:
    """The directions of largest variance, from sums alone; each one's largest entry is positive.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 36)) * np.arange(36, 0, -1)
    >>> basis = principal_components(Moments.of(X, np.zeros(500)), dimension=3)
    >>> bool(np.allclose(basis.coordinates(X).var(axis=0), basis.variances))
    True
    """
    centre = moments.x / moments.count
    covariance = moments.xx / moments.count - np.outer(centre, centre)
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1][:dimension], vectors[:, ::-1][:, :dimension]
    rank = int((values > NEGLIGIBLE * max(values[0], 1e-12)).sum())
    if rank < dimension:
        raise InvalidInputError(
            f"the {moments.count:,} visits vary in {rank} dimensions only; {dimension} are needed. "
            "Read more lines, users or articles."
        )
    top = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[top, np.arange(dimension)])
    return Basis(centre, vectors, values)


def fit_days(
    days: Sequence[Moments], ridge: float = 0.01, per_day_basis: bool = False
) -> tuple[list[Basis], NDArray[np.float64], NDArray[np.float64]]:
    """Components and a ridge regression a day: bases (1 or one a day), thetas, intercepts.

    The penalty is `ridge` times the squared norm of θ; the intercept is not penalised. With one
    basis for all days, the days' parameters can be compared and averaged. With `per_day_basis`
    each is written in the components of its own day, as in the paper's published runs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 36))
    >>> bases, thetas, intercepts = fit_days([Moments.of(X, 0.5 + 0.1 * X[:, 3])])
    >>> thetas.shape, intercepts.round(2).tolist()
    ((1, 24), [0.49])
    """
    if not ridge > 0:
        raise InvalidInputError(f"ridge is {ridge}; expected a positive number.")
    if per_day_basis:
        bases = [principal_components(moments) for moments in days]
    else:
        bases = [principal_components(reduce(add, days))]
    thetas, intercepts = [], []
    for moments, basis in zip(days, bases if per_day_basis else bases * len(days), strict=True):
        W, mean = basis.directions, moments.x / moments.count
        scatter = W.T @ (moments.xx - moments.count * np.outer(mean, mean)) @ W
        effect = W.T @ (moments.xy - mean * moments.y)
        theta = np.linalg.solve(scatter + ridge * np.eye(W.shape[1]), effect)
        thetas.append(theta)
        intercepts.append(moments.y / moments.count - basis.coordinates(mean) @ theta)
    return bases, np.array(thetas), np.array(intercepts)


# The paper's Yahoo! world: 24 arms and a parameter per weekday, from the log or from a file.


VERSION = 1
INDEPENDENT = 1e-3  # share of a candidate's length that other arms must leave unexplained


@dataclass(frozen=True, eq=False)
class YahooInstance:
    """Everything the world needs, and where it came from; the log itself is not in it.

    Attributes
    ----------
    features : (24, 24) arms in principal components; the first is the best on average
    thetas, intercepts : (days, 24) and (days,) ridge regression of each day
    users, articles : (24, 6) features of the visit each arm was
    centres, directions : (b, 36), (b, 36, 24) components; b is 1, or one a day
    days, lines, malformed, clicks : (days,) what was read
    gap, ridge, seed, visits_per_day, version : settings

    Examples
    --------
    >>> import tempfile
    >>> from steadyarm.paper import read_yahoo, write_yahoo_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     truth = write_yahoo_log(folder, lines=1000, seed=3)
    ...     instance = yahoo_instance(read_yahoo(folder))
    >>> world = yahoo_world(instance, repeat=1000)
    >>> world.arms, world.budget, world.best_arm, world.gap >= 0.05
    (ArmSet(24 arms, 24 features), 21000, 0, True)
    """

    features: NDArray[np.float64]
    thetas: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    users: NDArray[np.float64]
    articles: NDArray[np.float64]
    centres: NDArray[np.float64]
    directions: NDArray[np.float64]
    days: NDArray[np.int64]
    lines: NDArray[np.int64]
    malformed: NDArray[np.int64]
    clicks: NDArray[np.int64]
    gap: float
    ridge: float
    seed: int
    visits_per_day: int
    version: int = VERSION

    @property
    def arms(self) -> ArmSet:
        """The 24 arms; the first is the best of the candidates on average."""
        return ArmSet.from_features(self.features, [f"visit {k}" for k in range(DIMENSION)])

    def save(self, path: str | Path) -> None:
        """Write all of it as a .npz file, whole or not at all."""
        part = Path(f"{path}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez_compressed(file, **asdict(self))
        os.replace(part, path)


def yahoo_instance(
    log: Sequence[YahooDay],
    ridge: float = 0.01,
    gap: float = 0.05,
    seed: int = 0,
    per_day_basis: bool = False,
    visits_per_day: int = 1000,
) -> YahooInstance:
    """The paper's instance: components, daily ridge regressions, and 24 arms that span R^24.

    The candidates are the log's sample of distinct (user, article) pairs. The first arm is the
    best of them under the average of the days' parameters; the others are drawn at random among
    those at least `gap` below it, skipping any that the arms drawn so far nearly span.

    Parameters
    ----------
    log : what `read_yahoo` returned
    ridge, gap : as in the paper
    seed : another seed draws other arms
    per_day_basis : write each day's parameter in its own day's components, as in the published
        runs; arms are then in those of the first day, and the average means little
    visits_per_day : how often each parameter repeats unless `yahoo_world` gets another number
    """
    if not log:
        raise InvalidInputError("the log has no days; read at least one with read_yahoo.")
    if visits_per_day < 1:
        raise InvalidInputError(f"visits_per_day is {visits_per_day}; expected at least 1.")
    bases, thetas, intercepts = fit_days([day.moments for day in log], ridge, per_day_basis)
    sample = reduce(DistinctSample.merge, (day.sample for day in log)).vectors
    users, articles = sample[:, :FEATURES], sample[:, FEATURES:]
    candidates = bases[0].coordinates(outer_products(users, articles))
    chosen = _choose(candidates, candidates @ thetas.mean(axis=0), bases[0], gap, seed)
    return YahooInstance(
        features=candidates[chosen],
        thetas=thetas,
        intercepts=intercepts,
        users=users[chosen],
        articles=articles[chosen],
        centres=np.array([basis.centre for basis in bases]),
        directions=np.array([basis.directions for basis in bases]),
        days=np.array([day.day for day in log]),
        lines=np.array([day.lines for day in log]),
        malformed=np.array([day.malformed for day in log]),
        clicks=np.array([day.clicks for day in log]),
        gap=float(gap),
        ridge=float(ridge),
        seed=int(seed),
        visits_per_day=int(visits_per_day),
    )


def _choose(
    candidates: NDArray[np.float64],
    values: NDArray[np.float64],
    basis: Basis,
    gap: float,
    seed: int,
) -> list[int]:
    """Indices of the best candidate and of 23 others that make up a basis with it."""
    best = int(values.argmax())
    eligible = np.flatnonzero(values <= values[best] - gap)
    scaled = candidates / np.sqrt(basis.variances)  # else small components count for nothing
    chosen: list[int] = []
    spanned = np.empty((0, DIMENSION))
    for k in [best, *np.random.default_rng(seed).permutation(eligible).tolist()]:
        left = scaled[k] - spanned.T @ (spanned @ scaled[k])
        left -= spanned.T @ (spanned @ left)  # once more, for what rounding left
        length = np.linalg.norm(left)
        if length > INDEPENDENT * np.linalg.norm(scaled[k]):
            chosen.append(k)
            spanned = np.vstack([spanned, left / length])
        if len(chosen) == DIMENSION:
            return chosen
    raise InvalidInputError(
        f"of {len(values):,} candidates {len(eligible):,} are at least {gap:g} below the best, and "
        f"with it they span {len(chosen)} of {DIMENSION} dimensions (the worst is "
        f"{np.ptp(values):.3g} below). Take a smaller gap or read with more candidates."
    )


def load_yahoo_instance(path: str | Path) -> YahooInstance:
    """The instance that `YahooInstance.save` wrote."""
    expected = {field.name for field in fields(YahooInstance)}
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInputError(
            f"{path} cannot be read as a Yahoo! instance ({error}); write one with "
            "YahooInstance.save."
        ) from None
    if set(held) != expected or held["version"] != VERSION:
        raise InvalidInputError(
            f"{path} is not a Yahoo! instance of version {VERSION} (it holds "
            f"{', '.join(sorted(held)) or 'nothing'}); write one with YahooInstance.save."
        )
    scalars = {name: value.item() for name, value in held.items() if value.ndim == 0}
    return YahooInstance(**(held | scalars))


def yahoo_world(
    instance: YahooInstance, repeat: int | None = None, budget: int = 21_000
) -> Environment:
    """Each day's parameter for `repeat` rounds, week after week; normal noise of sd 1.

    With a budget of whole weeks the best arm is that of the days' average.
    """
    each = instance.visits_per_day if repeat is None else repeat
    return repeating(instance.arms, instance.thetas, each, budget, GaussianNoise(1.0))


# Writes a small click log in exactly the format of Yahoo! R6A, from a known drifting taste.


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
