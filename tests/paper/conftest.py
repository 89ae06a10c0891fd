"""A week of generated clicks, written and read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from steadyarm.paper import YahooDay, YahooTruth, read_yahoo, write_yahoo_log


@dataclass(frozen=True)
class Week:
    folder: Path
    truth: YahooTruth
    log: list[YahooDay]


@pytest.fixture(scope="session")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    folder = tmp_path_factory.mktemp("yahoo")
    truth = write_yahoo_log(folder, lines=4000, seed=7)
    return Week(folder, truth, read_yahoo(folder))
