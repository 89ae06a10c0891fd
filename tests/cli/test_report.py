"""`steadyarm report`: one file about a live test."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from steadyarm.cli.main import main
from tests.cli.conftest import Run
from tests.reports.worlds import Elements

Printed = pytest.CaptureFixture[str]


def test_one_file_with_the_fingerprint_that_its_commands_give(shop: Run, capsys: Printed) -> None:
    assert main(["report", "shop", "--out", "new/report.html"]) == 0
    assert capsys.readouterr().out == "The report is in new/report.html.\n"
    page = Path("new/report.html").read_text()
    for outside in ("http", "<script", "<link", "@import", "url("):
        assert outside not in re.sub(r'src="data:[^"]*"', "", page)
    text = Elements(page).text
    assert text.startswith("Test report: shop")
    assert "Ship short: it beats plain by 152 % (94 to 222 %)." in text
    assert "plain is the control and always gets 25 %." in text
    assert "600 assignments, 600 rewards and" in text
    export = re.search(r"steadyarm (experiment export shop shop\.csv)\nsha256sum shop\.csv", page)
    assert export is not None
    assert main(export[1].split()) == 0
    digest = hashlib.sha256(Path("shop.csv").read_bytes()).hexdigest()
    assert f"<code>{digest}</code>" in page
