"""`steadyarm demo`: its world, its verdict, its files, and that it is the same every time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

import steadyarm as sa
from steadyarm.cli.demo import weekly_world
from steadyarm.cli.main import main


def test_the_demo_prints_a_verdict_writes_a_picture_and_leaves_an_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), "--trials", "20"]) == 0
    printed = capsys.readouterr().out
    assert "Verdict: show the layout" in printed
    assert "Steady" in printed
    assert "computed anew: all agree." in printed
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    url = f"sqlite:///{tmp_path}/demo.db"
    command = next(line for line in printed.splitlines() if " experiment show " in line)
    script, *words = command.split()
    assert words == f"experiment show demo --storage {url}".split()
    assert script == "steadyarm" or Path(script).is_file()
    assert "open http://127.0.0.1:8000/experiments/demo" in printed
    assert main(words) == 0
    assert "demo: stopped, created 2026-01-03" in capsys.readouterr().out
    with sa.load_experiment("demo", url) as experiment:
        assert sum(experiment.status().rewarded) == 14_000


def test_the_demo_serves_a_test_that_visitors_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    program = f"from steadyarm.cli.demo import serve; serve('sqlite:///{tmp_path}/demo.db', 1)"
    variables = {"STEADYARM_PORT": str(port), "STEADYARM_WARM": "false"}
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | variables)
    try:
        rewarded = 0
        for _ in range(600):
            time.sleep(0.1)
            with suppress(httpx2.TransportError):
                shown = httpx2.get(f"http://127.0.0.1:{port}/v1/experiments/checkout").json()
                rewarded = shown.get("totals", {}).get("rewarded", 0)
            if rewarded:
                break
        assert rewarded
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_the_demos_world_moves_and_misleads_elimination() -> None:
    world = weekly_world()
    weekend, weekday = world.means[0], world.means[5000]
    assert weekend.argmax() != world.best_arm == weekday.argmax()
    steady = sa.simulate(sa.Steady(), world, trials=60, seed=2)
    misled = sa.simulate(sa.Peace(), world, trials=60, seed=2)
    assert steady.interval(0.999)[1] < 0.25
    assert misled.interval(0.999)[0] > 0.5
