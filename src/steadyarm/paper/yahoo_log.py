"""The Yahoo! R6A click log, read in one pass and constant memory, day by day."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError


@dataclass(frozen=True)
class DistinctSample:
    """A uniform sample of the distinct vectors in a stream of any length, in constant memory.

    Every vector gets a seeded hash of its own bits, and the `size` smallest hashes are kept.
    Repetitions change nothing, nor does the order of the stream, and the samples of two streams
    merge into that of their union.

    Examples
    --------
    >>> stream = np.arange(1000.0).repeat(3).reshape(-1, 1)
    >>> sample = DistinctSample.empty(columns=1, size=4, seed=0)
    >>> sample.add(stream).vectors.ravel().tolist()
    [227.0, 2.0, 907.0, 332.0]
    >>> sample.add(stream[2000:]).add(stream[:2000]).vectors.ravel().tolist()
    [227.0, 2.0, 907.0, 332.0]
    """

    size: int
    seed: int
    hashes: NDArray[np.uint64]
    vectors: NDArray[np.float64]

    @classmethod
    def empty(cls, columns: int, size: int, seed: int) -> DistinctSample:
        """A sample of nothing yet."""
        if size < 1:
            raise InvalidInputError(f"the size of the sample is {size}; expected at least 1.")
        return cls(size, seed, np.empty(0, dtype=np.uint64), np.empty((0, columns)))

    def add(self, vectors: NDArray[np.float64]) -> DistinctSample:
        """The sample after these (n, columns) vectors."""
        hashes = _hash(vectors, self.seed)
        if len(self.hashes) == self.size:  # nearly all of a long stream ends here
            new = hashes < self.hashes[-1]
            hashes, vectors = hashes[new], vectors[new]
        return self._with(hashes, vectors) if len(hashes) else self

    def merge(self, other: DistinctSample) -> DistinctSample:
        """The sample of both streams together."""
        if (self.size, self.seed) != (other.size, other.seed):
            raise InvalidInputError(
                f"samples of sizes {self.size} and {other.size} with seeds {self.seed} and "
                f"{other.seed} cannot be merged; take the same size and seed for both."
            )
        return self._with(other.hashes, other.vectors)

    def _with(self, hashes: NDArray[np.uint64], vectors: NDArray[np.float64]) -> DistinctSample:
        together = np.concatenate([self.hashes, hashes])
        smallest, first = np.unique(together, return_index=True)
        kept = np.concatenate([self.vectors, vectors])[first[: self.size]]
        return DistinctSample(self.size, self.seed, smallest[: self.size], kept)


def _hash(vectors: NDArray[np.float64], seed: int) -> NDArray[np.uint64]:
    """64-bit hash of each row: the finaliser of splitmix64 after every column."""
    bits = np.ascontiguousarray(vectors + 0.0).view(np.uint64)  # adding 0 makes -0 and 0 one
    state = np.full(len(bits), seed % 2**64, dtype=np.uint64)
    for column in bits.T:
        state = (state ^ column) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


# Lines: what each visit says, or what is wrong with its line.


FEATURES = 6
ORDER = (2, 3, 4, 5, 6, 1)  # in which the log names its features
CLICKS = {b"0": 0.0, b"1": 1.0}


def format_features(values: Sequence[float]) -> str:
    """Features 1 to 6 as the log writes them.

    Examples
    --------
    >>> format_features([1.0, 0.5, 0.25, 0.25, 0.0, 0.0])
    '2:0.500000 3:0.250000 4:0.250000 5:0.000000 6:0.000000 1:1.000000'
    """
    return " ".join(f"{j}:{values[j - 1]:.6f}" for j in ORDER)


class MalformedLineError(Exception):
    """Why one line cannot be used; collected by `parse_lines`, never shown as an error."""


@dataclass(frozen=True)
class Visits:
    """Visits of one block of lines: (n, 6) users, (n, 6) displayed articles, (n,) clicks."""

    users: NDArray[np.float64]
    articles: NDArray[np.float64]
    clicks: NDArray[np.float64]


def parse_lines(lines: Sequence[bytes]) -> tuple[Visits, list[tuple[int, str]]]:
    """All visits of the lines, and position and reason of each line that is malformed.

    Examples
    --------
    >>> features = b"2:0.200000 3:0.100000 4:0.300000 5:0.400000 6:0.000000 1:1.000000"
    >>> line = b"1241160900 7 1 |user " + features + b" |7 " + features + b" |8 " + features
    >>> visits, malformed = parse_lines([line, line.replace(b" 7 1 ", b" 9 1 ")])
    >>> visits.users.tolist(), visits.clicks.tolist()
    ([[1.0, 0.2, 0.1, 0.3, 0.4, 0.0]], [1.0])
    >>> malformed
    [(1, "the displayed article '9' is not in the pool")]
    """
    users: list[tuple[float, ...]] = []
    articles: list[tuple[float, ...]] = []
    clicks: list[float] = []
    malformed = []
    for position, line in enumerate(lines):
        try:
            user, article, click = _visit(line.rstrip(b"\r "))
        except MalformedLineError as error:
            malformed.append((position, str(error)))
            continue
        users.append(user)
        articles.append(article)
        clicks.append(click)
    shape = len(users), FEATURES
    return (
        Visits(np.reshape(users, shape), np.reshape(articles, shape), np.array(clicks)),
        malformed,
    )


def _visit(line: bytes) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """User, article and click of a line."""
    head, _, rest = line.partition(b" |user ")
    user, _, pool = rest.partition(b" |")
    fields = head.split(b" ")
    if len(fields) != 3 or not fields[0].isdigit() or fields[2] not in CLICKS or not pool:
        raise MalformedLineError(f"not 'timestamp article click |user … |pool': {_shown(line)}")
    values, articles = _features(user, "the user"), _pool(pool)
    if fields[1] not in articles:
        raise MalformedLineError(f"the displayed article {_shown(fields[1])} is not in the pool")
    return values, articles[fields[1]], CLICKS[fields[2]]


@lru_cache(maxsize=512)  # a day has a few hundred pools, each in thousands of lines
def _pool(text: bytes) -> dict[bytes, tuple[float, ...]]:
    """The features of each article in a pool."""
    pool: dict[bytes, tuple[float, ...]] = {}
    for article in text.split(b" |"):
        name, _, features = article.partition(b" ")
        if name in pool:
            raise MalformedLineError(f"article {_shown(name)} is twice in the pool")
        pool[name] = _features(features, f"article {_shown(name)}")
    return pool


def _features(text: bytes, whose: str) -> tuple[float, ...]:
    """Features 1 to 6, in that order."""
    try:
        pairs = [entry.split(b":") for entry in text.split(b" ")]
        values = {name: float(value) for name, value in pairs}
        ordered = tuple(values[b"%d" % j] for j in range(1, FEATURES + 1))
    except (ValueError, KeyError):
        ordered = ()
    if len(ordered) != text.count(b":") or not all(map(math.isfinite, ordered)):
        raise MalformedLineError(
            f"{whose} has the features {_shown(text)}, not finite numbers for 1 to {FEATURES}"
        )
    return ordered


def _shown(text: bytes, most: int = 60) -> str:
    return repr(text[:most].decode("utf-8", "replace") + ("…" if len(text) > most else ""))


# Files: which there are, and their lines block by block.


NAME = re.compile(r"ydata-fp-td-clicks-v1_0\.200905(\d\d)(\.gz)?")
BLOCK = 1 << 22  # bytes of text at a time: about 2,500 lines
LONGEST_LINE = 1 << 20


def find_files(folder: Path, days: Sequence[int]) -> dict[int, Path]:
    """The file of each day of May 2009, compressed or not, in the order of `days`."""
    if not folder.is_dir():
        raise InvalidInputError(
            f"{folder} is not a folder; give the one that holds the files of Yahoo! R6A."
        )
    if not days or len(set(days)) < len(days):
        raise InvalidInputError(f"days is {tuple(days)}; expected at least one, none repeated.")
    files: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if match := NAME.fullmatch(path.name):
            if int(match[1]) in files:
                raise InvalidInputError(f"{folder} holds {path.name} twice; keep one of them.")
            files[int(match[1])] = path
    missing = [f"ydata-fp-td-clicks-v1_0.200905{day:02}.gz" for day in days if day not in files]
    if missing:
        held = ", ".join(map(str, sorted(files))) or "no day"
        raise InvalidInputError(
            f"{folder} lacks {', '.join(missing)} (it holds {held} of May 2009); "
            "add the files or choose other days."
        )
    return {day: files[day] for day in days}


def line_blocks(raw: IO[bytes], path: Path) -> Iterator[list[bytes]]:
    """The file's lines, a few thousand at a time."""
    source = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    rest = b""
    try:
        while block := source.read(BLOCK):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > LONGEST_LINE:
                raise InvalidInputError(
                    f"{path} has a line of more than {LONGEST_LINE:,} bytes; is it the R6A log?"
                )
            if lines:
                yield lines
    except (EOFError, OSError, zlib.error) as error:
        raise InvalidInputError(
            f"{path} cannot be read to its end ({error}); fetch it again."
        ) from None
    if rest:
        yield [rest]


# Days: sums and a sample of what each file held.


Progress = Callable[[str, int, float], None]  # file, its lines so far, share of all bytes read

FIRST_NAMED = 5  # malformed lines named in messages
ENOUGH_LINES = 10_000  # to give up on a file before its end


@dataclass(frozen=True)
class Moments:
    """Sums over visits: their number, of x, of x x', of x y and of y."""

    count: int
    x: NDArray[np.float64]
    xx: NDArray[np.float64]
    xy: NDArray[np.float64]
    y: float

    @classmethod
    def of(cls, X: NDArray[np.float64], y: NDArray[np.float64]) -> Moments:
        """The sums for the rows of X (n, 36) with rewards y (n,)."""
        # einsum, not @: threads of BLAS cost far more than they bring on blocks this small
        xx, xy = np.einsum("ni,nj->ij", X, X), np.einsum("ni,n->i", X, y)
        return cls(len(X), X.sum(axis=0), xx, xy, float(y.sum()))

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.x + other.x,
            self.xx + other.xx,
            self.xy + other.xy,
            self.y + other.y,
        )


@dataclass(frozen=True)
class YahooDay:
    """What one day's file held.

    Attributes
    ----------
    day : day of May 2009
    lines : all lines, malformed ones included
    malformed : how many lines could not be used
    named : the first few of those, each with file, line number and reason
    moments : sums over the day's visits
    sample : some of the distinct (user, article) features, 12 numbers each
    """

    day: int
    lines: int
    malformed: int
    named: tuple[str, ...]
    moments: Moments
    sample: DistinctSample

    @property
    def visits(self) -> int:
        """Lines that could be used."""
        return self.moments.count

    @property
    def clicks(self) -> int:
        """Visits with a click."""
        return round(self.moments.y)


def outer_products(
    users: NDArray[np.float64], articles: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n, 36) products of each user's six features with each article's six.

    Examples
    --------
    >>> outer_products(np.eye(6)[:1], np.arange(6.0)[None])[0, :7].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0]
    """
    return (users[:, :, None] * articles[:, None, :]).reshape(len(users), FEATURES**2)


def read_yahoo(
    folder: str | Path,
    days: Sequence[int] = (1, 2, 3, 4, 5, 6, 7),
    candidates: int = 5000,
    seed: int = 0,
    max_malformed: float = 0.01,
    progress: Progress | None = None,
) -> list[YahooDay]:
    """Read the log's files of the given days of May 2009.

    Parameters
    ----------
    folder : where ydata-fp-td-clicks-v1_0.20090501.gz and so on are, compressed or not
    days : which days; the paper takes the first seven of ten
    candidates : how many distinct user and article pairs to keep, drawn by a seeded hash
    seed : another seed keeps other pairs
    max_malformed : share of a file's lines that may be malformed before that is an error
    progress : called after each block of about 2,500 lines

    Examples
    --------
    >>> import tempfile
    >>> from steadyarm.paper.yahoo import write_yahoo_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     truth = write_yahoo_log(folder, days=(1, 2), lines=1000, seed=3)
    ...     first, second = read_yahoo(folder, days=(1, 2))
    >>> first.visits, first.clicks, first.malformed
    (1000, 216, 0)
    """
    if not 0 <= max_malformed <= 1:
        raise InvalidInputError(f"max_malformed is {max_malformed}; expected a share, 0 to 1.")
    files = find_files(Path(folder), days)
    total = sum(path.stat().st_size for path in files.values()) or 1
    empty = DistinctSample.empty(2 * FEATURES, candidates, seed)
    read, before = [], 0
    for day, path in files.items():
        for found, done in _read_day(day, path, empty, max_malformed):
            if progress is not None:
                progress(path.name, found.lines, (before + done) / total)
        if not found.visits:
            raise InvalidInputError(
                f"{path} holds {found.lines} lines and no visit; fetch the file again or choose "
                "other days."
            )
        read.append(found)
        before += path.stat().st_size
    return read


def _read_day(
    day: int, path: Path, sample: DistinctSample, max_malformed: float
) -> Iterator[tuple[YahooDay, int]]:
    """What the file held so far and how many bytes were read, after each block of lines."""
    moments = Moments.of(np.empty((0, FEATURES**2)), np.empty(0))
    count = wrong = 0
    named: list[str] = []
    with path.open("rb") as raw:
        for block in line_blocks(raw, path):
            visits, malformed = parse_lines(block)
            named += [
                f"{path.name}, line {count + position + 1}: {reason}"
                for position, reason in malformed[: FIRST_NAMED - len(named)]
            ]
            count, wrong = count + len(block), wrong + len(malformed)
            moments += Moments.of(outer_products(visits.users, visits.articles), visits.clicks)
            sample = sample.add(np.hstack([visits.users, visits.articles]))
            found = YahooDay(day, count, wrong, tuple(named), moments, sample)
            if count >= ENOUGH_LINES:
                _check_malformed(found, path, max_malformed)
            yield found, raw.tell()
        found = YahooDay(day, count, wrong, tuple(named), moments, sample)
        _check_malformed(found, path, max_malformed)
        yield found, raw.tell()


def _check_malformed(day: YahooDay, path: Path, max_malformed: float) -> None:
    if day.malformed > max_malformed * day.lines:
        raise InvalidInputError(
            f"{day.malformed:,} of the first {day.lines:,} lines of {path} are malformed; at most "
            f"a share of {max_malformed:g} is accepted. Is this the R6A log? The first: "
            f"{'; '.join(day.named)}. Mend the file or accept more with max_malformed."
        )
