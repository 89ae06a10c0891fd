"""Examples that cannot lie: each runs, prints what examples/README.md says, and draws."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa

ROOT = Path(__file__).parents[2]
FOLDER, PICTURES = ROOT / "examples", ROOT / "docs" / "examples"
README = (FOLDER / "README.md").read_text()
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"
MOST_BYTES, MOST_LINES = 60_000, 90


def run(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    """What the example printed, and its variables."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(out)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = runpy.run_path(str(FOLDER / f"{name}.py"))
    return printed.getvalue().replace(str(out), "steadyarm-examples"), found


def written(name: str) -> str:
    """What the README says that the example prints."""
    found = re.search(rf"^## {name}\n\n```text\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert found is not None, f"examples/README.md does not say what {name} prints"
    return found.group(1)


@pytest.mark.parametrize("name", SCRIPTS)
def test_example_prints_what_the_readme_says_and_draws(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed, found = run(name, tmp_path / "new" / "folder", monkeypatch)
    assert printed == written(name)
    picture = (tmp_path / "new" / "folder" / f"{name}.png").read_bytes()
    assert picture.startswith(PNG)
    assert len(picture) > 5_000
    TRUTHS[name](found)


def test_every_example_has_a_truth_a_row_and_a_small_picture() -> None:
    assert sorted(TRUTHS) == SCRIPTS
    for name in SCRIPTS:
        assert f"| [{name}.py]({name}.py) |" in README
        picture = PICTURES / f"{name}.png"
        assert f"(../docs/examples/{name}.png)" in README
        assert picture.read_bytes().startswith(PNG)
        assert picture.stat().st_size < MOST_BYTES
        text = (FOLDER / f"{name}.py").read_text()
        assert len(text.splitlines()) <= MOST_LINES
        assert "?" in text.splitlines()[0], "the first line asks the question"
        assert "You will see" in text.partition("import ")[0]
    for path in NOTEBOOKS:
        assert f"({path.name})" in README


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    for target in targets:
        assert (FOLDER / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_shows_what_its_cells_print_and_what_the_script_prints(path: Path) -> None:
    """Cells are run one after the other by exec; outputs that are stored are those they print."""
    book = json.loads(path.read_text())
    assert book["nbformat"] == 4
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    scope: dict[str, Any] = {}
    everything = ""
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for target in re.findall(r"\]\(([^)#]+)\)", source):
                assert (FOLDER / target).exists(), target
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, path.name, "exec"), scope)
        stored = "".join("".join(output["text"]) for output in cell["outputs"])
        assert printed.getvalue() == stored
        everything += stored
    script = written(path.stem)
    assert everything == script[: script.index("Picture: ")]


def _ab_test(found: dict[str, Any]) -> None:
    """Best over both weeks; elimination and Thompson fail, what keeps all pages does not."""
    both = {name: found["ordinary"][name] + found["promotion"][name] for name in found["ordinary"]}
    verdict = found["session"].recommend()
    assert verdict.name == max(both, key=lambda name: both[name])
    means = np.array(list(both.values())) / 2
    assert ((verdict.intervals[:, 0] <= means) & (means <= verdict.intervals[:, 1])).all()
    assert found["session"].drift(periods=2).gap_p_value < 1e-6


def _multivariate(found: dict[str, Any]) -> None:
    """The layout whose rate, summed by hand over parts and pairs, is highest on average."""
    days = 0.0
    for weight, column in ((10 / 14, 0), (4 / 14, 1)):
        days = days + weight * _rates(found["effects"], column, found["layouts"].names)
    assert found["session"].recommend().arm == int(np.argmax(days))
    assert np.allclose(days, found["world"].average)


def _rates(effects: dict[str, Any], column: int, layouts: Any) -> Any:
    """Click rate of each layout: a part in its second version counts +, in its first -."""
    rates = []
    for layout in layouts:
        levels = dict(part.split("=") for part in layout.split(", "))
        rate = 0.0
        for effect, values in effects.items():
            sign = 1.0
            for part in effect.split(":") if effect != "(constant)" else ():
                factor, level = part.split("=")
                sign *= 1 if levels[factor] == level else -1
            rate += sign * values[column]
        rates.append(rate)
    return np.array(rates)


def _best_six(found: dict[str, Any]) -> None:
    """All 593,775 bundles are judged, and the six articles with the highest rates win."""
    assert found["bundles"].size == 593_775
    assert found["bundles"].large
    rates = found["rates"].mean(axis=0)
    top = {found["articles"][k] for k in np.argsort(-rates)[:6]}
    assert set(found["chosen"]) == top
    verdict = found["verdict"]  # of a large set its numbers are those of a short list
    best = verdict.of(verdict.arm)
    assert best.low <= np.sort(rates)[-6:].sum() <= best.high
    truth = dict(zip(found["articles"], found["truth"], strict=True))
    assert all(e.low <= truth[e.level] <= e.high for e in found["brings"].main)
    for k, name in enumerate(found["articles"]):
        assert truth[name] == pytest.approx(rates[k] - np.delete(rates, k).mean())


def _flights(found: dict[str, Any]) -> None:
    """The winner by the counted flights; who drops arms is wrong more often than not."""
    flights = found["flights"]
    winner = (flights.on_time / flights.scheduled).mean(axis=0).argmax()
    assert found["session"].recommend().arm == winner
    errors = {one.policy: one.errors for one in found["found"]}
    assert min(errors["Peace"], errors["OD-LinBAI"]) > 200 > 20 > errors["Steady"]


def _own_policy(found: dict[str, Any]) -> None:
    """The allocation by hand, and greed that costs."""
    policy = found["TwoLeaders"](share=0.5)
    state = policy.start(sa.ArmSet.one_hot(["A", "B", "C", "D"]), budget=400)
    first = policy.next_segment(state)
    assert sorted(first.weights[0].tolist()) == [0.125, 0.125, 0.375, 0.375]
    assert first.rounds.tolist() == [20]
    seen = sa.SegmentStats(np.array([[5, 5, 5, 5]]), np.array([[0.0, 9.0, 1.0, 8.0]]))
    flat = sa.Segment(np.full((1, 4), 0.25), np.array([20]))
    after = policy.next_segment(policy.observe(state, flat, seen))
    assert after.weights[0].tolist() == [0.125, 0.375, 0.125, 0.375]
    errors = {one.policy: one.errors for one in found["found"]}
    assert errors["leaders get 3/4"] > errors["leaders get 1/2"] > errors["leaders get 1/4"]


def _own_environment(found: dict[str, Any]) -> None:
    """Sums of a segment across the end of the backup have the mean that they should have."""
    world = found["world"]
    rounds = np.full(400, 1000)
    segment = sa.Segment(np.full((400, 4), 0.25), rounds)
    stats = world.play(segment, np.full(400, 4500), np.random.default_rng(3), squares=True)
    assert (stats.counts.sum(axis=1) == rounds).all()
    means = stats.sums.sum(axis=0) / stats.counts.sum(axis=0)
    expected = (world.backup + world.day) / 2  # rounds 4,500 to 5,499; the backup ends with 4,999
    spread = np.sqrt(stats.squares.sum(axis=0) / stats.counts.sum(axis=0) - means**2)
    assert (np.abs(means - expected) < 5 * spread / np.sqrt(100_000)).all()
    errors = {one.policy: one.errors for one in found["found"]}
    assert errors["Steady"] < 20 < 190 < min(errors["Peace"], errors["Sequential-Halving"])


def _hiv_results(found: dict[str, Any]) -> None:
    """What was published (Thornton 2008, abstract and Table 4): 34 % and 0.431 (0.023)."""
    analysis, published, error = found["found"], 0.431, 0.023
    assert (analysis.rows, analysis.units.units) == (2812, 119)
    assert round(100 * found["plain"]["none"]) == 34
    ours = found["share"]["money"] - found["share"]["none"]
    assert abs(ours - published) < error
    assert found["low"] < published < found["high"]
    assert published - 1.96 * error < ours < published + 1.96 * error
    amounts = found["amounts"]
    doubled = dict(zip(amounts.arms.names, amounts.estimates, strict=True))
    assert doubled["below $0.5"] > 1.7 * doubled["none"]  # "even the smallest incentive doubled"


TRUTHS = {
    "01_ab_test": _ab_test,
    "02_multivariate": _multivariate,
    "03_best_six_of_thirty": _best_six,
    "04_flights": _flights,
    "05_own_policy": _own_policy,
    "06_own_environment": _own_environment,
    "07_hiv_results": _hiv_results,
}
