"""The client of the service: experiments from another program, over HTTP."""

from importlib.util import find_spec

from steadyarm.errors import MissingExtraError

if find_spec("msgspec") is None:
    raise MissingExtraError(
        "the client needs httpx2 and msgspec; install them with: pip install 'steadyarm[client]'"
    )

from steadyarm.client.blocking import Client, RemoteExperiment
from steadyarm.client.buffer import RewardBuffer
from steadyarm.client.client import AsyncClient
from steadyarm.client.remote import AsyncRemoteExperiment, is_default
from steadyarm.client.transport import ServiceDownError
from steadyarm.wire.responses import ListedExperiment

__all__ = [
    "AsyncClient",
    "AsyncRemoteExperiment",
    "Client",
    "ListedExperiment",
    "RemoteExperiment",
    "RewardBuffer",
    "ServiceDownError",
    "is_default",
]
