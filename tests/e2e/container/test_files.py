"""What Dockerfile, compose.yaml and docs/container.md say fits the project and each other."""

from __future__ import annotations

import re
import shlex
import tomllib

from steadyarm.service.process import GRACE
from steadyarm.service.settings import ServiceSettings
from tests.e2e.container.reading import (
    ROOT,
    compose,
    dockerfile,
    image_command,
    image_environment,
    last_stage,
    page,
    page_commands,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_build_sees_all_that_it_needs_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    first, *sent = [line for line in lines if line and not line.startswith("#")]
    assert first == "*"
    needed = {"constraints.txt", "pyproject.toml", "src", PROJECT["readme"]}
    needed |= set(PROJECT["license-files"])
    assert {line[1:] for line in sent if line.startswith("!")} == needed
    assert all((ROOT / name).exists() for name in needed)


def test_the_image_is_installed_with_the_tested_versions() -> None:
    (installing,) = [rest for name, rest in dockerfile() if name == "RUN" and "pip install" in rest]
    words = shlex.split(installing)
    assert words[words.index("--constraint") + 1] == "constraints.txt"
    wanted = re.fullmatch(r"\.\[(.+)\]", words[-1])
    assert wanted is not None
    assert set(wanted[1].split(",")) <= set(PROJECT["optional-dependencies"])
    bases = [rest.split()[0] for name, rest in dockerfile() if name == "FROM"]
    versions = {re.fullmatch(r"python:(3\.\d+)-slim-\w+", base) for base in bases}
    for version in versions:
        assert version is not None
        assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]


def test_the_image_has_no_root_and_keeps_its_data_where_it_may_write() -> None:
    steps = last_stage()
    names = [name for name, _ in steps]
    (user,) = [rest for name, rest in steps if name == "USER"]
    assert int(user) > 0
    assert names.index("USER") < names.index("CMD")
    (volume,) = [rest for name, rest in steps if name == "VOLUME"]
    created = next(rest for name, rest in steps if name == "RUN")
    assert f"--uid {user} " in created
    assert f"install --directory --owner steadyarm {volume}" in created
    variables = image_environment()
    assert variables["STEADYARM_STORAGE"] == f"sqlite:///{volume}/steadyarm.db"
    assert ("EXPOSE", variables["STEADYARM_PORT"]) in steps


def test_the_service_waits_for_its_database_and_may_finish_its_requests() -> None:
    services = compose()["services"]
    assert services["service"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert services["db"]["healthcheck"]["test"][0] == "CMD"
    grace = re.fullmatch(r"(\d+)s", services["service"]["stop_grace_period"])
    assert grace is not None
    assert int(grace[1]) > GRACE
    (port,) = services["service"]["ports"]
    assert port == f"127.0.0.1:8000:{image_environment()['STEADYARM_PORT']}"
    assert "ports" not in services["db"]
    (mount,) = services["db"]["volumes"]
    assert mount.split(":")[0] in compose()["volumes"]
    assert services["service"]["command"][:2] == image_command()


def test_no_password_is_written_down_and_none_can_be_forgotten() -> None:
    services = compose()["services"]
    password = services["db"]["environment"]["POSTGRES_PASSWORD"]
    assert services["service"]["environment"]["PGPASSWORD"] == password
    assert re.fullmatch(r"\$\{POSTGRES_PASSWORD:\?.+\}", password)
    assert any(line.startswith('echo "POSTGRES_PASSWORD=$(') for line in page_commands())


def test_what_a_proxy_needs_can_be_written_into_env() -> None:
    given = compose()["services"]["service"]["environment"]
    names = {name: value for name, value in given.items() if name.startswith("STEADYARM_")}

    def filled(**written: str) -> ServiceSettings:
        def value(found: re.Match[str]) -> str:
            return written.get(found[1], found[2])

        variables = {
            name: written[name] if text is None else re.sub(r"\$\{(\w+):-(.*)\}", value, text)
            for name, text in names.items()
            if text is not None or name in written  # without a value it is passed on if it is there
        }
        return ServiceSettings.from_environment(image_environment() | variables)

    assert (filled().https, filled().allowed_hosts) == (False, ())
    settings = filled(**dict(re.findall(r"`(STEADYARM_\w+)=([\w.]+)`", page())))
    assert (settings.https, settings.allowed_hosts) == (True, ("tests.example.org",))
    settings = filled(STEADYARM_TRUSTED_PROXIES="172.18.0.1", STEADYARM_ROOT_PATH="/ab")
    assert (settings.trusted_proxies, settings.root_path) == (("172.18.0.1",), "/ab")
