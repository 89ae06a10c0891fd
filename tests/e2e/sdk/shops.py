"""Services that programs in JavaScript and pages in browsers use: real ones, with experiments."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steadyarm as sa
from steadyarm.service.auth import new_key, new_token
from steadyarm.storages import open_storage
from tests.service.clients import listening


def free_port() -> int:
    """A port that nobody listens at now."""
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
        return port


@dataclass(frozen=True)
class Shop:
    """A service that can be stopped and started again at the same address.

    Attributes
    ----------
    token : with the scope write
    keys : publishable ones by their names: `web` for pages of the shop, `elsewhere` for pages of
        another origin
    """

    folder: Path
    port: int
    token: str
    keys: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def open(self) -> Iterator[Shop]:
        with listening(_storage(self.folder), self.port):
            yield self

    def experiment(self, name: str = "shop") -> sa.Experiment:
        """An experiment as its storage has it."""
        return sa.load_experiment(name, storage=_storage(self.folder))

    def counts(self, name: str = "shop") -> tuple[int, int]:
        """How many were assigned, and how many of them have a reward."""
        status = self.experiment(name).status()
        return sum(status.assigned), sum(status.rewarded)


def create_shop(folder: Path, origin: str) -> Shop:
    """A storage with experiments of all kinds, tokens and keys; nobody serves it yet."""
    purchase = sa.Metric("purchase", role="primary", kind="yes/no", window="1h")

    def create(name: str, arms: list[str] | sa.ArmSet, **options: Any) -> None:
        rules: dict[str, Any] = {} if "metrics" in options else {"missing": "drop"}
        sa.create_experiment(
            name, arms, sa.Uniform(), 2000, _storage(folder), seed=1, **rules, **options
        )

    devices = {"device": ["mobile", "desktop"]}
    create("shop", ["A", "B", "C"], metrics=[purchase], attributes=devices)
    create("price", ["low", "high"], values={"low": 9.5, "high": 12})
    create("banner", ["off", "on"], values={"off": False, "on": True})
    create("page", sa.ArmSet.factorial({"headline": ["long", "short"], "image": ["dog", "cat"]}))
    create("draft", ["A", "B"], start=False)
    create("everywhere", ["A", "B"], bulk=True)

    shown, rate = ("shop", "price", "page", "everywhere"), 1_000_000
    made = {
        "shop": new_token("shop", "write"),
        "web": new_key("web", shown, [origin], rate),
        "elsewhere": new_key("elsewhere", shown, ["https://shop.example"], rate),
    }
    with closing(open_storage(_storage(folder))) as storage:
        for _, record in made.values():
            storage.tokens.add(record)
    keys = {name: token for name, (token, _) in made.items() if token.startswith("pk_")}
    return Shop(folder, free_port(), made["shop"][0], keys)


def _storage(folder: Path) -> str:
    return f"sqlite:///{folder}/tests.db"
