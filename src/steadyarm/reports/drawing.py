"""Where pictures come from: the drawer of the extra `plots`, or a message that names it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

from steadyarm.errors import MissingExtraError
from steadyarm.plot.chart import Chart

__all__ = ["Drawer", "drawer"]


class Backend(Protocol):
    """Draws charts as static pictures."""

    def png(self, chart: Chart) -> bytes:
        """Dots."""

    def svg(self, chart: Chart) -> bytes:
        """Lines."""


@dataclass(frozen=True)
class Drawer:
    """Draws without the small print, which stands below as text."""

    backend: Backend

    def png(self, chart: Chart) -> bytes:
        """As dots."""
        return self.backend.png(replace(chart, note=""))

    def svg(self, chart: Chart) -> bytes:
        """As lines."""
        return self.backend.svg(replace(chart, note=""))


def drawer() -> Drawer:
    """The drawer, found before any work is lost."""
    try:
        import matplotlib  # noqa: F401  # a clear message if it is missing

        from steadyarm.plot import matplotlib as found
    except ImportError as error:
        raise MissingExtraError(
            f"pictures in reports need {error.name}; install it with: pip install "
            "'steadyarm[plots]'"
        ) from None
    return Drawer(cast(Backend, found))
