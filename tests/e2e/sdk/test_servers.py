"""Providers for servers against a real service: the community's, unmodified, and our own."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.sdk.node import node_tests
from tests.e2e.sdk.shops import Shop


def test_the_communitys_provider_for_node(shop: Shop, tmp_path: Path) -> None:
    assigned, rewarded = shop.counts()
    env = {"STEADYARM_URL": shop.url, "STEADYARM_TOKEN": shop.token}
    assert node_tests("community.live.js", env) == 4
    assert shop.counts() == (assigned + 30, rewarded)
    log = shop.experiment().export(tmp_path / "log.csv").read_text().splitlines()
    own = [line for line in log if "community" in line]
    assert [sum(level in line for line in own) for level in ("mobile", "desktop")] == [15, 15]


def test_our_provider_for_node(shop: Shop, tmp_path: Path) -> None:
    assigned, rewarded = shop.counts()
    env = {"STEADYARM_URL": shop.url, "STEADYARM_TOKEN": shop.token}
    assert node_tests("steadyarm.live.js", env) == 4
    assert shop.counts() == (assigned + 60, rewarded + 60)
