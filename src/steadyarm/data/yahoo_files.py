"""The files of the Yahoo! R6A click log: which there are, and their lines block by block."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from steadyarm.errors import InvalidInputError

__all__ = ["find_files", "line_blocks"]

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
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := NAME.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(path)
    missing = [f"ydata-fp-td-clicks-v1_0.200905{day:02}.gz" for day in days if day not in found]
    if missing:
        held = ", ".join(str(day) for day in sorted(found)) or "no day"
        raise InvalidInputError(
            f"{folder} lacks {', '.join(missing)} (it holds {held} of May 2009); "
            "add the files or choose other days."
        )
    for paths in (found[day] for day in days):
        if len(paths) > 1:
            raise InvalidInputError(
                f"{folder} holds both {paths[0].name} and {paths[1].name}; keep one of them."
            )
    return {day: found[day][0] for day in days}


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
