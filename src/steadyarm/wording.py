"""Text for people: numbers, times and names, TOML and CSV cells, whole files, progress."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from itertools import product
from math import ceil, isfinite, isnan, log10
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from steadyarm.errors import InvalidInputError

WHOLE = 10_000  # numbers from here on are shown without decimals


def number(value: float) -> str:
    """A few digits that matter.

    Examples
    --------
    >>> number(0.123456), number(123456.7), number(float("nan")), number(float("inf"))
    ('0.1235', '123,457', 'unknown', '∞')
    """
    if isnan(value):
        return "unknown"
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if WHOLE <= abs(value) < 1e15 else f"{value:.4g}"


def amount(value: float, rates: bool = False) -> str:
    """A mean reward: in per cent where rewards are yes or no, so that their means are rates.

    Examples
    --------
    >>> amount(0.12345, rates=True), amount(12.3456), amount(float("nan"), rates=True)
    ('12.35 %', '12.35', 'unknown')
    """
    return f"{100 * value:.2f} %" if rates and isfinite(value) else number(value)


def reach(
    low: float,
    high: float,
    shown: Callable[[float], str] | None = None,
    unknown: str = "unknown",
) -> str:
    """An interval.

    shown : how its ends are written, if not as plain numbers
    unknown : what to say if neither end is known

    Examples
    --------
    >>> reach(0.1, 0.25), reach(float("-inf"), 2), reach(float("-inf"), float("inf"))
    ('0.1 to 0.25', '-∞ to 2', 'unknown')
    """
    if isfinite(low) or isfinite(high):
        write = shown or number
        ends = (write(end) if isfinite(end) else number(end) for end in (low, high))
        return " to ".join(ends)
    return unknown


def difference(value: float, rates: bool = False) -> str:
    """A difference of two mean rewards: in percentage points where these are rates.

    Examples
    --------
    >>> difference(0.0123, rates=True), difference(0.0123)
    ('1.23 percentage points', '0.0123')
    """
    return f"{100 * value:.2f} percentage points" if rates and isfinite(value) else number(value)


def percent(share: float) -> str:
    """A share, with a decimal where it is needed.

    Examples
    --------
    >>> percent(0.95), percent(0.1234), percent(1), percent(0.0004)
    ('95 %', '12.3 %', '100 %', '0.04 %')
    """
    value = 100 * share
    digits = 1 if abs(value) >= 0.1 or value == 0 else 2
    return f"{value:.{digits}f}".removesuffix(".0") + " %"


POINTS = "percentage points"


def by_how_much(value: float, low: float, high: float, share: bool, unit: str = "") -> str:
    """A difference with its interval, as few digits as its width asks for.

    share : whether it is a share of something, which is said in per cent
    unit : the unit of a difference that is no share; those of rates are in percentage points

    Examples
    --------
    >>> by_how_much(0.0823, 0.0312, 0.1341, share=True)
    '8 % (3 to 13 %)'
    >>> by_how_much(0.0823, 0.0712, 0.0934, share=True), by_how_much(0.1, 0.0004, 0.2, share=True)
    ('8.2 % (7.1 to 9.3 %)', '10 % (0.04 to 20 %)')
    >>> by_how_much(0.5, 0.1, float("inf"), share=True), by_how_much(1.25, 0.5, 2.0, share=False)
    ('50 % (at least 10 %)', '1.25 (0.5 to 2)')
    >>> by_how_much(0.026, -0.01, 0.062, share=False, unit=POINTS)
    '3 percentage points (-1 to 6 percentage points)'
    """
    rates = share or unit == POINTS
    unit = " %" if share else f" {unit}".rstrip()
    figure = _in_percent(value, low, high) if rates else number
    said = f"{figure(value)}{unit}"
    if isfinite(low) and isfinite(high):
        return f"{said} ({figure(low)} to {figure(high)}{unit})"
    if isfinite(low):
        return f"{said} (at least {figure(low)}{unit})"
    if isfinite(high):
        return f"{said} (at most {figure(high)}{unit})"
    return f"{said} (no interval yet)"


def _in_percent(value: float, low: float, high: float) -> Callable[[float], str]:
    """Format shares that belong to an interval."""
    width = 100 * (high - low if isfinite(high - low) else 2 * abs(value))
    digits = min(max(ceil(log10(5 / width)), 0), 4) if width > 0 else 1

    def written(share: float) -> str:
        own = digits
        while own < 4 and share and not float(f"{100 * share:.{own}f}"):
            own += 1  # what differs from 0 does not look like it
        text = f"{100 * share:,.{own}f}"
        return "0" if not float(text.replace(",", "")) else text

    return written


def p_value(value: float) -> str:
    """A probability from a test."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def align_columns(rows: Sequence[Sequence[str]], align: str = "") -> list[str]:
    """Lines of text with the cells of all rows below each other.

    align : < or > for each column; by default the first one is flush left, the others right

    Examples
    --------
    >>> align_columns([("name", "visits"), ("A", "5")])
    ['name  visits', 'A          5']
    """
    align = align or "<".ljust(len(rows[0]), ">")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, align, widths, strict=True)).rstrip()
        for row in rows
    ]


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "variant"), counted(1200, "visit"), counted(2, "day was", "days were")
    ('1 variant', '1,200 visits', '2 days were')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a sentence, the first of them if there are many.

    Examples
    --------
    >>> listed(["A"]), listed(["A", "B", "C"]), listed("ABCDEF", most=2)
    ('A', 'A, B and C', 'A, B and 4 more')
    >>> listed(["size=S, hat=no", "size=L, hat=no"])
    'size=S, hat=no; and size=L, hat=no'
    """
    if len(names) > most:
        return strung(names, most)
    _, last = _between(names)
    return last.join(filter(None, [strung(names[:-1]), *names[-1:]]))


def strung(names: Sequence[str], most: int | None = None) -> str:
    """Names one after the other, with semicolons if a name has commas itself.

    Examples
    --------
    >>> strung(["A", "B", "C"]), strung(["A", "B", "C"], most=2)
    ('A, B, C', 'A, B and 1 more')
    >>> strung(["size=S, hat=no", "size=L, hat=no"])
    'size=S, hat=no; size=L, hat=no'
    """
    shown = names[:most]
    comma, last = _between(shown)
    more = len(names) - len(shown)
    return comma.join(shown) + (f"{last}{more:,} more" if more else "")


def _between(names: Sequence[str]) -> tuple[str, str]:
    """The separators between names, and before the last."""
    return ("; ", "; and ") if any("," in name for name in names) else (", ", " and ")


def when(moment: datetime) -> str:
    """A time, in UTC as stored."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def span(seconds: float) -> str:
    """A duration in the largest unit of which it is a whole number.

    Examples
    --------
    >>> span(172800), span(90 * 60), span(1.5), span(3600)
    ('2 days', '90 minutes', '1.5 seconds', '1 hour')
    """
    units = (("day", 86400), ("hour", 3600), ("minute", 60))
    unit, length = next((one for one in units if seconds % one[1] == 0), ("second", 1))
    value = seconds / length
    return f"{value:,g} {unit}{'s' * (value != 1)}"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of a sentence that lists the known words: the nearest of them, if one is near.

    Examples
    --------
    >>> did_you_mean("weekends", ["none", "weekend"])
    '; did you mean weekend?'
    >>> did_you_mean("tides", ["none", "weekend"])
    '.'
    """
    near = get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else "."


# Short names of variants, and the factors that factorial ones are made of.


NEXT_FACTOR = re.compile(", (?=[^,=]+=)")  # the comma before a factor


class _Arms(Protocol):
    """The parts of an arm set that texts need."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all arms."""
        ...

    @property
    def large(self) -> bool:
        """Whether there are too many to go through."""
        ...

    @property
    def recipe(self) -> Any:
        """The recipe of a large set."""
        ...


def factors_in(arms: _Arms) -> dict[str, tuple[str, ...]] | None:
    """The factors of an arm set; None if it is not factorial.

    A large set knows what it was made of, and is not read name by name.
    """
    if not arms.large:
        return factors_of(arms.names)
    levels = getattr(arms.recipe, "levels", None)
    return None if levels is None else dict(levels)


def factors_of(names: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """The factors that `ArmSet.factorial` made variants of, read from their names; else None.

    Levels may have commas and signs of equality in them, factors may not. The combinations of the
    levels are exactly the names again.

    Examples
    --------
    >>> factors_of(["size=S, hat=no", "size=S, hat=yes", "size=L, hat=no", "size=L, hat=yes"])
    {'size': ('S', 'L'), 'hat': ('no', 'yes')}
    >>> factors_of(["A", "B"])
    """
    rows = [[part.partition("=") for part in NEXT_FACTOR.split(name)] for name in names]
    factors = [factor for factor, _, _ in rows[0]] if rows else []
    if len(set(factors)) < max(len(factors), 2) or any(len(row) != len(factors) for row in rows):
        return None
    levels = {
        factor: tuple(dict.fromkeys(level for _, _, level in column))
        for factor, column in zip(factors, zip(*rows, strict=True), strict=True)
    }
    if any(len(column) < 2 or not all(map(str.strip, column)) for column in levels.values()):
        return None
    made = (
        ", ".join(f"{factor}={level}" for factor, level in zip(factors, row, strict=True))
        for row in product(*levels.values())
    )
    return levels if list(made) == list(names) else None


def labels_of(names: Sequence[str]) -> tuple[str, ...]:
    """Names as people say them: of factorial variants the levels alone, if that is clear.

    Examples
    --------
    >>> labels_of(["size=S, hat=no", "size=S, hat=yes", "size=L, hat=no", "size=L, hat=yes"])
    ('S + no', 'S + yes', 'L + no', 'L + yes')
    >>> labels_of(["A", "B"])
    ('A', 'B')
    """
    factors = factors_of(names)
    if factors is None:
        return tuple(names)
    labels = tuple(" + ".join(row) for row in product(*factors.values()))
    return labels if len(set(labels)) == len(labels) else tuple(names)


def shortened(value: Any) -> str:
    """The value that was given, as far as it fits into a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# Files, CSV cells, TOML, data frames


FrameLibrary = Literal["pandas", "polars"]

FORMULA = "=+-@\t\r"  # what a cell begins with that spreadsheets compute
LINE = 88  # characters of a line of TOML, up to which lists and small tables stay in one
BARE = re.compile(r"[A-Za-z0-9_-]+")
GUARDED = FORMULA + "'"  # what a text begins with that has an apostrophe put before it


def write_atomically(path: Path, content: bytes) -> Path:
    """Write into a temporary file beside `path`, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def csv_cell(text: str) -> str:
    """A text as it stands in a CSV file: an apostrophe before what may be taken for a formula.

    A text that begins with an apostrophe gets another one, so that every text can be found back.
    Only texts are guarded: a negative number stays a number.

    Examples
    --------
    >>> [csv_cell(text) for text in ("A", "=1+1", "'tis", "-5 %")]
    ['A', "'=1+1", "''tis", "'-5 %"]
    """
    return "'" + text if text[:1] and text[0] in GUARDED else text


def frame_of(columns: Mapping[str, Any], library: FrameLibrary) -> Any:
    """Columns of plain values or arrays as a data frame of that library."""
    plain = {
        name: column.tolist() if hasattr(column, "tolist") else list(column)
        for name, column in columns.items()
    }
    try:
        import narwhals

        return narwhals.from_dict(plain, backend=library).to_native()
    except ImportError as error:
        raise InvalidInputError(
            f"a data frame of {library} needs Narwhals and {library} itself ({error}); install "
            f'them: pip install "steadyarm[frames]" {library}.'
        ) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read as TOML: {error}") from None


def toml_of(values: Mapping[str, Any]) -> str:
    """A table of texts, numbers, lists and further tables as TOML; None is left out.

    Examples
    --------
    >>> print(toml_of({"name": "shop", "arms": ["A", "B"], "control": {"A": 0.2}}), end="")
    name = "shop"
    arms = ["A", "B"]
    control = { A = 0.2 }
    """
    given = {key: value for key, value in values.items() if value is not None}
    return "\n".join(_table(given, ())) + "\n"


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Lines of a table: first what fits on lines of its own, then the tables within."""
    later: list[tuple[str, Mapping[str, Any]]] = []
    for key, value in values.items():
        line = f"{_key(key)} = {_value(value)}"
        if isinstance(value, Mapping):
            if len(line) > LINE or any(isinstance(v, (Mapping, list)) for v in value.values()):
                later.append((key, value))
            else:
                yield line
        elif isinstance(value, (list, tuple)) and len(line) > LINE:
            yield from (f"{_key(key)} = [", *(f"    {_value(entry)}," for entry in value), "]")
        else:
            yield line
    for key, value in later:
        yield from ("", f"[{'.'.join(map(_key, (*path, key)))}]")
        yield from _table(value, (*path, key))


def _value(value: Any) -> str:
    """A value on one line; in JSON and TOML texts, numbers and lists of these are the same."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if not isinstance(value, (str, bool, int, float)):
        raise InvalidInputError(f"{value!r} cannot be written as TOML; expected texts and numbers.")
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007F")
    return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(text, text)


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _value(key)


# Progress on standard error


SILENT = 20  # seconds after which a stage is named again although no other has begun
REDRAW = 0.1  # seconds between two pictures of the bar
BAR = 30  # characters of the bar
WIPE = "\r\x1b[K"  # to the beginning of the line, which is wiped


class Progress:
    """A bar on a terminal; else lines where `lines` is true, and nothing where it is not.

    lines : whether to name stages where standard error is no terminal
    """

    def __init__(self, lines: bool = True) -> None:
        self._lines, self._terminal = lines, sys.stderr.isatty()
        self._said: set[str] = set()
        self._began: tuple[float, float] | None = None  # when, and what was done then
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._terminal:
            sys.stderr.write(WIPE)
            sys.stderr.flush()

    def show(self, done: float, total: float, doing: str, detail: str = "") -> None:
        """Move the bar, or name the stage that begins.

        detail : what the bar says instead of the stage
        """
        now = time.monotonic()
        if self._terminal:
            first = self._began is None
            began, before = self._began = self._began or (now, done)
            if first or now - self._last >= REDRAW:
                self._last = now
                left = _left(now - began, done - before, total - done)
                sys.stderr.write(WIPE + _bar(done / total, f"{detail or doing}{left}"))
                sys.stderr.flush()
        elif self._lines and (doing not in self._said or now - self._last > SILENT):
            self._said.add(doing)
            self._last = now
            print(f"{100 * done // total:3.0f} %: {doing}", file=sys.stderr, flush=True)


def _bar(share: float, text: str) -> str:
    """The bar and what is done, in one line of the terminal.

    Examples
    --------
    >>> _bar(0.5, "30 of 60 cells, 2 min left")
    '███████████████···············  50 %  30 of 60 cells, 2 min left'
    """
    full = int(BAR * min(share, 1))
    line = f"{'█' * full}{'·' * (BAR - full)} {100 * share:3.0f} %  {text}"
    return line[: max(shutil.get_terminal_size().columns - 1, 1)]


def _left(seconds: float, done: float, left: float) -> str:
    """The remaining time at the present speed; empty as long as it is unknown.

    Examples
    --------
    >>> _left(60, 10, 20), _left(5, 10, 8), _left(0, 0, 5)
    (', 2 min left', ', 4 s left', '')
    """
    if done <= 0 or seconds <= 0:
        return ""
    rest = seconds * left / done
    for size, name in ((3600, "h"), (60, "min")):
        if rest >= 1.5 * size:
            return f", {rest / size:.0f} {name} left"
    return f", {rest:.0f} s left"
