"""Run a benchmark and keep what it printed, with the machine and the command.

A record is `benchmarks/results/NAME.txt`: lines of "key: value", a blank line, the output. The
Benchmarks page is made from records by `python -m tools.docs.benchmarks`.
"""

from __future__ import annotations

import argparse
import ast
import codecs
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO

from steadyarm.files import write_atomically

__all__ = [
    "FACTS",
    "ROOT",
    "Record",
    "about",
    "cleaned",
    "read",
    "record",
    "scripts",
    "without_paths",
]

ROOT = Path(__file__).parents[1]
PACKAGES = ("numpy", "scipy", "numba", "steadyarm")
FACTS = ("machine", "system", "python", *PACKAGES)
COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
ABSOLUTE = re.compile(r"(?<![\w.~-])/([\w.+-]+)(?:/[\w.+-]*)*")


@dataclass(frozen=True)
class Record:
    """What a benchmark printed.

    Attributes
    ----------
    facts : command, machine, versions, date, seconds and load, as they stand in the file
    output : without colours and progress
    """

    facts: dict[str, str]
    output: str

    def __str__(self) -> str:
        head = "".join(f"{key}: {value}\n" for key, value in self.facts.items())
        return f"{head}\n{self.output}"


def scripts(root: Path = ROOT) -> list[str]:
    """Names of the benchmarks that can be recorded."""
    return sorted(path.stem for path in (root / "benchmarks").glob("how_*.py"))


def about(name: str, root: Path = ROOT) -> tuple[str, str]:
    """The question of a benchmark, and what it measures: both from its docstring."""
    source = (root / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    question, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    return question, rest.strip()


def read(name: str, root: Path = ROOT) -> Record | None:
    """The record of a benchmark; None if there is none."""
    path = _place(name, root)
    if not path.exists():
        return None
    head, _, output = path.read_text(encoding="utf-8").partition("\n\n")
    return Record(dict(line.split(": ", 1) for line in head.splitlines()), output)


def record(name: str, words: Sequence[str] = (), root: Path = ROOT) -> int:
    """Run a benchmark, show what it prints, keep it if it ends well.

    Returns
    -------
    its exit status; unless that is 0 an older record stays
    """
    facts = {"command": without_paths(shlex.join(["python", "-m", f"benchmarks.{name}", *words]))}
    facts |= {"machine": _machine(), "system": platform.system()}
    facts |= {"python": platform.python_version()} | {one: version(one) for one in PACKAGES}
    facts["date"] = datetime.now(UTC).date().isoformat()
    before, began = _load(), time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{name}", *words],
        cwd=root,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        printed = _passed_on(process.stdout)
    facts["seconds"] = f"{time.perf_counter() - began:.0f}"
    facts["load"] = f"{before} at the start, {_load()} at the end"
    if process.returncode == 0:
        made = Record(facts, cleaned(printed, root))
        write_atomically(_place(name, root), str(made).encode())
    return process.returncode


def cleaned(printed: str, root: Path = ROOT) -> str:
    r"""Output as it stands when all is over, without colours, progress and places on this machine.

    Examples
    --------
    >>> cleaned("\x1b[1m1 of 2\r2 of 2\r\x1b[0mdone  \nhalf\r\n")
    'done\nhalf\n'
    """
    text = COLOURS.sub("", printed).replace("\r\n", "\n")
    lines = []
    for line in without_paths(text, root).split("\n"):
        *progress, last = line.split("\r")
        if last or not progress:
            lines.append(last.rstrip())
    return "\n".join(lines).strip("\n") + "\n"


def without_paths(text: str, root: Path = ROOT) -> str:
    """Text without absolute paths of this machine, and without its name.

    Examples
    --------
    >>> without_paths(f"{ROOT / 'benchmarks/x.py'}, /usr/lib/log.csv, /healthz, 5 rows/s")
    'benchmarks/x.py, log.csv, /healthz, 5 rows/s'
    """
    text = text.replace(f"{root}{os.sep}", "").replace(str(root), ".")
    text = ABSOLUTE.sub(_last_name, text)
    host = platform.node()
    return re.sub(rf"\b{re.escape(host)}\b", "localhost", text) if host else text


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.record",
        description="Run a benchmark and keep what it prints in benchmarks/results/.",
    )
    parser.add_argument("--list", action="store_true", help="say what there is to run")
    parser.add_argument("name", nargs="?", choices=scripts(), metavar="NAME", help="how_…")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="…", help="what it is given")
    args = parser.parse_args(words)
    if args.list:
        for name in scripts():
            known = read(name)
            when = f"recorded {known.facts['date']}" if known else "not recorded yet"
            print(f"{name}  ({when})\n    {about(name)[0]}")
        return 0
    if args.name is None:
        parser.error("no NAME is given; --list says which there are")
    status = record(args.name, args.words)
    place = _place(args.name, ROOT).relative_to(ROOT)
    said = f"Recorded in {place}." if status == 0 else f"It ended with {status}: {place} stays."
    print(said, file=sys.stderr)
    return status


def _place(name: str, root: Path) -> Path:
    return root / "benchmarks" / "results" / f"{name}.txt"


def _passed_on(source: IO[bytes]) -> str:
    """All that comes, written on as soon as it comes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts = []
    while chunk := os.read(source.fileno(), 65_536):
        parts.append(decoder.decode(chunk))
        sys.stdout.write(parts[-1])
        sys.stdout.flush()
    return "".join(parts)


def _last_name(path: re.Match[str]) -> str:
    """Of a path that leads somewhere on this machine; others may be parts of a URL."""
    there = Path("/", path[1]).exists()
    return path[0].rstrip("/").rpartition("/")[2] if there else path[0]


def _machine() -> str:
    """Processor, cores and memory.

    Examples
    --------
    >>> "core" in _machine()
    True
    """
    cores = os.cpu_count() or 1
    said = f"{_processor()}, {cores} core{'s' * (cores > 1)}"
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        said += f", {size / 1e9:.0f} GB of memory"
    return said


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    for line in known.read_text().splitlines() if known.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _load() -> str:
    """Of the last minute: how many processes wanted a core."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"


if __name__ == "__main__":
    sys.exit(main())
