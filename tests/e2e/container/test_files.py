"""Dockerfile, compose.yaml and docs/operate/container.md fit the project and each other."""

from __future__ import annotations

import re
import tomllib

from steadyarm.service.settings import ServiceSettings
from tests.e2e.container.reading import (
    ROOT,
    compose,
    image_environment,
    last_stage,
    page,
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
