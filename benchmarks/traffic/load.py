"""Sends prepared requests over many connections, and times them.

They are sent as fast as they are answered or, if a rate is given, at that rate; then the time of a
request counts from when it was due, so that a server that stalls cannot hide it.

In a process of its own, on uvloop, with as little work per request as can be: what is measured is
the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

CONNECTIONS = 64


async def _send(
    port: int, requests: Iterator[tuple[float, bytes]], times: list[float], answers: list[bytes]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for due, request in requests:
        began = time.perf_counter()
        if due > began:
            await asyncio.sleep(due - began)
        began = due or began
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        times.append(time.perf_counter() - began)
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"{head!r} {body!r}")
        answers.append(body)
    writer.close()
    await writer.wait_closed()


def _requests(
    method: str, path: str, bodies: list[bytes], rate: float
) -> Iterator[tuple[float, bytes]]:
    """When each request is due, 0 for at once, and its bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    began = time.perf_counter()
    for i, body in enumerate(bodies):
        due = began + i / rate if rate else 0.0
        yield due, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def main(port: int, method: str, path: str, source: Path, out: Path, rate: float) -> None:
    """Send all bodies of a file, a line each; print the rate and the times, keep the answers."""
    bodies = source.read_bytes().splitlines()
    requests = _requests(method, path, bodies, rate)
    times: list[float] = []
    answers: list[bytes] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(CONNECTIONS, len(bodies))):
            tasks.create_task(_send(port, requests, times, answers))
    seconds = time.perf_counter() - began
    out.write_bytes(b"\n".join(answers))
    times.sort()
    at = [times[int(share * (len(times) - 1))] for share in (0.5, 0.99)]
    print(json.dumps({"rate": len(times) / seconds, "p50": at[0], "p99": at[1]}))


if __name__ == "__main__":
    port, method, path, source, out, rate = sys.argv[1:]
    uvloop.run(main(int(port), method, path, Path(source), Path(out), float(rate)))
