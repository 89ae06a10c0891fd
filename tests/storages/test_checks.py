"""Every check of storages on SQLite and PostgreSQL; one of them in memory."""

from __future__ import annotations

import pytest

from steadyarm.storages import open_storage
from steadyarm.testing.storages import CHECKS, Open, run_check
from steadyarm.testing.storages.bench import Check
from steadyarm.testing.storages.experiments import check_decide


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(check: Check, open_fresh: Open) -> None:
    run_check(check, open_fresh)


def test_a_storage_in_memory_works() -> None:
    storage = open_storage("memory")
    run_check(check_decide, lambda: storage)
    storage.close()
