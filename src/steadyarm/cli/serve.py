"""`steadyarm serve`: the HTTP service with its pages; options and variables become settings."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from importlib import import_module
from typing import Any

from steadyarm.cli.common import STORAGE, add_command, extra

DASHBOARD = "steadyarm.dashboard.app:create_app"  # imported when it is served
PARTS = ("itsdangerous", "jinja2", "plotly")  # that the dashboard needs beyond the service
POSTGRES_WRITERS = 4  # threads; SQLite lets one write at a time anyway

OPTIONS = (
    ("--host ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)"),
    ("--port N", "port of that address (default: 8000); 0 for a free one"),
    STORAGE,
    (
        "--allowed-host NAME",
        "a name under which requests come, such as that of a proxy in front; may be repeated, and "
        "others are then refused (default: all, but through a proxy only localhost)",
        {"dest": "allowed_hosts", "action": "append"},
    ),
    ("--workers N", "number of processes (default: 1)"),
    ("--max-body N", "bytes a request may have (default: 1000000)", {"metavar": "BYTES"}),
    ("--max-batch N", "items a batch may have (default: 1000)"),
    ("--max-lease N", "positions a lease may have (default: 10000)"),
    ("--max-waiting N", "assignments and rewards that may wait to be written (default: 50000)"),
    ("--max-connections N", "open connections of each process (default: 4000)"),
    (
        "--request-timeout X",
        "seconds in which a request is answered or refused (default: 15)",
        {"metavar": "SECONDS"},
    ),
    ("--log-format text|json", "of the lines on standard output (default: text)"),
    (
        "--no-access-log",
        "do not log every request",
        {"dest": "access_log", "action": "store_false", "default": None},
    ),
)


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    add_command(commands, "serve", run, OPTIONS)


def run(args: argparse.Namespace) -> None:
    """Serve live experiments over HTTP until it is interrupted.

    Every option may be given as an environment variable instead, such as STEADYARM_PORT=80 or
    STEADYARM_ACCESS_LOG=false. Before the first token only this machine is served, and no proxy on
    it; see steadyarm token. Behind a proxy, declare the names that people use with --allowed-host.

    People open / in a browser and sign in with a token, if there is one. The interface for programs
    is described at /openapi.json; /healthz, /readyz and /metrics are for monitoring.
    """
    with extra("the service needs", "service"):
        from steadyarm.service.process import serve
        from steadyarm.service.settings import ServiceSettings

        for part in PARTS:
            import_module(part)
    given = {key: value for key, value in vars(args).items() if key not in ("run", "typed")}
    if given["allowed_hosts"] is not None:
        given["allowed_hosts"] = tuple(given["allowed_hosts"])
    settings = ServiceSettings.from_environment(os.environ, **given)
    if (settings.storage or "").startswith("postgres") and "STEADYARM_WRITERS" not in os.environ:
        settings = replace(settings, writers=POSTGRES_WRITERS)
    serve(settings, DASHBOARD)
