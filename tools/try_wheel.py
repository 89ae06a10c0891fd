"""Install a wheel in an empty environment outside the repository, and use it as a new user would.

    python tools/try_wheel.py dist/*.whl

It plays the demo, starts the service, creates a test and assigns a visitor. It needs nothing but
Python: it runs before anything of the project is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PORT = 8765
START = 60.0  # seconds that the service may take to start


def request(path: str, body: object = None) -> Any:
    """Send a request to the service and return the JSON that it answers with."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    sent = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, headers)
    with urllib.request.urlopen(sent, timeout=10) as response:
        return json.load(response)


def wait_until_ready(service: subprocess.Popen[bytes]) -> None:
    """Wait until the service answers /readyz."""
    deadline = time.monotonic() + START
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=5).close()
            return
        except OSError:
            if service.poll() is not None or time.monotonic() > deadline:
                sys.exit("The service did not start.")
            time.sleep(0.2)


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel in a new environment in the folder, and use it there."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    bin_ = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    install = [
        str(bin_ / "python"),
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]
    wanted = f"{wheel.resolve()}[service]"
    subprocess.run([*install, "--constraint", str(CONSTRAINTS), wanted], check=True)

    def steadyarm(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([bin_ / "steadyarm", *arguments], cwd=folder)

    if steadyarm("demo", "--trials", "20").wait() != 0:
        sys.exit("The demo failed.")
    service = steadyarm("serve", "--port", str(PORT))
    try:
        wait_until_ready(service)
        shop = {"name": "shop", "arms": ["A", "B"], "budget": 100, "missing": "zero"}
        request("/v1/experiments", shop)
        assigned = request("/v1/experiments/shop/assignments", {"unit": "visitor 1"})
    finally:
        service.terminate()
        service.wait()
    if assigned["arm"] not in ("A", "B"):
        sys.exit(f"The service assigned {assigned}.")
    print(f"{wheel.name} works: visitor 1 sees {assigned['arm']}.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        try_wheel(Path(sys.argv[1]), Path(temporary))
