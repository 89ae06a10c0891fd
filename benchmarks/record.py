"""Run a benchmark and keep what it prints in benchmarks/results/NAME.txt.

python -m benchmarks.record coverage_money coverage --what money --tests 2000
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("numpy", "scipy", "numba", "steadyarm")


def record(name: str, words: list[str]) -> int:
    """Run a benchmark, show what it prints, and keep it if it ends well."""
    command = ["python", "-m", f"benchmarks.{words[0]}", *words[1:]]
    facts = {
        "command": shlex.join(command),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "date": datetime.now(UTC).date().isoformat(),
    }
    began, lines = time.perf_counter(), []
    with subprocess.Popen(
        [sys.executable, *command[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    facts["seconds"] = f"{time.perf_counter() - began:.0f}"
    if process.returncode == 0:
        head = "".join(f"{key}: {value}\n" for key, value in facts.items())
        (ROOT / f"benchmarks/results/{name}.txt").write_text(f"{head}\n{''.join(lines)}")
    return process.returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", help="of the record")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="the benchmark and its options")
    args = parser.parse_args()
    sys.exit(record(args.name, args.words or [args.name]))
