"""What reports on live tests say, before they are written."""

from __future__ import annotations

import hashlib
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.lifecycle import create_from_description
from steadyarm.live.replay import Replay
from steadyarm.live.scoring import scorecard_of
from steadyarm.reports import Document, experiment_report
from steadyarm.reports.analysis import MOST_COLUMNS, MOST_ROWS
from steadyarm.reports.document import (
    Code,
    Facts,
    Heading,
    Items,
    Lead,
    Note,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.reports.experiment import document_of
from steadyarm.wording import when
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


def items(document: Document) -> str:
    return "\n".join(one for b in document.blocks if isinstance(b, Items) for one in b.texts)


def code(document: Document, language: str) -> str:
    return next(b.text for b in document.blocks if isinstance(b, Code) and b.language == language)


def test_everything_is_there_in_its_order(running: sa.Experiment) -> None:
    document = experiment_report(running)
    assert document.title == "Test report: test"
    assert isinstance(document.blocks[0], Lead)
    assert document.blocks[0].text == scorecard_of(running).decision.text
    assert document.blocks[1] == Paragraph(scorecard_of(running).headline)
    facts = document.blocks[2]
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
    card = scorecard_of(running)
    verdict = card.verdict
    assert verdict is not None
    rows = table(experiment_report(running, card), "Variants from").rows
    assigned = running.status().assigned
    assert [row[0] for row in rows] == ["C", "B", "A"]
    for name, estimate, interval, share, standing in rows:
        k = running.arms.index(name)
        assert float(estimate) == pytest.approx(verdict.estimates[k], rel=1e-3)
        low, high = map(float, interval.split(" to "))
        assert [low, high] == pytest.approx(verdict.intervals[k], rel=1e-3)
        assert float(share.removesuffix(" %")) == pytest.approx(assigned[k] / 12, abs=0.051)
        others = "can still win" if name in verdict.plausible else "ruled out"
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
    blocks = document_of(scorecard_of(running), None, wrong).blocks
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


def test_the_first_rewards() -> None:
    document = experiment_report(visited(20, reward_range=None))
    assert {row[2] for row in table(document, "Variants from").rows} == {"too few rewards"}
    assert "From 18 rewards." in texts(document)
    assert "leaderboard" in pictures(document)


def test_a_finished_test_with_missing_rewards() -> None:
    live = visited(600, budget=600, told=0.9, missing="zero", reward_window="1h")
    document = experiment_report(live)
    facts = document.blocks[2]
    assert isinstance(facts, Facts)
    assert dict(facts.pairs)["Visits"] == "600 of 600 (100 %)"
    assert "Expected end" not in dict(facts.pairs)
    told = sum(live.status().rewarded)
    assert f"{told:,} of 600 rewards came, none of them too late." in texts(document)
    assert "It stays the same as long as no further reward is recorded." in texts(document)


def test_policies_of_epochs_have_no_course() -> None:
    live = visited(450, budget=600, policy=sa.Peace(), reward_range=None)
    document = experiment_report(live)
    assert texts(document).count("Peace leaves variants out on the way") == 2
    assert "leaderboard" in pictures(document)
    assert not {"estimates", "plausible", "drift"} & set(pictures(document))
    assert "Estimates come from the rewards of the last epoch alone." in items(document)
    assert "It leaves variants out on the way" in items(document)
    assert "least squares of the last epoch" in items(document)


@pytest.mark.parametrize(
    ("policy", "method"),
    [
        (sa.LinearThompson(), "posterior of all rewards"),
        (sa.TopTwoThompson(), "posterior of all rewards"),
        (sa.AdjacentBAI(), "least squares of all rewards"),
    ],
)
def test_policies_without_epochs_are_not_said_to_have_some(
    policy: sa.Policy[Any], method: str
) -> None:
    document = experiment_report(visited(200, policy=policy, reward_range=None))
    said = f"{texts(document)}\n{items(document)}"
    assert "epoch" not in said
    assert "leaves variants out" not in said
    assert "dropped" not in said
    assert said.count(f"{policy.name} does not give every variant a chance at every visit") == 2
    assert "Estimates take all rewards alike" in said
    assert f"Intervals for large samples: {method}. What must be true: Nothing drifts" in said
    assert (
        "These intervals hold for a single analysis at the end; before the end they hold only"
        in said
    )


def test_dropped_variants_are_neither_open_nor_ruled_out() -> None:
    names = ["A", "B", "C", "D", "E", "F", "G", "H"]
    policy = sa.SequentialHalving()
    live = visited(900, budget=720, arms=names, policy=policy, reward_range=None)
    card = scorecard_of(live)
    assert card.settled
    assert card.verdict is not None
    document = experiment_report(live, card)
    rows = table(document, "Variants from").rows
    gone = {row[0] for row in rows if row[4] == "dropped"}
    assert gone == {n for n, e in zip(names, card.verdict.estimates, strict=True) if np.isnan(e)}
    assert len(gone) == 6
    assert [row[4] for row in rows[2:]] == ["dropped"] * 6
    assert f"6 variants were dropped on the way: {', '.join(sorted(gone)[:5])}" in texts(document)
    assert "measured to the end but" in texts(document) or "which has the best" in texts(document)
    assert "can still win" not in texts(document)


def test_a_finished_test_is_not_open_any_more() -> None:
    document = experiment_report(visited(50, budget=50, reward_range=None))
    assert "Who may be as good" in headings(document)
    standings = [row[4] for row in table(document, "Variants from").rows]
    assert standings[0] == "best estimate"
    assert set(standings[1:]) <= {"may be as good", "ruled out"}
    assert "may be as good" in standings
    assert ", which has the best estimate, " in texts(document)
    for block in document.blocks:
        if isinstance(block, Heading | Table | Paragraph | Lead | Items):
            assert "still win" not in repr(block)


def test_a_test_that_ended_without_a_verdict_leaves_nothing_open() -> None:
    live = visited(50, told=0, reward_range=None)
    assert "Every variant can still win." in texts(experiment_report(live))
    live.stop()
    document = experiment_report(live)
    assert scorecard_of(live).verdict is None
    assert "still win" not in f"{texts(document)} {headings(document)}"
    assert "There is no verdict, so no variant is ruled out." in texts(document)


def test_what_is_read_later_is_said_to_be(running: sa.Experiment) -> None:
    assert "read just after that" in experiment_report(running, replay=False).foot
    over = experiment_report(visited(60, budget=60))
    assert "read just after that" not in over.foot
    card = scorecard_of(running)
    alone = document_of(card)
    assert alone.foot.endswith(f"{when(card.seen)}.")


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
    for caption in ("The leader over", "Estimates in every"):
        assert {row[2] for row in table(document, caption).rows} <= names


def test_bundles_have_what_each_item_brings() -> None:
    items = ["news", "sport", "food", "games"]
    document = experiment_report(visited(800, arms=sa.ArmSet.bundles(items, size=2)))
    assert "What each item brings" in headings(document)
    assert "Effects of the factors" not in headings(document)
    assert "items" in pictures(document)
    assert not {"effects", "interactions"} & set(pictures(document))
    found = table(document, "Items from the best to the worst")
    assert {row[0] for row in found.rows} == set(items)
    differences = [float(row[2]) for row in found.rows]
    assert differences == sorted(differences, reverse=True)


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


def test_a_report_tells_what_was_corrected(running: sa.Experiment) -> None:
    captions = [b.caption for b in experiment_report(running).blocks if isinstance(b, Table)]
    assert not any("corrected" in caption for caption in captions)
    running.void("visitor 7", reason="a monitor", by="ada")
    try:
        found = table(experiment_report(running), "What was corrected by hand")
        assert found.rows[0][1:] == ("reward voided", "1", "a monitor")
    finally:
        running.tell("visitor 7", 0.0)


def test_all_are_compared_with_the_control() -> None:
    arms = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog"]})
    live = visited(1200, budget=1200, arms=arms, control=arms.names[0], missing="drop")
    document, card = experiment_report(live), scorecard_of(live)
    lead, said = document.blocks[0], document.blocks[1]
    assert isinstance(lead, Lead)
    assert isinstance(said, Paragraph)
    assert lead.text.startswith("Ship long + dog: it beats short + cat by ")
    assert lead.text == card.decision.text
    assert card.decision.variant == arms.names[3]
    assert said.text.startswith("After all 1,200 visits, long + dog beats short + cat by ")
    shown = table(document, "Variants from")
    assert shown.header[3] == "against short + cat"
    cells = {row[0]: row[3] for row in shown.rows}
    assert cells["short + cat"] == "control"
    assert cells["long + dog"].startswith("+")
    assert lead.text.endswith(f"by {cells['long + dog'][1:]}.")
    assert "short + cat have their own" in texts(document)
    chart = next(b.chart for b in document.blocks if isinstance(b, Picture))
    columns = {column: k for k, column in enumerate(chart.table.header)}
    verdict = live.recommend().of(arms.names[3])
    assert chart.table.rows[0][columns["lift"]] == verdict.lift
    assert chart.table.rows[0][columns["relative lift"]] == verdict.relative
    assert "lift" not in charts_of_none()


def charts_of_none() -> tuple[str, ...]:
    """Columns of the leaderboard of a test without a control."""
    document = experiment_report(visited(300))
    return next(b.chart.table.header for b in document.blocks if isinstance(b, Picture))


def test_after_all_visits_nothing_can_still_win() -> None:
    live = visited(600, budget=600, told=0.9, missing="zero", reward_window="1h")
    card = scorecard_of(live)
    assert card.ended
    assert not card.settled
    said = texts(experiment_report(live)) + " ".join(headings(experiment_report(live)))
    assert "too early" not in said.lower()
    assert "can still win" not in said
