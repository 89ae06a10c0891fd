"""How long does Python take to import SteadyArm, and a command to answer?

New processes in turn, again and again: `import numpy`, `import steadyarm`, commands that answer
from the command line alone, and verbs of an experiment in an SQLite file while no decision is due.
Printed are medians of elapsed and of processor time, each with its ratio to `import numpy`. With
`--beside` the same is measured with another version, whose folder `src` is given.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import steadyarm as sa

SOURCE = Path(sa.__file__).parents[1]
COMMAND = ("-m", "steadyarm.cli.main")
STARTS = {  # what is measured, and what Python is called with
    "import numpy": ("-c", "import numpy"),
    "import sqlalchemy": ("-c", "import sqlalchemy"),
    "import steadyarm": ("-c", "import steadyarm"),
    "steadyarm.Session": ("-c", "import steadyarm; steadyarm.Session"),
    "steadyarm --help": (*COMMAND, "--help"),
    "steadyarm --version": (*COMMAND, "--version"),
    "steadyarm plan --help": (*COMMAND, "plan", "--help"),
    "steadyarm plan --bugdet": (*COMMAND, "plan", "--bugdet"),
    "experiment list": (*COMMAND, "experiment", "list"),
    "experiment ask": (*COMMAND, "experiment", "ask", "shop", "visitor 1"),
    "experiment tell": (*COMMAND, "experiment", "tell", "shop", "visitor 1", "1"),
    "experiment show": (*COMMAND, "experiment", "show", "shop"),
}


def seconds(words: tuple[str, ...], source: Path, url: str) -> tuple[float, float]:
    """Elapsed and processor time of one new process."""
    environment = os.environ | {"PYTHONPATH": str(source), "STEADYARM_STORAGE": url}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != (2 if "--bugdet" in words else 0):
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr.decode()}")
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="processes of each kind")
    parser.add_argument("--beside", type=Path, help="the folder src of another version")
    args = parser.parse_args()
    sources = {"now": SOURCE} | ({"beside": args.beside} if args.beside else {})
    kinds = [(start, name) for name in sources for start in STARTS]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/tests.db"
        arms = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog"]})
        with sa.create_experiment(
            "shop", arms, sa.Steady(), 1000, url, reward_range=(0, 1), reward_window="1d"
        ) as shop:
            shop.tell(shop.ask("visitor 1"), 1.0)
        for attempt in range(args.rounds + 1):
            for start, name in kinds:
                spent = seconds(STARTS[start], sources[name], url)
                if attempt:  # the first one compiles what Python imports
                    found[start, name].append(spent)
    print(
        f"{'median of ' + str(args.rounds):26} {'elapsed':>9} {'ratio':>6} {'cpu':>9} {'ratio':>6}"
    )
    for name in sources:
        print(name if len(sources) > 1 else "")
        base = [statistics.median(each) for each in zip(*found["import numpy", name], strict=True)]
        for start in STARTS:
            took = [statistics.median(each) for each in zip(*found[start, name], strict=True)]
            cells = (f"{1000 * t:6.0f} ms {t / b:6.2f}" for t, b in zip(took, base, strict=True))
            print(f"  {start:24} {' '.join(cells)}")


if __name__ == "__main__":
    main()
