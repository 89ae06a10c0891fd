"""Policies of installed packages: found by their entry points, also by a service."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.policies import policy_from
from steadyarm.policies.named import offered_policies

SWITCH = ["--world", "malicious_switch", "--set", "budget=300", "--trials", "20"]
MODULE = """
from dataclasses import dataclass
from typing import ClassVar
from tests.simulation.own import Greedy

@dataclass(frozen=True)
class Offered(Greedy):
    name: ClassVar[str] = "Offered-One"

@dataclass(frozen=True)
class Taken(Greedy):
    name: ClassVar[str] = "Steady"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Offers what `offer` writes, as a package that pip has installed would."""
    (tmp_path / "offering.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    offered_policies.cache_clear()
    yield tmp_path
    offered_policies.cache_clear()


def offer(folder: Path, value: str) -> None:
    info = folder / "offering-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[steadyarm.policies]\none = {value}\n")


def test_an_offered_policy_is_known_by_its_name_everywhere(installed: Path) -> None:
    offer(installed, "offering:Offered")
    assert policy_from("offered_one").name == "Offered-One"
    url = f"sqlite:///{installed}/tests.db"
    description = {
        "arms": ["A", "B"],
        "policy": {"name": "Offered-One", "share": 0.4},
        "budget": 50,
        "missing": "zero",
    }
    from steadyarm.live.lifecycle import create_from_description
    from steadyarm.storages import open_storage

    create_from_description("shop", description, open_storage(url))
    loaded = sa.load_experiment("shop", url)  # without giving the policy again
    assert loaded.ask("u").name in ("A", "B")
    assert sa.compare(["offered-one"], ["soare_oscillating"], 50, 10).policies == ("Offered-One",)


def test_another_process_finds_it(installed: Path) -> None:
    offer(installed, "offering:Offered")
    code = f"import sys; sys.path[:0] = [{str(installed)!r}, {str(Path(__file__).parents[2])!r}]\n"
    code += "from steadyarm.policies import policy_from; print(policy_from('offered one').name)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "Offered-One\n", found.stderr


def test_it_enters_the_papers_figures(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offer(installed, "offering:Offered")
    out = ["--out", str(installed / "out"), "--trials", "20"]
    assert main(["reproduce", "malicious", "--policies", "offered-one,g-bai", *out]) == 0
    assert "malicious,,,Offered-One,20," in (installed / "out" / "results.csv").read_text()
    assert main(["simulate", "--policy", "offered-one", "--published", *SWITCH]) == 0
    assert "Offered-One" in capsys.readouterr().out


def test_a_module_in_this_folder_is_found_by_the_installed_command(tmp_path: Path) -> None:
    """Whose interpreter does not search the current folder, unlike `python -m`."""
    (tmp_path / "mymodule.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from steadyarm import GBAI\n"
        "@dataclass(frozen=True)\n"
        "class MyPolicy(GBAI):\n"
        "    name: ClassVar[str] = 'Mine'\n"
    )
    script = Path(sys.executable).with_name("steadyarm")

    def run(*given: str) -> str:
        command = [str(script), *given, "--trials", "20"]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout

    own = ("--policies", "mymodule:MyPolicy")
    run("reproduce", "malicious", "--out", "out", "--workers", "processes", *own)
    assert "malicious,,,Mine,20," in (tmp_path / "out" / "results.csv").read_text()
    assert "Mine" in run("simulate", "--policy", "mymodule:MyPolicy", *SWITCH[:-2])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("offering:Taken", "offering offers a policy called 'Steady', and there is one"),
        ("offering:dataclass", "expected a class derived from Policy"),
        ("no_such_module:Mine", "offering offers the policy no_such_module:Mine, which cannot"),
    ],
)
def test_what_is_offered_wrongly_is_named(installed: Path, value: str, message: str) -> None:
    offer(installed, value)
    with pytest.raises(sa.InvalidInputError, match=message):
        policy_from("something")
    assert policy_from("steady") == sa.Steady()  # ours are not touched by it


def test_the_report_says_what_fails(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass, replace\n"
        "from steadyarm import GBAI\n"
        "@dataclass(frozen=True)\n"
        "class Worst(GBAI):\n"
        "    def recommend(self, state):\n"
        "        found = super().recommend(state)\n"
        "        return replace(found, arm=found.estimates.round(6).argmin(axis=1))\n"
    )

    def run(*policies: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "steadyarm.testing", *policies]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    found = run("mine:Worst")
    assert found.returncode == 1
    assert "FAILED  The policy recommends the best arm" in found.stdout
    assert "9 of 12 checks passed." in found.stdout
    assert run("mine:Missing").returncode == 2
    assert run().returncode == 2
