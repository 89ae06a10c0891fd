"""`steadyarm report`, and the reports of analyze and plan, as they are typed."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest

from steadyarm.cli.main import main
from tests.cli.conftest import Run
from tests.reports.worlds import Elements

Printed = pytest.CaptureFixture[str]


def test_one_file_to_be_mailed(shop: Run, capsys: Printed) -> None:
    assert main(["report", "shop", "--out", "report.html"]) == 0
    assert capsys.readouterr().out == "The report is in report.html.\n"
    page = Path("report.html").read_text()
    for outside in ("http", "<script", "<link", "@import", "url("):
        assert outside not in re.sub(r'src="data:[^"]*"', "", page)
    text = Elements(page).text
    assert text.startswith("Test report: shop")
    assert "Ship short: it beats now by 152 % (100 to 213 %)." in text
    assert "After all 600 visits, short beats now by 152 % (100 to 213 %); long is worse." in text
    assert "against now" in text
    assert "now is the control and always gets 25 %." in text
    assert "Rewards count if they happen within 2 days and arrive at most 2 days after that" in text
    assert "600 assignments, 600 rewards and" in text


def test_the_commands_in_it_give_its_fingerprint(shop: Run, capsys: Printed) -> None:
    assert main(["report", "shop", "--out", "new/report.html"]) == 0
    text = Path("new/report.html").read_text()
    export = re.search(r"steadyarm (experiment export shop shop\.csv)\nsha256sum shop\.csv", text)
    assert export is not None
    assert main(export[1].split()) == 0
    digest = hashlib.sha256(Path("shop.csv").read_bytes()).hexdigest()
    assert f"<code>{digest}</code>" in text


def test_the_name_is_enough(run: Run, capsys: Printed) -> None:
    run("create", "test.toml", "--draft")
    assert main(["report", "shop"]) == 0
    page = Path("shop.html").read_text()
    assert "Not started yet: 3 variants, 600 visits." in page
    assert "0 assignments, 0 rewards and 0 segments were computed anew" in page
    assert main(["report", "shop", "--no-replay"]) == 0
    assert "computed anew" not in Path("shop.html").read_text()
    assert capsys.readouterr().out.endswith("The report is in shop.html.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nobody"], "'nobody'"),
        (["shop", "--out", "report.pdf"], "expected a name in .html. To get PDF print the page"),
        (["shop", "--storage", "sqlite:///none.db"], "there are no experiments in"),
    ],
)
def test_mistakes_are_answered(shop: Run, capsys: Printed, words: list[str], message: str) -> None:
    before = set(Path().iterdir())
    assert main(["report", *words]) == 1
    assert message in capsys.readouterr().err
    assert set(Path().iterdir()) == before


def test_missing_extras_are_named(
    shop: Run, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main(["report", "shop"]) == 1
    assert "pip install 'steadyarm[plots]'" in capsys.readouterr().err


def test_plans_are_reported_on(tmp_path: Path, capsys: Printed) -> None:
    asked = "plan --arms 2 --sd 1 --gap 0.5 --traffic 100 --policies g-bai,a/b-test --trials 100"
    path = tmp_path / "plan.html"
    assert main([*asked.split(), "--report", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"\nThe report is in {path}.\n")
    page = Elements(path.read_text())
    assert f"steadyarm {asked} --report {path}" in page.code
    assert page.text.startswith("How long the test must be")
    assert main([*asked.split(), "--report", "plan.pdf"]) == 1
    assert "expected a name in .html" in capsys.readouterr().err
