"""Lines of the Yahoo! log: what each says, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from steadyarm.paper import write_yahoo_log
from steadyarm.paper.yahoo_log import parse_lines

A = b"2:0.306008 3:0.000450 4:0.077048 5:0.230439 6:0.386055 1:1.000000"
B = b"2:0.421669 3:0.000011 4:0.010902 5:0.309585 6:0.257833 1:1.000000"
U = b"2:0.000012 3:0.000000 4:0.000006 5:0.000023 6:0.999958 1:1.000000"
GOOD = b"1241160900 109513 0 |user " + U + b" |109498 " + A + b" |109513 " + B


def test_the_published_example_line() -> None:
    visits, malformed = parse_lines([GOOD])
    assert malformed == []
    assert visits.users.tolist() == [[1.0, 0.000012, 0.0, 0.000006, 0.000023, 0.999958]]
    assert visits.articles.tolist() == [[1.0, 0.421669, 0.000011, 0.010902, 0.309585, 0.257833]]
    assert visits.clicks.tolist() == [0.0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not 'timestamp article click |user … |pool': ''"),
        (b"\xff\xfe\x00", "not 'timestamp article click"),
        (GOOD.split(b" |109498")[0], "not 'timestamp article click"),
        (GOOD.replace(b"109513 0 |", b"109513 |"), "not 'timestamp article click"),
        (GOOD.replace(b"1241160900", b"12411x0900"), "not 'timestamp article click"),
        (GOOD.replace(b" 0 |", b" 2 |"), "not 'timestamp article click"),
        (GOOD.replace(b"|user", b"|users"), "not 'timestamp article click"),
        (GOOD.replace(b"109513 0", b"109514 0"), "article '109514' is not in the pool"),
        (GOOD.replace(b"|109513 ", b"|109498 "), "article '109498' is twice in the pool"),
        (GOOD.replace(b"6:0.999958", b"6:0.99x958"), "not finite numbers for 1 to 6"),
        (GOOD.replace(b"6:0.999958", b"6:nan"), "not finite numbers for 1 to 6"),
        (GOOD.replace(b"6:0.999958", b"5:0.999958"), "not finite numbers for 1 to 6"),
        (GOOD.replace(b" 6:0.999958", b""), "not finite numbers for 1 to 6"),
        (GOOD.replace(b" 6:0.257833", b""), "article '109513' has the features"),
    ],
)
def test_malformed_lines_are_named_and_nothing_else_is_lost(line: bytes, reason: str) -> None:
    visits, malformed = parse_lines([GOOD, line, GOOD])
    assert [position for position, _ in malformed] == [1]
    assert reason in malformed[0][1]
    assert len(visits.clicks) == len(visits.users) == len(visits.articles) == 2


def test_only_malformed_lines_and_no_lines() -> None:
    visits, malformed = parse_lines([b"a", b"b"])
    assert (len(visits.clicks), len(malformed)) == (0, 2)
    visits, malformed = parse_lines([])
    assert visits.users.shape == (0, 6)
    assert malformed == []


@pytest.mark.parametrize(
    "line",
    [
        GOOD + b"\r",
        GOOD + b" ",
        GOOD.replace(b"2:0.000012 3:0.000000", b"3:0.000000 2:0.000012"),
        GOOD.replace(b"2:0.000012", b"2:1.2e-05"),
        GOOD.replace(b"3:0.000000", b"3:0"),
    ],
)
def test_unusual_lines_say_the_same(line: bytes) -> None:
    usual, _ = parse_lines([GOOD])
    visits, malformed = parse_lines([line])
    assert malformed == []
    assert visits.users.tolist() == usual.users.tolist()
    assert visits.articles.tolist() == usual.articles.tolist()


def test_a_whole_file_is_read_as_a_plain_parser_reads_it(tmp_path: Path) -> None:
    write_yahoo_log(tmp_path, days=(3,), lines=500, seed=5, compress=False)
    lines = next(tmp_path.iterdir()).read_bytes().splitlines()
    visits, malformed = parse_lines(lines)
    assert malformed == []
    for i, line in enumerate(lines):
        head, user, *pool = line.decode().split("|")
        shown = next(text for text in pool if text.split()[0] == head.split()[1])
        for text, row in ((user, visits.users[i]), (shown, visits.articles[i])):
            plain = {int(k): float(v) for k, v in (pair.split(":") for pair in text.split()[1:])}
            assert row.tolist() == [plain[j] for j in range(1, 7)]
        assert visits.clicks[i] == int(head.split()[2])
