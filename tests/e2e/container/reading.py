"""Read what Dockerfile, compose.yaml and docs/operate/container.md run, as lists of words."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def dockerfile() -> list[tuple[str, str]]:
    """Its instructions in order, continued lines joined, comments left out."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text)
    found = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), rest.strip()) for name, rest in found]


def last_stage() -> list[tuple[str, str]]:
    """The instructions of the stage that becomes the image."""
    steps = dockerfile()
    begin = max(i for i, (name, _) in enumerate(steps) if name == "FROM")
    return steps[begin:]


def image_environment() -> dict[str, str]:
    """The variables of the image."""
    words = [word for name, rest in last_stage() if name == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def image_command() -> list[str]:
    """What a container runs."""
    return _words(next(rest for name, rest in last_stage() if name == "CMD"))


def image_health() -> list[str]:
    """What tells whether a container is healthy."""
    rest = next(rest for name, rest in last_stage() if name == "HEALTHCHECK")
    return _words(rest[rest.index("CMD") + 3 :])


def compose() -> dict[str, Any]:
    """compose.yaml, variables as they are written."""
    found: dict[str, Any] = import_module("yaml").safe_load((ROOT / "compose.yaml").read_text())
    return found


def page() -> str:
    """docs/operate/container.md."""
    return (ROOT / "docs/operate/container.md").read_text()


def page_commands() -> list[str]:
    """Every line of its console blocks."""
    blocks = re.findall(r"```console\n(.*?)```", page(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def inside(service: str) -> list[list[str]]:
    """The commands that the page runs inside of a container of a service, without redirections."""
    found = []
    for line in page_commands():
        words = shlex.split(line)
        if words[:2] != ["docker", "compose"] or words[2] not in ("run", "exec"):
            continue
        given = [word for word in words[3:] if word not in ("--rm", "-T")]
        if given[0] == service:
            end = next((i for i, word in enumerate(given) if word in "<>"), len(given))
            found.append(given[1:end])
    return found


def _words(text: str) -> list[str]:
    found: list[str] = json.loads(text)
    return found
