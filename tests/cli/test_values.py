"""Values of variants on the command line: from a TOML file to what `ask` prints."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import TOML, Run, facts


def test_ask_shows_values(run: Run) -> None:
    values = '[values]\nnow = { price = 9 }\nshort = { price = 12, url = "/b" }\nlong = "x"\n'
    Path("test.toml").write_text(f"{TOML}\n{values}")
    run("create", "test.toml")
    found = facts(run, "ask", "shop", "u1")
    given = {"now": {"price": 9}, "short": {"price": 12, "url": "/b"}, "long": "x"}
    assert found["value"] == given[found["arm"]]
    assert facts(run, "show", "shop")["settings"]["values"] == given
    head, line = run("ask", "shop", "u2").splitlines()
    assert head.split() == ["unit", "variant", "value", "probability", "id"]
    assert any(text in line for text in ('{"price": 9}', '"url": "/b"', '"x"'))


def test_values_that_say_what_names_do_are_not_printed(run: Run) -> None:
    run("create", "test.toml")
    assert "value" not in run("ask", "shop", "u1").splitlines()[0]
    found = facts(run, "ask", "shop", "u1")
    assert found["value"] == found["arm"]
