"""A week of generated clicks, written and read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from steadyarm.paper.datasets import YahooLog, read_yahoo
from tests.paper.clicks import write_log


@dataclass(frozen=True)
class Week:
    folder: Path
    tastes: NDArray[np.float64]
    log: YahooLog


@pytest.fixture(scope="session")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    folder = tmp_path_factory.mktemp("yahoo")
    return Week(folder, write_log(folder), read_yahoo(folder))
