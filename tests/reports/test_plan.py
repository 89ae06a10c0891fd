"""Reports on plans."""

from __future__ import annotations

import tomllib

import pytest

import steadyarm as sa
from steadyarm.reports import plan_report
from steadyarm.reports.document import Code, Items, Lead, Paragraph, Picture, Table
from steadyarm.reports.document import page as html
from tests.reports.worlds import Elements

QUESTION = {
    "traffic_per_day": 100,
    "arms": {"one_hot": ["<script>x</script>", "B"]},
    "effects": {"smallest_gap": 0.5},
    "rewards": {"sd": 1.0},
    "policies": ["g-bai", "od-linbai"],
    "error": 0.1,
}


@pytest.fixture(scope="module")
def calm() -> sa.Plan:
    return sa.plan(QUESTION, trials=100, seed=3)


def test_the_answer_comes_first(calm: sa.Plan) -> None:
    document = plan_report(calm, "steadyarm plan test.toml")
    first = document.blocks[0]
    assert isinstance(first, Lead)
    assert calm.choice is not None
    assert first.text.startswith(f"Take {calm.choice.label}: {calm.budget:,} visits in ")
    paragraphs = [block.text for block in document.blocks if isinstance(block, Paragraph)]
    assert paragraphs[0].startswith("In simulation ")
    assert calm.summary in paragraphs
    both, needs, errors, clear = (block for block in document.blocks if isinstance(block, Table))
    assert both.header[:5] == ("policy", "10 % wrong", "days", "clear then", "80 % clear")
    assert both.rows[0][4] == f"{calm.clear_budget:,}"
    assert len(clear.rows) == len(calm.budgets)
    assert [row[0] for row in needs.rows] == [
        line.label + " *" * (not line.robust) for line in calm.lines
    ]
    assert needs.rows[0][1] == f"{calm.lines[0].calm.need.budget:,}"
    assert [row[0] for row in errors.rows] == [f"{budget:,}" for budget in calm.budgets]
    assert [block.chart.name for block in document.blocks if isinstance(block, Picture)] == ["plan"]
    remarks = next(block for block in document.blocks if isinstance(block, Items))
    assert remarks.texts[0].startswith("Clear: ")
    assert remarks.texts[1].startswith("Robustness costs ")
    assert document.blocks[-1] == Code("steadyarm plan test.toml")


def test_the_file_asks_the_same(calm: sa.Plan) -> None:
    blocks = plan_report(calm).blocks
    (text,) = (b.text for b in blocks if isinstance(b, Code) and b.language == "toml")
    again = sa.Question.from_settings(tomllib.loads(text))
    assert again.to_dict() == calm.question


def test_the_file_asks_the_same_with_the_usual_policies() -> None:
    usual = {key: value for key, value in QUESTION.items() if key != "policies"}
    found = sa.plan(usual, trials=100, seed=3)
    (text,) = (
        block.text
        for block in plan_report(found).blocks
        if isinstance(block, Code) and block.language == "toml"
    )
    again = sa.Question.from_settings(tomllib.loads(text))
    assert len(again.candidates) > 2
    assert again.to_dict() == found.question


def test_a_rhythm_has_its_own_table() -> None:
    moving = sa.plan(QUESTION | {"rhythm": {"kind": "weekend"}}, trials=100, seed=3)
    tables = [block.caption for block in plan_report(moving).blocks if isinstance(block, Table)]
    assert tables == [
        "With this rhythm: visits for 10 % wrong picks and for 80 % clear answers",
        "If nothing moves: visits and days for 10 % wrong picks or fewer",
        "With this rhythm: visits and days for 10 % wrong picks or fewer",
        "Wrong picks in % by budget, with this rhythm (95 % interval)",
        "Clear answers in % by budget, with this rhythm (95 % interval)",
    ]


def test_no_policy_is_enough() -> None:
    short = sa.plan(QUESTION | {"most_days": 1, "traffic_per_day": 5}, trials=100, seed=3)
    document = plan_report(short)
    first = document.blocks[0]
    assert isinstance(first, Lead)
    assert first.text.startswith("No robust policy gets down to ")
    _, needs, *_ = (block for block in document.blocks if isinstance(block, Table))
    assert needs.rows[0][1:4] == ("> 5", "", "> 1")


def test_names_are_text(calm: sa.Plan) -> None:
    page = Elements(html(plan_report(calm)))
    assert "<script>x</script>" in page.text
    assert "script" not in {tag for tag, _ in page.found}
