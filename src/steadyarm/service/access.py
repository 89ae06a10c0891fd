"""The access log: a line for every request on standard output, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import Any

from starlette.types import Scope

__all__ = ["AccessLog"]

FLUSH = 0.1  # seconds that a line may wait for others


class AccessLog:
    """One line for every request on standard output, some at a time."""

    def __init__(self, form: str) -> None:
        self._form, self._lines = form, list[str]()

    def add(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        """Note a request; addresses are told as they came, in plain characters."""
        told: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": scope["method"],
            "path": scope.get("raw_path", b"").decode("ascii", "backslashreplace"),
            "status": status,
            "ms": round(1000 * seconds, 2),
            "request_id": scope["request_id"],
        }
        if self._form == "json":
            line = json.dumps(told | {"route": route, "token": scope.get("token")})
        else:
            line = "{time} {method} {path} {status} {ms} ms {request_id}".format_map(told)
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH, self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines = self._lines, []
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
