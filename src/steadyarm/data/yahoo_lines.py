"""Lines of the Yahoo! R6A click log: what each visit says, or what is wrong with its line.

A line holds a timestamp, the displayed article, whether it was clicked, six user features and the
pool of articles with six features each::

    1241160900 109513 0 |user 2:0.000012 … 1:1.000000 |109498 2:0.306008 … 1:1.000000 |109509 …

Nearly all lines have users in one fixed layout and a pool that was seen before. Those are read
with array operations; every other line is taken apart slowly and strictly, and is either right
throughout or malformed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEATURES", "LineParser", "MalformedLineError", "Visits", "format_features"]

FEATURES = 6
ORDER = (2, 3, 4, 5, 6, 1)  # in which the log names its features
MOST_REMEMBERED = 2048  # articles and pools; the log has a few hundred of each a day
CLICKS = {b"0": 0.0, b"1": 1.0}
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def format_features(values: Sequence[float]) -> str:
    """Features 1 to 6 as the log writes them.

    Examples
    --------
    >>> format_features([1.0, 0.5, 0.25, 0.25, 0.0, 0.0])
    '2:0.500000 3:0.250000 4:0.250000 5:0.000000 6:0.000000 1:1.000000'
    """
    return " ".join(f"{j}:{values[j - 1]:.6f}" for j in ORDER)


LAYOUT = np.frombuffer(b"user " + format_features([0.0] * FEATURES).encode(), dtype=np.uint8)
DIGITS = np.array(
    [
        5 + 11 * feature + at  # "user " and then eleven bytes a feature: 2:0.000000 and a space
        for feature in range(FEATURES)
        for at in (2, 4, 5, 6, 7, 8, 9)
    ]
)
FIXED = np.setdiff1d(np.arange(len(LAYOUT)), DIGITS)
PLACES = 10.0 ** np.arange(6, -1, -1)
COLUMNS = np.array(ORDER) - 1


class MalformedLineError(Exception):
    """Why one line cannot be used; collected by the parser, never shown as an error."""


@dataclass(frozen=True)
class Visits:
    """Visits of one block of lines: (n, 6) users, (n, 6) displayed articles, (n,) clicks."""

    users: NDArray[np.float64]
    articles: NDArray[np.float64]
    clicks: NDArray[np.float64]


class LineParser:
    """Turns blocks of lines into visits; remembers recent articles and pools, within bounds.

    Examples
    --------
    >>> features = b"2:0.200000 3:0.100000 4:0.300000 5:0.400000 6:0.000000 1:1.000000"
    >>> line = b"1241160900 7 1 |user " + features + b" |7 " + features + b" |8 " + features
    >>> visits, malformed = LineParser().parse([line, line.replace(b" 7 1 ", b" 9 1 ")])
    >>> visits.users.tolist(), visits.clicks.tolist()
    ([[1.0, 0.2, 0.1, 0.3, 0.4, 0.0]], [1.0])
    >>> malformed
    [(1, "the displayed article '9' is not in the pool")]
    """

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []  # features of the articles seen
        self._articles: dict[bytes, int] = {}  # row by the article's text
        self._pools: dict[bytes, dict[bytes, int]] = {}  # row by article, by the pool's text

    def parse(self, lines: Sequence[bytes]) -> tuple[Visits, list[tuple[int, str]]]:
        """All visits of the lines, and position and reason of each line that is malformed."""
        if len(self._rows) > MOST_REMEMBERED or len(self._pools) > MOST_REMEMBERED:
            for memory in (self._rows, self._articles, self._pools):
                memory.clear()
        texts: list[bytes] = []
        rows: list[int] = []
        clicks: list[float] = []
        at: list[int] = []
        odd: list[int] = []
        pools = self._pools
        for position, line in enumerate(lines):
            try:
                head, user, text = line.rstrip(b"\r ").split(b" |", 2)
                stamp, shown, click = head.split(b" ")
                row = (pools.get(text) or self._pool(text))[shown]
                clicked = CLICKS[click]
            except (KeyError, ValueError, MalformedLineError):
                odd.append(position)
                continue
            if len(user) != len(LAYOUT) or not stamp.isdigit():
                odd.append(position)
                continue
            texts.append(user)
            rows.append(row)
            clicks.append(clicked)
            at.append(position)
        users, regular = _users(texts)
        odd += [at[i] for i in np.flatnonzero(~regular)]
        index, reward = np.array(rows, dtype=np.int64)[regular], np.array(clicks)[regular]
        slow, malformed = self._parse_slowly(lines, sorted(odd))
        known = np.array(self._rows, dtype=np.float64).reshape(-1, FEATURES)
        index = np.concatenate([index, [row for _, row, _ in slow]]).astype(np.int64)
        return Visits(
            np.concatenate([users, np.array([u for u, _, _ in slow]).reshape(-1, FEATURES)]),
            known[index],
            np.concatenate([reward, [clicked for _, _, clicked in slow]]),
        ), malformed

    def _parse_slowly(
        self, lines: Sequence[bytes], positions: list[int]
    ) -> tuple[list[tuple[tuple[float, ...], int, float]], list[tuple[int, str]]]:
        visits, malformed = [], []
        for position in positions:
            try:
                visits.append(self._visit(lines[position].rstrip(b"\r ")))
            except MalformedLineError as error:
                malformed.append((position, str(error)))
        return visits, malformed

    def _visit(self, line: bytes) -> tuple[tuple[float, ...], int, float]:
        parts = line.split(b" |", 2)
        if len(parts) < 3:
            raise MalformedLineError(f"not visit, user and pool, divided by ' |': {_shown(line)}")
        head = parts[0].split(b" ")
        if len(head) != 3:
            raise MalformedLineError(f"{_shown(parts[0])} is not 'timestamp article click'")
        stamp, article, click = head
        if not stamp.isdigit():
            raise MalformedLineError(f"the timestamp is {_shown(stamp)}, not a number")
        if click not in CLICKS:
            raise MalformedLineError(f"the click is {_shown(click)}, neither 0 nor 1")
        label, _, features = parts[1].partition(b" ")
        if label != b"user":
            raise MalformedLineError(f"{_shown(label)} stands where 'user' should")
        user = _features(features, "the user")
        pool = self._pools.get(parts[2]) or self._pool(parts[2])
        if article not in pool:
            raise MalformedLineError(f"the displayed article {_shown(article)} is not in the pool")
        return user, pool[article], CLICKS[click]

    def _pool(self, text: bytes) -> dict[bytes, int]:
        pool: dict[bytes, int] = {}
        for article in text.split(b" |"):
            name, _, features = article.partition(b" ")
            if name in pool:
                raise MalformedLineError(f"article {_shown(name)} is twice in the pool")
            row = self._articles.get(article)
            if row is None:
                values = _features(features, f"article {_shown(name)}")
                row = self._articles[article] = len(self._rows)
                self._rows.append(values)
            pool[name] = row
        self._pools[text] = pool
        return pool


def _users(texts: list[bytes]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Features of the users whose text follows the layout, and which ones do."""
    raw = np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(-1, len(LAYOUT))
    digits = raw[:, DIGITS] - np.uint8(ord("0"))  # anything else wraps to more than 9
    regular = (digits <= 9).all(axis=1) & (raw[:, FIXED] == LAYOUT[FIXED]).all(axis=1)
    users = np.empty((int(regular.sum()), FEATURES))
    # whole millionths over a million: the very number float() makes of the text
    users[:, COLUMNS] = digits[regular].reshape(-1, FEATURES, 7) @ PLACES / 1e6
    return users, regular


def _features(text: bytes, whose: str) -> tuple[float, ...]:
    values: dict[bytes, float] = {}
    for entry in text.split(b" "):
        name, _, value = entry.partition(b":")
        if name in values or not NUMBER.fullmatch(value):
            raise MalformedLineError(f"{whose} has the feature {_shown(entry)}")
        values[name] = float(value)
    try:
        ordered = tuple(values[b"%d" % j] for j in range(1, FEATURES + 1))
    except KeyError:
        ordered = ()
    if len(ordered) != len(values) or not np.isfinite(ordered).all():
        raise MalformedLineError(
            f"{whose} has the features {_shown(text)}, not finite numbers for 1 to {FEATURES}"
        )
    return ordered


def _shown(text: bytes, most: int = 60) -> str:
    return repr(text[:most].decode("utf-8", "replace") + ("…" if len(text) > most else ""))
