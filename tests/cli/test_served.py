"""`steadyarm experiment --storage http://…`: the same commands against a real service."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steadyarm.cli.main import main
from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.cli.conftest import TOML, Run, facts, run_verb
from tests.client.servers import serving

METRICS = """
name = "metrics"
arms = ["A", "B"]
budget = 60
seed = 3
control = "A"

[[metrics]]
name = "bought"
role = "primary"
kind = "yes/no"
window = "2d"

[[metrics]]
name = "revenue"
kind = "money"
window = "7d"
grace = "1h"

[attributes]
device = ["mobile", "desktop"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(finished, folder / "service.db")
    return folder


@pytest.fixture(scope="module")
def token(folder: Path) -> str:
    storage = open_storage(f"sqlite:///{folder}/service.db")
    text, record = new_token("me", "admin")
    storage.add_token(record)
    storage.close()
    return text


@pytest.fixture(scope="module")
def url(folder: Path, token: str) -> Iterator[str]:
    with serving(folder) as url:
        yield url


@pytest.fixture
def there(url: str, token: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a verb against the service, in an empty folder."""
    monkeypatch.setenv("STEADYARM_STORAGE", url)
    monkeypatch.setenv("STEADYARM_TOKEN", token)
    return run


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "show shop",
        "recommend shop",
        "ask shop v1 v2",
        "recommend shop --once --level 0.9",
        "health shop",
        "drift shop --periods 3",
        "metrics shop",
        "replay shop",
        "list --format json",
        "show shop --format json",
        "recommend shop --format json",
        "health shop --format json",
        "drift shop --format json",
    ],
)
def test_results_read_as_those_of_the_database(there: Run, folder: Path, words: str) -> None:
    here = run_verb(*words.split(), "--storage", f"sqlite:///{folder}/service.db")
    assert there(*words.split()) == here


def test_a_test_from_creation_to_verdict(there: Run, tmp_path: Path) -> None:
    Path("test.toml").write_text(TOML.replace('"shop"', '"remote"'))
    said = there("create", "test.toml", "--draft")
    assert said.startswith("remote: draft, created ")
    assert "control, always 0.25" in said
    assert there("start", "remote") == "remote is running: it assigns variants.\n"
    assert "as before" not in there("ask", "remote", "visitor-1")
    assert "as before" in there("ask", "remote", "visitor-1")
    visitors = "\n".join(f"v{i}" for i in range(599))
    assigned = facts(there, "ask", "remote", "-", stdin=visitors)["assignments"]
    assert len({one["id"] for one in assigned}) == 599
    rewards = "\n".join(f"{one['id']},{int(one['arm'] == 'short')}" for one in assigned)
    assert there("tell", "remote", "-", stdin=rewards) == "599 stored, 0 repeated, 0 refused\n"
    assert there("tell", "remote", "visitor-1", "1") == "1 stored, 0 repeated, 0 refused\n"
    assert "first one counts" in there("tell", "remote", "visitor-1", "0", status=1)
    assert "is neither the id" in there("tell", "remote", "nobody", "1", status=1)
    assert "600 of 600 visits assigned" in there("show", "remote")
    assert "short" in there("recommend", "remote").splitlines()[0]
    assert facts(there, "stop", "remote")["state"] == "stopped"
    assert there("roll-out", "remote", "long", "--share", "0.5") == (
        "remote: long is rolled out to 50 % of all units.\n"
    )
    assert "long is rolled out to 50 % of all visitors" in there("show", "remote")
    assert "outside of the test" in there("ask", "remote", *(f"new-{i}" for i in range(9)))
    said = there("export", "remote", "log.csv")
    assert said.startswith("The log is in log.csv. To import it elsewhere, export it from the data")
    assert len(Path("log.csv").read_text().splitlines()) == 601
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "test.toml"]


def test_corrections_have_the_token_as_author(there: Run) -> None:
    Path("test.toml").write_text(TOML.replace('"shop"', '"wrong"'))
    assert facts(there, "create", "test.toml")["warnings"] == []
    for unit in ("a", "b", "c", "d"):
        there("ask", "wrong", unit)
        there("tell", "wrong", unit, "1")
    assert there("void", "wrong", "a", "--reason", "a mistake").startswith("wrong: 1 visit was")
    there("correct", "wrong", "b", "0.5", "--reason", "a mistake")
    entry = facts(there, "exclude", "wrong", "--unit", "c", "--reason", "a bot")["corrections"][0]
    there("include", "wrong", str(entry["entry"]), "--reason", "no bot")
    there("erase", "wrong", "d")
    assert "has no assignment in any" in there("erase", "--everywhere", "d", status=1)
    assert there("erase", "--everywhere", "a").startswith("wrong: 1 visit was")
    status = facts(there, "show", "wrong")["totals"]
    assert (status["assigned"], status["rewarded"], status["excluded"]) == (4, 3, 0)


def test_metrics_and_levels(there: Run, folder: Path) -> None:
    Path("metrics.toml").write_text(METRICS)
    there("create", "metrics.toml")
    here = run_verb("show", "metrics", "--storage", f"sqlite:///{folder}/service.db")
    assert "2 days" in here
    assert there("show", "metrics") == here
    for i in range(60):
        device = ("mobile", "desktop")[i % 2]
        there("ask", "metrics", f"u{i}", "--attribute", f"device={device}")
    rows = [f"u{i},{i % 2},{10 + i}" for i in range(60)]
    csv = "\n".join(["unit,bought,revenue", *rows])
    assert there("tell", "metrics", "-", stdin=csv) == "60 stored, 0 repeated, 0 refused\n"
    assert "revenue" in there("metrics", "metrics")
    wrong = there("metrics", "metrics", "--many", "benjamini-hochberg", status=1)
    assert "is not possible through a service" in wrong
    assert there("recommend", "metrics", "--by", "device").count("mobile") >= 1


@pytest.mark.parametrize("words", ["report shop", "storage status", "token list", "webhook list"])
def test_what_needs_the_database_says_so(
    there: Run, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 1
    assert capsys.readouterr().err.startswith("steadyarm: this needs the database itself, and the")


def test_imports_need_the_database(there: Run, shop: Run, folder: Path) -> None:
    there("export", "shop", "log.csv", "--storage", f"sqlite:///{folder}/service.db")
    said = there("import", "log.csv", "--name", "again", status=1)
    assert said.startswith("steadyarm: this needs the database itself, and the address")


def test_the_audit_log_is_read_from_the_service(
    there: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--experiment", "shop"]) == 0
    said = capsys.readouterr().out
    database = f"sqlite:///{folder}/service.db"
    assert main(["audit", "--experiment", "shop", "--storage", database]) == 0
    assert said == capsys.readouterr().out
    assert "experiment.created  shop" in said


def test_tokens_and_addresses(there: Run, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADYARM_TOKEN")
    assert "The request has no token" in there("list", status=1)
    assert "token" in there("list", "--token", "sa_wrong", status=1)
    assert there("list", "--token", token).startswith("name ")
    nowhere = there("list", "--storage", "http://127.0.0.1:9", "--token", "x", status=1)
    assert "cannot be reached" in nowhere
    assert "address of a service" in there("list", "--storage", "https://", status=1)


def test_a_service_is_reached_without_databases(url: str, token: str) -> None:
    """Neither SQLAlchemy nor a compiler is imported to ask a service."""
    program = (
        "import sys\n"
        "from steadyarm.cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "heavy = ('sqlalchemy', 'alembic', 'numba', 'matplotlib', 'starlette', 'openfeature')\n"
        "print(*(name for name in heavy if name in sys.modules), file=sys.stderr)\n"
    )
    words = ["experiment", "ask", "shop", "v1", "--format", "json"]
    found = subprocess.run(
        [sys.executable, "-c", program, *words, "--storage", url, "--token", token],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout)["unit"] == "v1"
    assert found.stderr.strip() == ""
