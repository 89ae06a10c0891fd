"""Templates to pages: the one place where they are loaded, filled in and escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

import steadyarm
from steadyarm.dashboard.access import Viewer
from steadyarm.dashboard.filters import FILTERS
from steadyarm.dashboard.static import asset

__all__ = ["environment", "render"]


@cache
def environment() -> Environment:
    """The templates of this package; whatever they are given is shown as text."""
    made = Environment(
        loader=PackageLoader("steadyarm.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    made.globals.update(asset=asset, version=steadyarm.__version__)
    return made


def render(template: str, viewer: Viewer, status: int = 200, /, **values: Any) -> HTMLResponse:
    """The page of a template for a viewer."""
    page = environment().get_template(template)
    return HTMLResponse(page.render(viewer=viewer, **values), status)
