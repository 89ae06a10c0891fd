"""SteadyArmProvider with OpenFeature's SDK against a real server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from openfeature.track import TrackingEventDetails

from steadyarm.openfeature import SteadyArmProvider
from tests.client.conftest import Create, Proxy
from tests.service.clients import run_apart

ANN = EvaluationContext("ann", {"device": "mobile", "spend": 41.0, "hair": "red"})


@contextmanager
def provided(url: str, **given: Any) -> Iterator[tuple[OpenFeatureClient, SteadyArmProvider]]:
    """A client of OpenFeature with the provider; the one line that a program changes."""
    provider = SteadyArmProvider(url, **({"timeout": 20} | given))
    api.set_provider(provider)
    try:
        yield api.get_client(), provider
    finally:
        api.shutdown()


def test_a_whole_test_through_openfeature(create: Create, url: str) -> None:
    shop = create(budget=120, name="button", seed=3)
    with provided(url) as (flags, provider):
        seen = {}
        for i in range(120):
            visitor = EvaluationContext(f"visitor {i}")
            details = flags.get_string_details("button", "A", visitor)
            assert (details.reason, details.error_code) == (Reason.SPLIT, None)
            assert details.value == details.variant
            seen[visitor.targeting_key] = details.value
            if details.value == "B":
                flags.track("button", visitor)
        assert provider.flush()
        late = flags.get_string_details("button", "A", EvaluationContext("visitor 120"))
        assert (late.reason, late.error_code) == (Reason.STATIC, None)
        shop.stop()
        draft = create(name="draft", start=False)
        disabled = flags.get_string_details(draft.name, "mine", visitor)
        assert (disabled.value, disabled.reason) == ("mine", Reason.DISABLED)
        assert disabled.error_code is None
    rewards = {row.unit: row.reward for row in shop.storage.log(shop.key)}
    assert rewards == {unit: 1.0 if name == "B" else None for unit, name in seen.items()}


def test_what_the_context_says_of_a_unit_is_stored(create: Create, url: str) -> None:
    shop = create(
        name="known",
        attributes={"device": ["mobile", "desktop"], "member": ["true", "false"]},
        covariates=["spend"],
    )
    with provided(url) as (flags, _):
        late = EvaluationContext(
            "ann", {**ANN.attributes, "member": True, "since": datetime.now(UTC)}
        )
        assert flags.get_string_details("known", "A", late).reason == Reason.SPLIT
        bad = EvaluationContext("bob", {"spend": "much"})
        details = flags.get_string_details("known", "A", bad)
        assert (details.error_code, details.value) == (ErrorCode.INVALID_CONTEXT, "A")
        details = flags.get_string_details("known", "A")
        assert (details.error_code, details.value) == (ErrorCode.TARGETING_KEY_MISSING, "A")
        details = flags.get_string_details("unknown", "A", ANN)
        assert (details.error_code, details.value) == (ErrorCode.FLAG_NOT_FOUND, "A")
    (row,) = shop.storage.log(shop.key)
    assert {event.metric for event in row.events} >= {"device=mobile", "member=true", "spend"}


def test_an_outage_is_bridged(proxy: Proxy, create: Create, tmp_path: Path) -> None:
    """Defaults at once, under asyncio too; events wait in the buffer, each counts once."""
    shop = create(name="outage")

    async def down(flags: OpenFeatureClient) -> None:
        details = await flags.get_string_details_async("outage", "mine", ANN)
        assert (details.value, details.error_code) == ("mine", ErrorCode.GENERAL)

    options: dict[str, Any] = {"timeout": 1, "cooldown": 0.5, "buffer": tmp_path / "events.db"}
    with provided(proxy.url, **options) as (flags, provider):
        first = flags.get_string_value("outage", "mine", ANN)
        assert first in ("A", "B")
        proxy.down()
        details = flags.get_string_details("outage", "mine", ANN)
        assert (details.value, details.error_code) == ("mine", ErrorCode.GENERAL)
        assert "refused" in (details.error_message or "")
        began = time.monotonic()
        run_apart(down(flags))
        assert {flags.get_string_value("outage", "mine", ANN) for _ in range(20)} == {"mine"}
        assert time.monotonic() - began < 10  # nobody waits for a service that is known to be down
        for _ in range(2):
            flags.track("reward", ANN, TrackingEventDetails(2.5))
        assert provider.client.pending == 2
        assert not provider.flush(0.2)
        proxy.up()
        assert provider.flush()
        time.sleep(0.6)
        assert flags.get_string_value("outage", "mine", ANN) == first
        flags.track("reward", ANN, TrackingEventDetails(2.5))  # again: repeated
        assert provider.flush()
        assert (provider.client.pending, provider.client.rejected, provider.lost) == (0, 0, 0)
    assert [row.reward for row in shop.storage.log(shop.key)] == [2.5]


def test_bad_and_lost_events_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with provided("http://127.0.0.1:9") as (flags, provider):
        flags.track("purchase")
        flags.track("purchase", ANN, TrackingEventDetails(float("nan")))
        flags.track("purchase", ANN, TrackingEventDetails(1.0, {"id": ""}))
        assert caplog.text.count("was not reported") == 3
        for i in range(10):
            flags.track("purchase", EvaluationContext(f"u{i}"))
        assert not provider.flush(0.1)
        assert provider.client.pending == 10
    assert provider.lost == 10
    assert "neither delivered nor kept" in caplog.text


def test_shutdown_sends_what_waits(create: Create, url: str) -> None:
    shop = create(budget=500, name="ending")
    with provided(url, timeout=20) as (flags, _):
        for i in range(60):
            flags.get_string_value("ending", "A", EvaluationContext(f"u{i}"))
            flags.track("ending", EvaluationContext(f"u{i}"), TrackingEventDetails(float(i)))
    assert shop.status().total_rewarded == 60


def test_the_sdk_is_an_extra() -> None:
    program = (
        "import sys; sys.modules['openfeature'] = None\n"
        "import steadyarm as sa\n"
        "try: import steadyarm.openfeature\n"
        "except sa.MissingExtraError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'steadyarm[openfeature]'" in found.stdout, found.stderr
