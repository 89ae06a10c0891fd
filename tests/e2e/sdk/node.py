"""The JavaScript package: built once, and programs of Node that use it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
SDK = ROOT / "sdk/js"


def run(*command: str, cwd: Path = SDK, env: Mapping[str, str] | None = None) -> str:
    """What a program prints; it must succeed."""
    program = shutil.which(command[0])
    if program is None or not (SDK / "node_modules").exists():
        raise FileNotFoundError(
            f"there is no {command[0]}, or no sdk/js/node_modules; tests of the JavaScript package "
            "need both. Install them with: make browser"
        )
    done = subprocess.run(
        [program, *command[1:]],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build() -> Path:
    """The package with its `dist` and the tests in `build`, made anew if anything has changed."""
    (SDK / "build").mkdir(exist_ok=True)
    with (SDK / "build/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = [SDK / "package.json", *SDK.glob("src/*"), *SDK.glob("test/*")]
        stamp = SDK / "build/stamp"
        newest = max(path.stat().st_mtime_ns for path in sources)
        if not stamp.exists() or stamp.read_text() != str(newest):
            for folder in ("src", "test"):
                run("node", "node_modules/typescript/bin/tsc", "--project", folder)
            stamp.write_text(str(newest))
    return SDK


def node_tests(file: str, env: Mapping[str, str] | None = None) -> int:
    """Run the tests in a file of `build`: how many there were. None may fail or be skipped."""
    said = run("node", "--test", f"build/{file}", cwd=build(), env=env)
    counts = {name: int(count) for name, count in re.findall(r"^# (\w+) (\d+)$", said, re.M)}
    assert counts["pass"] == counts["tests"], said
    assert not counts["fail"] + counts["skipped"] + counts["todo"] + counts["cancelled"], said
    return counts["pass"]
