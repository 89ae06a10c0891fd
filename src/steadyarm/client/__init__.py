"""The client of the service: live tests from another program, over HTTP."""

from importlib.util import find_spec

from steadyarm.errors import MissingExtraError

if find_spec("httpx2") is None or find_spec("msgspec") is None:
    raise MissingExtraError(
        "the client needs httpx2 and msgspec; install them with: pip install 'steadyarm[client]'"
    )

from steadyarm.client.asyncio import AsyncClient, AsyncRemoteExperiment
from steadyarm.client.blocking import Client, RemoteExperiment
from steadyarm.client.buffer import RewardBuffer
from steadyarm.client.core import ServiceDownError

__all__ = [
    "AsyncClient",
    "AsyncRemoteExperiment",
    "Client",
    "RemoteExperiment",
    "RewardBuffer",
    "ServiceDownError",
]
