"""What reports on live tests say, before they are written."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.inference.otherwise import RawMeans
from steadyarm.lifecycle import create_from_description
from steadyarm.looks import look_at
from steadyarm.replay import Replay
from steadyarm.reports import Document, experiment_report
from steadyarm.reports.document import (
    Code,
    Facts,
    Heading,
    Lead,
    Note,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.reports.experiment import document_of
from steadyarm.reports.parts import MOST_COLUMNS, MOST_ROWS
from tests.reports.worlds import visited

FACTORS = {"headline": ["short", "long"], "image": ["cat", "dog"], "price": ["low", "high"]}


@pytest.fixture(scope="module")
def running() -> sa.Experiment:
    return visited(1200)


def table(document: Document, caption: str) -> Table:
    return next(
        block
        for block in document.blocks
        if isinstance(block, Table) and block.caption.startswith(caption)
    )


def pictures(document: Document) -> list[str]:
    return [block.chart.name for block in document.blocks if isinstance(block, Picture)]


def headings(document: Document) -> list[str]:
    return [b.text for b in document.blocks if isinstance(b, Heading) and b.level == 2]


def texts(document: Document) -> str:
    kinds = (Paragraph, Note, Lead)
    return "\n".join(block.text for block in document.blocks if isinstance(block, kinds))


def code(document: Document, language: str) -> str:
    return next(b.text for b in document.blocks if isinstance(b, Code) and b.language == language)


def test_everything_is_there_in_its_order(running: sa.Experiment) -> None:
    document = experiment_report(running)
    assert document.title == "Test report: test"
    assert isinstance(document.blocks[0], Lead)
    assert document.blocks[0].text == look_at(running).headline
    facts = document.blocks[1]
    assert isinstance(facts, Facts)
    assert ("Visits", "1,200 of 2,400 (50 %)") in facts.pairs
    assert dict(facts.pairs)["Policy"].startswith("Steady (more visits")
    assert headings(document) == [
        "Leaderboard",
        "Estimates over time",
        "Who was shown how often",
        "Who can still win",
        "Did the world move?",
        "Is the test healthy?",
        "What would have been concluded otherwise?",
        "Appendix: method, assumptions, checks",
    ]
    assert pictures(document) == [
        "leaderboard",
        "estimates",
        "daily",
        "allocation",
        "plausible",
        "drift",
        "waiting",
    ]
    names = [block.text for block in document.blocks if isinstance(block, Heading)]
    assert names[-6:] == [
        "How variants were chosen",
        "Which rewards count",
        "Estimates and intervals",
        "Settings",
        "The log's fingerprint",
        "The replay check",
    ]


def test_the_leaderboard_is_the_verdict(running: sa.Experiment) -> None:
    look = look_at(running)
    verdict = look.verdict
    assert verdict is not None
    rows = table(experiment_report(running, look), "Variants from").rows
    assigned = running.status().assigned
    assert [row[0] for row in rows] == ["C", "B", "A"]
    for name, estimate, interval, share, standing in rows:
        k = running.arms.index(name)
        assert float(estimate) == pytest.approx(verdict.estimates[k], rel=1e-3)
        low, high = map(float, interval.split(" to "))
        assert [low, high] == pytest.approx(verdict.intervals[k], rel=1e-3)
        assert float(share.removesuffix(" %")) == pytest.approx(assigned[k] / 12, abs=0.051)
        others = "yes" if name in verdict.plausible else "no"
        assert standing == ("leads" if k == verdict.arm else others)


def test_the_fingerprint_is_that_of_the_exported_file(
    running: sa.Experiment, tmp_path: Path
) -> None:
    path = running.export(tmp_path / "test.csv")
    document = experiment_report(running)
    assert code(document, "text") == hashlib.sha256(path.read_bytes()).hexdigest()
    commands = [b.text for b in document.blocks if isinstance(b, Code)]
    assert "steadyarm experiment export test test.csv\nsha256sum test.csv" in commands
    assert f"CSV file, {path.read_text().count(chr(10)) - 1:,} rows." in texts(document)


def test_the_replay_check(running: sa.Experiment) -> None:
    says = "1,200 assignments, 1,200 rewards and"
    assert says in texts(experiment_report(running))
    assert says not in texts(experiment_report(running, replay=False))
    wrong = Replay(3, 2, 1, ("the sum of <A> differs",))
    blocks = document_of(look_at(running), "no reason", None, wrong).blocks
    assert any(
        isinstance(b, Note) and b.status == "fail" and "do not agree" in b.text for b in blocks
    )


def test_the_settings_create_the_same_test() -> None:
    control: dict[str, Any] = {"control": {"A": 0.2}, "reward_window": "2d", "missing": "zero"}
    live = visited(0, direction="minimize", policy=sa.Steady(robustness=0.8), **control)
    description = tomllib.loads(code(experiment_report(live), "toml"))
    again = create_from_description(description.pop("name"), description, "memory")
    assert again.settings == live.settings


def test_a_draft_without_data() -> None:
    document = experiment_report(visited(0, start=False))
    assert pictures(document) == []
    assert "Not started yet" in texts(document)
    assert headings(document) == ["Leaderboard", "Appendix: method, assumptions, checks"]
    assert table(document, "The variants").rows == (
        ("A", "0", "0"),
        ("B", "0", "0"),
        ("C", "0", "0"),
    )


def test_one_reward() -> None:
    document = experiment_report(visited(1, reward_range=None))
    assert {row[2] for row in table(document, "Variants from").rows} == {"unknown"}
    assert "From 1 reward." in texts(document)
    assert "leaderboard" in pictures(document)


def test_a_finished_test_with_missing_rewards() -> None:
    live = visited(600, budget=600, told=0.9, missing="zero", reward_window="1h")
    document = experiment_report(live)
    facts = document.blocks[1]
    assert isinstance(facts, Facts)
    assert dict(facts.pairs)["Visits"] == "600 of 600 (100 %)"
    assert "Expected end" not in dict(facts.pairs)
    told = sum(live.status().rewarded)
    assert f"{told:,} of 600 rewards came, none of them too late." in texts(document)
    assert "It stays the same as long as no reward is told any more." in texts(document)


def test_policies_of_epochs_have_no_course() -> None:
    live = visited(450, budget=600, policy=sa.Peace(), reward_range=None)
    document = experiment_report(live)
    assert "Peace leaves variants out on the way" in texts(document)
    assert "leaderboard" in pictures(document)
    assert not {"estimates", "plausible", "drift"} & set(pictures(document))
    assert "its rewards cannot be read in other ways without bias." in texts(document)


def test_factorial_tests_have_effects() -> None:
    document = experiment_report(visited(800, arms=sa.ArmSet.factorial(FACTORS)))
    assert "Effects of the factors" in headings(document)
    assert {"effects", "interactions"} <= set(pictures(document))
    main = table(document, "What each level does").rows
    assert [row[:2] for row in main] == [
        (factor, level) for factor, levels in FACTORS.items() for level in levels
    ]
    assert len(table(document, "How far pairs").rows) == 3
    assert "Variants are named by their levels of headline, image and price." in texts(document)
    names = {" + ".join(row) for row in product(*FACTORS.values())}
    for caption in ("Variants from", "Visits by"):
        assert {row[0] for row in table(document, caption).rows} == names
    for caption in ("Who led", "Estimates in every"):
        assert {row[2] for row in table(document, caption).rows} <= names
    assert {row[1] for row in table(document, "The same rewards").rows} <= names


def test_tables_of_many_variants_are_cut() -> None:
    names = [f"variant {k}" for k in range(200)]
    document = experiment_report(visited(1000, arms=names, budget=4000))
    tables = [block for block in document.blocks if isinstance(block, Table)]
    assert max(len(found.rows) for found in tables) == MOST_ROWS
    assert max(len(found.header) for found in tables) == 3 + MOST_COLUMNS
    note = table(document, "Variants from").note
    assert note.startswith("The first 40 of 200 variants are shown. Of the others ")
    found = next(b.chart for b in document.blocks if isinstance(b, Picture))
    assert "are not drawn" in found.note
    assert code(document, "toml").count("variant ") == 200


def test_simpson_is_warned_of() -> None:
    look = look_at(visited(200))
    other = visited(200).otherwise()
    assert other.raw is not None
    raw = RawMeans(other.raw.means, "B", 0.1, (0.05, 0.15))
    document = document_of(look, replace(other, raw=raw))
    assert "Plain means put another variant first" in texts(document)
    rows = table(document, "The same rewards").rows
    assert rows[0] == ("plain means", "B", "behind by 0.1, 0.05 to 0.15")
    close = replace(raw, interval=(-0.1, 0.2))
    assert "too close to tell" in texts(document_of(look, replace(other, raw=close)))
