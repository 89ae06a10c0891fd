"""The paper's Yahoo! world: 24 arms and a parameter per weekday, from the log or from a file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.data.distinct_sample import DistinctSample
from steadyarm.data.yahoo_lines import FEATURES
from steadyarm.data.yahoo_log import YahooDay, outer_products
from steadyarm.data.yahoo_model import DIMENSION, Basis, fit_days
from steadyarm.environments import Environment, GaussianNoise, repeating
from steadyarm.errors import InvalidInputError

__all__ = ["YahooInstance", "load_yahoo_instance", "yahoo_instance", "yahoo_world"]

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
    >>> from steadyarm.data import read_yahoo, write_yahoo_log
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
    visits_per_day : how often each parameter repeats unless `yahoo_world` is told otherwise
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
    """The instance that `YahooInstance.save` or `steadyarm data yahoo` wrote."""
    expected = {field.name for field in fields(YahooInstance)}
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInputError(
            f"{path} cannot be read as a Yahoo! instance ({error}); write one with "
            "steadyarm data yahoo DIR --out FILE."
        ) from None
    if set(held) != expected or held["version"] != VERSION:
        raise InvalidInputError(
            f"{path} is not a Yahoo! instance of version {VERSION} (it holds "
            f"{', '.join(sorted(held)) or 'nothing'}); write one with "
            "steadyarm data yahoo DIR --out FILE."
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
