"""The provider for servers against a real service."""

from __future__ import annotations

from tests.e2e.sdk.node import node_tests
from tests.e2e.sdk.shops import Shop


def test_the_provider_for_node(shop: Shop) -> None:
    assigned, rewarded = shop.counts()
    env = {"STEADYARM_URL": shop.url, "STEADYARM_TOKEN": shop.token}
    assert node_tests("steadyarm.live.js", env) == 3
    assert shop.counts() == (assigned + 60, rewarded + 60)
