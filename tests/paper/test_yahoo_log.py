"""The Yahoo! log in one pass: the same sums whatever the blocks, in constant memory."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.paper import read_yahoo, write_yahoo_log, yahoo_log
from steadyarm.paper.yahoo_log import outer_products, parse_lines
from tests.paper.conftest import Week

FIRST = "ydata-fp-td-clicks-v1_0.20090501"


def log_of(folder: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    (folder / FIRST).write_bytes(b"\n".join(lines) + end)
    return folder


@pytest.fixture
def lines(week: Week) -> list[bytes]:
    with gzip.open(week.folder / f"{FIRST}.gz") as file:
        return file.read().splitlines()


def test_the_sums_are_those_of_all_visits(week: Week, lines: list[bytes]) -> None:
    visits, _ = parse_lines(lines)
    X, y = outer_products(visits.users, visits.articles), visits.clicks
    day = week.log[0]
    assert (day.day, day.lines, day.visits, day.malformed) == (1, 4000, 4000, 0)
    assert day.clicks == y.sum()
    np.testing.assert_allclose(day.moments.x, X.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(day.moments.xx, X.T @ X, rtol=1e-12)
    np.testing.assert_allclose(day.moments.xy, X.T @ y, rtol=1e-12)
    pairs = np.hstack([visits.users, visits.articles])
    assert {tuple(row) for row in day.sample.vectors.tolist()} <= set(map(tuple, pairs.tolist()))


@pytest.mark.parametrize("block", [100, 1 << 14, 1 << 30])
def test_blocks_and_compression_change_nothing(
    week: Week,
    lines: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
) -> None:
    monkeypatch.setattr(yahoo_log, "BLOCK", block)
    (day,) = read_yahoo(log_of(tmp_path, *lines[:1000], end=b""), days=(1,))
    monkeypatch.undo()
    (whole,) = read_yahoo(log_of(tmp_path, *lines[:1000]), days=(1,))
    assert day.lines == whole.lines == 1000
    np.testing.assert_allclose(day.moments.xx, whole.moments.xx, rtol=1e-12)
    np.testing.assert_array_equal(day.sample.vectors, whole.sample.vectors)


def test_malformed_lines_are_counted_and_the_first_named(
    lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yahoo_log, "BLOCK", 3000)
    mixed = lines[:1000]
    for number in (3, 500, 501, 777, 778, 779, 1000):
        mixed[number - 1] = b"broken"
    (day,) = read_yahoo(log_of(tmp_path, *mixed), days=(1,))
    assert (day.lines, day.visits, day.malformed) == (1000, 993, 7)
    assert [text.split(":")[0] for text in day.named] == [
        f"{FIRST}, line {number}" for number in (3, 500, 501, 777, 778)
    ]


def test_too_many_malformed_lines(lines: list[bytes], tmp_path: Path) -> None:
    mixed = [*lines[:90], *[b"broken"] * 10]
    with pytest.raises(sa.InvalidInputError, match=r"10 of the first 100 .* line 91: .*'broken'"):
        read_yahoo(log_of(tmp_path, *mixed), days=(1,))
    (day,) = read_yahoo(tmp_path, days=(1,), max_malformed=0.1)
    assert day.malformed == 10
    with pytest.raises(sa.InvalidInputError, match="max_malformed is 2"):
        read_yahoo(tmp_path, days=(1,), max_malformed=2)


def test_a_wrong_file_is_given_up_before_its_end(tmp_path: Path) -> None:
    (tmp_path / f"{FIRST}.gz").write_bytes(gzip.compress(b"id,price\n" * 1_000_000, 1))
    with pytest.raises(sa.InvalidInputError, match=r"of the first 4\d\d,\d\d\d lines"):
        read_yahoo(tmp_path, days=(1,))


def test_empty_files_and_files_without_a_visit(tmp_path: Path) -> None:
    (tmp_path / f"{FIRST}.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(sa.InvalidInputError, match="0 lines and no visit"):
        read_yahoo(tmp_path, days=(1,))
    (tmp_path / f"{FIRST}.gz").write_bytes(b"")
    with pytest.raises(sa.InvalidInputError, match="0 lines and no visit"):
        read_yahoo(tmp_path, days=(1,))
    (tmp_path / f"{FIRST}.gz").write_bytes(gzip.compress(b"broken\n"))
    with pytest.raises(sa.InvalidInputError, match="1 lines and no visit"):
        read_yahoo(tmp_path, days=(1,), max_malformed=1)


def test_cut_and_foreign_gzip_files(week: Week, tmp_path: Path) -> None:
    whole = (week.folder / f"{FIRST}.gz").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    to_end, strange = "cannot be read to its end", "malformed|a line of more than|to its end"
    for content, message in (
        (whole[: len(whole) // 2], to_end),
        (whole[:-6], to_end),
        (b"1241160900 109513 0 |user", to_end),
        (bytes(flipped), strange),
    ):
        (tmp_path / f"{FIRST}.gz").write_bytes(content)
        with pytest.raises(sa.InvalidInputError, match=message):
            read_yahoo(tmp_path, days=(1,))


def test_a_line_without_end(tmp_path: Path) -> None:
    (tmp_path / f"{FIRST}.gz").write_bytes(gzip.compress(b"x" * 10_000_000, 1))
    with pytest.raises(sa.InvalidInputError, match="a line of more than 1,048,576 bytes"):
        read_yahoo(tmp_path, days=(1,))


def test_missing_repeated_and_doubled_days(week: Week, tmp_path: Path) -> None:
    with pytest.raises(sa.InvalidInputError, match=r"20090508\.gz.*holds 1, 2, 3, 4, 5, 6, 7 of"):
        read_yahoo(week.folder, days=(7, 8))
    with pytest.raises(sa.InvalidInputError, match="holds no day of May 2009"):
        read_yahoo(tmp_path)
    with pytest.raises(sa.InvalidInputError, match="none repeated"):
        read_yahoo(week.folder, days=(1, 1))
    with pytest.raises(sa.InvalidInputError, match="is not a folder"):
        read_yahoo(tmp_path / "nowhere")
    write_yahoo_log(tmp_path, days=(1,), lines=10)
    write_yahoo_log(tmp_path, days=(1,), lines=10, compress=False)
    with pytest.raises(sa.InvalidInputError, match="keep one of them"):
        read_yahoo(tmp_path, days=(1,))


def test_progress_rises_to_one(week: Week) -> None:
    told: list[tuple[str, int, float]] = []
    read_yahoo(week.folder, days=(2, 1), progress=lambda *now: told.append(now))
    shares = [share for _, _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert told[-1][:2] == (f"{FIRST}.gz", 4000)


def test_memory_does_not_grow_with_the_log(lines: list[bytes], tmp_path: Path) -> None:
    peaks = []
    for times in (1, 4):
        folder = tmp_path / str(times)
        folder.mkdir()
        (folder / f"{FIRST}.gz").write_bytes(
            gzip.compress(b"\n".join(lines * 2 * times) + b"\n", 1)
        )
        tracemalloc.start()
        read_yahoo(folder, days=(1,), candidates=500)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 40e6


def test_the_generator_refuses_nonsense(tmp_path: Path) -> None:
    with pytest.raises(sa.InvalidInputError, match="pool is 50 of 40 articles"):
        write_yahoo_log(tmp_path, pool=50)
