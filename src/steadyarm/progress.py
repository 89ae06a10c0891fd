"""Progress: how far a long computation is, on standard error."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Self

__all__ = ["Progress"]

SILENT = 20  # seconds after which a stage is named again although no other has begun
PAUSE = 0.1  # seconds between two pictures of the bar
WIDTH = 30  # characters of the bar
CLEAR = "\r\x1b[K"  # to the beginning of the line, which is wiped


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
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def show(self, done: float, total: float, doing: str, detail: str = "") -> None:
        """Move the bar, or name the stage that begins.

        detail : what the bar says instead of the stage
        """
        now = time.monotonic()
        if self._terminal:
            first = self._began is None
            began, before = self._began = self._began or (now, done)
            if first or now - self._last >= PAUSE:
                self._last = now
                left = _left(now - began, done - before, total - done)
                sys.stderr.write(CLEAR + _bar(done / total, f"{detail or doing}{left}"))
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
    full = int(WIDTH * min(share, 1))
    line = f"{'█' * full}{'·' * (WIDTH - full)} {100 * share:3.0f} %  {text}"
    return line[: max(shutil.get_terminal_size().columns - 1, 1)]


def _left(seconds: float, done: float, left: float) -> str:
    """How long the rest takes if it goes on as before; empty as long as nothing is known.

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
