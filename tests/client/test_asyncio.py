"""AsyncClient against a real server: the verbs of Client, many tasks, cancellation, closing."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.client import (
    AsyncClient,
    AsyncRemoteExperiment,
    Client,
    RemoteExperiment,
    RewardBuffer,
    ServiceDownError,
    is_default,
)
from steadyarm.client.pools import AsyncioPool, Request, SendingError, run
from tests.client.servers import Proxy, Scripted
from tests.service.clients import run_apart

Stored = Callable[[str], sa.Experiment]


def verbs(kind: type) -> set[str]:
    public = {name for name in dir(kind) if not name.startswith("_")}
    return {name for name in public if callable(getattr(kind, name))}


def test_both_kinds_have_the_same_verbs() -> None:
    only_there, only_here = {"count", "forget", "report", "track_many"}, {"owning", "forget"}
    assert verbs(AsyncClient) - only_there == verbs(Client) - only_here
    inner = {"assignment_in", "assignments_in", "ask_service", "known", "one_or_default"}
    properties = {"settings", "values"}
    there = verbs(AsyncRemoteExperiment) - inner - properties
    assert there == verbs(RemoteExperiment)
    for name in sorted(verbs(RemoteExperiment) - {"local", "recommend", "call"}):
        waits, awaited = getattr(RemoteExperiment, name), getattr(AsyncRemoteExperiment, name)
        assert inspect.signature(waits) == inspect.signature(awaited), name
        assert waits.__doc__ == awaited.__doc__


def test_verbs_answer_as_those_of_the_client(
    url: str, client: Client, name: str, stored: Stored, tmp_path: Path
) -> None:
    async def test() -> None:
        async with AsyncClient(url, timeout=30) as other:
            rules: dict[str, Any] = {"reward_range": (0, 1), "missing": "drop", "control": "B"}
            shop = await other.create(name, ["A", "B", "C"], budget=600, seed=3, **rules)
            assert shop is other.experiment(name)
            first = await shop.ask("u0")
            assert (first.unit, first.new, (await shop.ask("u0")).new) == ("u0", True, False)
            await shop.tell(first, 1.0)
            given = await shop.ask_many([f"u{i}" for i in range(300)])
            rewards = [
                (one, i % 2) for i, one in enumerate(given) if isinstance(one, sa.LiveAssignment)
            ]
            assert set(await shop.tell_many(rewards[1:])) == {"stored"}
            with pytest.raises(sa.RepeatedRewardError):
                await shop.tell(first.id, 0.0)
            with pytest.raises(sa.UnknownExperimentError):
                await other.experiment(f"{name}-absent").ask("u")
            with pytest.raises(sa.InvalidInputError, match="ending"):
                await shop.export(tmp_path / "log.xls")
            blocking = client.experiment(name)
            assert await shop.settings() == blocking.settings
            assert await shop.status() == blocking.status()
            assert await shop.health() == blocking.health()
            assert str(await shop.drift()) == str(blocking.drift())
            assert str(await shop.recommend(0.9)) == str(blocking.recommend(0.9))
            path = await shop.export(tmp_path / "log.csv")
            assert path.read_bytes() == blocking.export(tmp_path / "other.csv").read_bytes()
            assert (await shop.void("u1", reason="wrong")).assignments == 1
            assert await shop.corrections() == blocking.corrections()
            assert [one.name for one in await other.experiments()] == [
                one.name for one in client.experiments()
            ]
            assert (await other.audit(experiment=name))[0] == client.audit(experiment=name)[0]
            assert (await shop.pause()).state == "paused"
            assert (await shop.resume()).state == "running"
            assert (await shop.stop()).state == "stopped"

    run_apart(test())
    assert sum(stored(name).status().rewarded) == 299


def test_many_tasks_share_a_client(url: str, client: Client, name: str, stored: Stored) -> None:
    client.create(name, ["A", "B"], budget=2000, missing="drop")

    async def visit(shop: AsyncRemoteExperiment, unit: str) -> str:
        shown = await shop.ask(unit)
        await shop.tell(shown, 1.0)
        return shown.id

    async def test() -> list[str]:
        async with AsyncClient(url, timeout=30) as other:
            shop = other.experiment(name)
            ids = await asyncio.gather(*(visit(shop, f"u{i % 250}") for i in range(500)))
            return list(ids)

    ids = run_apart(test())
    assert ids[:250] == ids[250:]
    assert len(set(ids)) == 250
    status = stored(name).status()
    assert (status.total_assigned, status.total_rewarded) == (250, 250)


def test_other_tasks_go_on_while_one_waits() -> None:
    async def test() -> int:
        ticks = 0
        with Scripted(0.5) as server:
            async with AsyncClient(server.url, retries=0) as client:
                waiting = asyncio.create_task(client.experiments())
                while not waiting.done():
                    await asyncio.sleep(0.01)
                    ticks += 1
                with pytest.raises(sa.ServiceError, match="cannot be read"):
                    await waiting
        return ticks

    assert run_apart(test()) > 5


def test_cancelled_calls_leave_nothing_half_done(
    proxy: Proxy, client: Client, name: str, stored: Stored, tmp_path: Path
) -> None:
    """Cancelled where they are: waiting for a connection, for an answer, or between tries."""
    client.create(name, ["A", "B"], budget=2000, missing="drop")

    async def test() -> tuple[list[str], int]:
        other = AsyncClient(proxy.url, timeout=20, default_arm="A", buffer=tmp_path / "rewards.db")
        async with other:
            shop = other.experiment(name)
            await shop.ask("first")
            proxy.mode = "hang"  # requests wait there; connections are more than the pool has
            asks = [asyncio.create_task(shop.ask(f"u{i}")) for i in range(150)]
            tells = [asyncio.create_task(shop.tell("first", 1.0)) for _ in range(20)]
            await asyncio.sleep(0.5)
            for task in (*asks, *tells):
                task.cancel()
            ended = await asyncio.gather(*asks, *tells, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            proxy.mode = "pass"
            assert not other.transport.breaker.open  # nobody said that the service is down
            again = await asyncio.gather(*(shop.ask(f"u{i}") for i in range(150)))
            await shop.tell("first", 1.0)
            assert other.pending == 0
            assert not any(is_default(one) for one in again)
            return [one.id for one in again], other.defaulted

    ids, defaulted = run_apart(test())
    assert (len(set(ids)), defaulted) == (150, 0)
    status = stored(name).status()
    assert (status.total_assigned, status.total_rewarded) == (151, 1)


def test_a_cancelled_trial_after_an_outage_is_made_by_another(proxy: Proxy, name: str) -> None:
    async def test() -> None:
        with Client(proxy.url) as direct:
            direct.create(name, ["A", "B"], budget=10, missing="drop")
        async with AsyncClient(
            proxy.url, default_arm="A", timeout=1, retries=0, cooldown=0.2
        ) as other:
            shop = other.experiment(name)
            proxy.down()
            assert is_default(await shop.ask("u1"))
            proxy.up()
            proxy.mode = "hang"
            await asyncio.sleep(0.25)
            trial = asyncio.create_task(shop.ask("u1"))
            await asyncio.sleep(0.05)
            trial.cancel()
            assert is_default(await shop.ask("u1"))  # the one that tried ended without a result
            proxy.mode = "pass"
            await asyncio.sleep(0.25)
            assert not is_default(await shop.ask("u1"))

    run_apart(test())


def test_an_answer_that_drips_ends_in_time() -> None:
    """Each byte comes in time, the whole does not."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _byte in range(1000):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def test() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            async with AsyncClient(url, retries=0, timeout=0.3) as client:
                with pytest.raises(ServiceDownError, match="did not answer in time"):
                    await client.experiment("shop").ask("u1")
            pool = AsyncioPool(url, {})
            with pytest.raises(SendingError) as caught:
                await pool.send(Request("GET", url, None, None, 0.2))
            assert (caught.value.slow, caught.value.unsent) == (True, False)
            await pool.close()

    run_apart(test())


def test_a_default_arm_and_a_buffer_bridge_an_outage(
    proxy: Proxy, client: Client, name: str, stored: Stored, tmp_path: Path
) -> None:
    client.create(name, ["A", "B"], budget=200, missing="drop")

    async def test() -> None:
        async with AsyncClient(
            proxy.url, default_arm="B", timeout=1, cooldown=0.3, buffer=tmp_path / "rewards.db"
        ) as other:
            shop = other.experiment(name)
            given = await asyncio.gather(*(shop.ask(f"u{i}") for i in range(20)))
            proxy.down()
            await asyncio.gather(*(shop.tell(one, 1.0) for one in given[:10]))
            assert await shop.tell_many([(one, 1.0) for one in given[5:]]) == ["kept"] * 15
            with pytest.raises(sa.RepeatedRewardError):
                await shop.tell(given[0], 0.0)
            shown = await shop.ask("u99")
            assert (shown.name, is_default(shown), math.isnan(shown.probability)) == (
                "B",
                True,
                True,
            )
            await shop.tell(shown, 1.0)
            assert (other.pending, other.defaulted, other.ignored) == (20, 1, 1)
            with pytest.raises(sa.ServiceError):
                await other.flush(0.5)
            proxy.up()
            await other.flush()
            assert (other.pending, other.rejected) == (0, 0)

    run_apart(test())
    assert sum(stored(name).status().rewarded) == 20


def test_what_waits_outlives_the_client(
    proxy: Proxy, client: Client, name: str, stored: Stored, tmp_path: Path
) -> None:
    shown = client.create(name, ["A", "B"], budget=10, missing="drop").ask("u1")
    buffer = RewardBuffer(tmp_path / "rewards.db")
    proxy.down()

    async def test() -> None:
        async with AsyncClient(proxy.url, retries=0, buffer=buffer) as other:
            await other.experiment(name).tell(shown, 1.0)
            assert other.pending == 1

    run_apart(test())
    proxy.up()
    with Client(proxy.url, buffer=buffer) as later:
        later.flush()
    assert stored(name).status().total_rewarded == 1


def test_a_closed_client_says_so(url: str, client: Client, name: str) -> None:
    client.create(name, ["A", "B"], budget=10, missing="drop")

    async def test() -> None:
        with Scripted(5.0) as server:
            other = AsyncClient(server.url, timeout=4)
            waiting = asyncio.create_task(other.experiments())
            await asyncio.sleep(0.2)
            await other.close()
            began = time.monotonic()
            with pytest.raises(sa.ServiceError, match="was closed"):
                await waiting
            assert time.monotonic() - began < 3
            with pytest.raises(sa.ServiceError, match="was closed"):
                await other.experiments()
            await other.close()  # again is harmless
            assert not other.transport.breaker.open

    run_apart(test())


def test_every_loop_has_its_own_connections(url: str, client: Client, name: str) -> None:
    client.create(name, ["A", "B"], budget=10, missing="drop")
    other = AsyncClient(url)

    async def ask() -> sa.LiveAssignment:
        try:
            return await other.experiment(name).ask("u1")
        finally:
            pool = other.transport.pool
            assert isinstance(pool, AsyncioPool)
            await pool.close()
            pool.closed = False

    first, second = run_apart(ask()), run_apart(ask())
    assert first.id == second.id


def test_run_refuses_what_really_waits() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    work: Coroutine[Any, Any, None] = waits()
    with pytest.raises(RuntimeError, match="waits for something else"):
        run(work)
