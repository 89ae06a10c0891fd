"""A client in a process of its own that shows variants to its visitors, again and again.

Started by path, beside shopper.py. Each answer is noted with the times between which it was made.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import cycle
from pathlib import Path

from shopper import Shopper  # type: ignore[import-not-found]  # in the folder of this script


def main(port: int, experiment: str, viewer: int, units: int, out: Path, until: Path) -> None:
    """Ask for this viewer's units in turn until the file `until` is there."""
    shopper = Shopper(port, experiment)
    with out.open("a", buffering=1) as notes:
        for i in cycle(range(units)):
            began = time.time()
            found = shopper.send("/assignments", {"unit": f"v{viewer}-{i}"}, until)
            if found is None:
                return
            status, answer = found
            seen = answer.get("unit"), answer.get("arm"), answer.get("in_test")
            notes.write(json.dumps([began, time.time(), status, *seen]) + "\n")


if __name__ == "__main__":
    port, experiment, viewer, units, out, until = sys.argv[1:]
    main(int(port), experiment, int(viewer), int(units), Path(out), Path(until))
