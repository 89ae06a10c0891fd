"""Reads the Yahoo! R6A click log in one pass and constant memory, day by day.

Each visit is the outer product of its user's and its displayed article's features, a vector in
R^36, with reward 1 for a click. Sums of these vectors and of their products are kept per day:
they give principal components and ridge regressions exactly, in any basis, without a second pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadyarm.data.distinct_sample import DistinctSample
from steadyarm.data.yahoo_files import find_files, line_blocks
from steadyarm.data.yahoo_lines import FEATURES, LineParser, Visits
from steadyarm.errors import InvalidInputError

__all__ = ["Moments", "Progress", "YahooDay", "outer_products", "read_yahoo"]

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
    >>> from steadyarm.data.yahoo_generator import write_yahoo_log
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

        def tell(lines: int, done: int, name: str = path.name, before: int = before) -> None:
            if progress is not None:
                progress(name, lines, (before + done) / total)

        read.append(_read_day(day, path, empty, max_malformed, tell))
        before += path.stat().st_size
    return read


def _read_day(
    day: int,
    path: Path,
    sample: DistinctSample,
    max_malformed: float,
    tell: Callable[[int, int], None],
) -> YahooDay:
    size = FEATURES**2
    result = YahooDay(day, 0, 0, (), Moments.of(np.empty((0, size)), np.empty(0)), sample)
    parser = LineParser()
    with path.open("rb") as raw:
        for block in line_blocks(raw, path):
            visits, malformed = parser.parse(block)
            result = _with_block(result, path, len(block), visits, malformed)
            if result.lines >= ENOUGH_LINES:
                _check_malformed(result, path, max_malformed)
            tell(result.lines, raw.tell())
    _check_malformed(result, path, max_malformed)
    if not result.visits:
        raise InvalidInputError(
            f"{path} holds {result.lines} lines and no visit; fetch the file again or choose "
            "other days."
        )
    return result


def _with_block(
    so_far: YahooDay,
    path: Path,
    lines: int,
    visits: Visits,
    malformed: list[tuple[int, str]],
) -> YahooDay:
    room = FIRST_NAMED - len(so_far.named)
    named = [
        f"{path.name}, line {so_far.lines + position + 1}: {reason}"
        for position, reason in malformed[:room]
    ]
    return replace(
        so_far,
        lines=so_far.lines + lines,
        malformed=so_far.malformed + len(malformed),
        named=so_far.named + tuple(named),
        moments=so_far.moments
        + Moments.of(outer_products(visits.users, visits.articles), visits.clicks),
        sample=so_far.sample.add(np.hstack([visits.users, visits.articles])),
    )


def _check_malformed(day: YahooDay, path: Path, max_malformed: float) -> None:
    if day.malformed > max_malformed * day.lines:
        raise InvalidInputError(
            f"{day.malformed:,} of the first {day.lines:,} lines of {path} are malformed; at most "
            f"a share of {max_malformed:g} is accepted. Is this the R6A log? The first: "
            f"{'; '.join(day.named)}. Mend the file or accept more with max_malformed."
        )
