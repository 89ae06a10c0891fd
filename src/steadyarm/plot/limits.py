"""How far the axis of values goes, for both drawers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.plot.chart import Chart, Panel, Series
from steadyarm.plot.frame import places, reaches

__all__ = ["limits_of"]

Floats = NDArray[np.float64]
Limits = tuple[float, float]

BEYOND = 1.25  # of the last interval of a line: how much is seen
EARLY = 0.2  # share of the picture in which lines may leave it, if they do not say where


def limits_of(chart: Chart) -> list[Limits | None]:
    """Of each panel's values; None to let the drawer choose.

    What comes of little data does not count. Lines: early values, and early bands, may leave the
    picture. Points: error bars that are much longer than points are apart may. Panels of points of
    the same kind have the same limits. A panel's own range goes before all this.
    """
    found = [panel.y_range or _limits(panel) for panel in chart.panels]
    kinds = {(panel.y, series.kind) for panel in chart.panels for series in panel.series}
    known = [pair for pair in found if pair is not None]
    fixed = any(panel.y_range for panel in chart.panels)
    mixed = len({kind for _, kind in kinds}) > 1 or len({y for y, _ in kinds}) > 1
    if fixed or mixed or not known:
        return found
    both = min(low for low, _ in known), max(high for _, high in known)
    return [both] * len(found)


def _limits(panel: Panel) -> Limits | None:
    if panel.y.kind == "log":
        return _around_rates(panel)
    kinds = {series.kind for series in panel.series}
    if "area" in kinds:
        return 0.0, 1.0
    if kinds & {"bars", "steps"}:
        return None
    if "points" in kinds:
        return _around_points(panel)
    return _around_lines(panel)


def _around_rates(panel: Panel) -> Limits | None:
    """On a logarithmic axis error bars may reach down to nearly nothing."""
    values = np.concatenate([series.y for series in panel.series if series.color is not None])
    ends = [series.high for series in panel.series if series.high is not None]
    seen, above = values[values > 0], np.concatenate([values, *ends])
    if not seen.size:
        return None
    low = min(float(seen.min()), panel.level or np.inf)
    high = max(float(np.nanmax(above)), panel.level or 0.0)
    return low / 2, min(1.15 * high, 1.0) if panel.y.percent else 1.15 * high


def _around_lines(panel: Panel) -> Limits | None:
    everywhere = [places(panel, series) for series in panel.series]
    seen = np.concatenate(everywhere) if everywhere else np.array([])
    if not seen.size:
        return None
    step = EARLY * (seen.max() - seen.min())
    values = []
    for x, series in zip(everywhere, panel.series, strict=True):
        if series.weak is not None:
            values += [series.y[~series.weak], _last_band(series)]
            continue
        values.append(series.y[x >= seen.min() + step])
        ends = [end for end in (series.low, series.high) if end is not None]
        values += [end[x >= seen.min() + 2 * step] for end in ends]
    return _padded(np.concatenate(values), panel.level)


def _last_band(series: Series) -> Floats:
    """Ends of the last interval and some more; those before it were wider."""
    reach = reaches(series)
    if reach is None or not np.isfinite(series.y[-1]):
        return np.zeros(0)
    down, up = (BEYOND * part[-1] for part in reach)
    return np.array([series.y[-1] - down, series.y[-1] + up])


def _around_points(panel: Panel) -> Limits | None:
    """If all are of little data, all count."""
    firm = [_firm(series) for series in panel.series]
    if not any(mask.any() for mask in firm):
        firm = [np.isfinite(series.y) for series in panel.series]
    values = np.concatenate([s.y[mask] for s, mask in zip(panel.series, firm, strict=True)])
    if not values.size:
        return None
    ends, bars = [values], []
    for series, mask in zip(panel.series, firm, strict=True):
        if (reach := reaches(series)) is not None:
            down, up = (part[mask] for part in reach)
            bars += [down, up]
            ends += [series.y[mask] - down, series.y[mask] + up]
    known = np.concatenate([*bars, np.zeros(0)])
    if np.isfinite(known).any():
        room = max(1.5 * np.ptp(values), 2.5 * float(np.nanmedian(known)))
        ends = [np.clip(np.concatenate(ends), values.min() - room, values.max() + room)]
    return _padded(np.concatenate(ends), panel.level)


def _firm(series: Series) -> NDArray[np.bool_]:
    known = np.isfinite(series.y)
    return known if series.weak is None else known & ~series.weak


def _padded(values: Floats, level: float | None) -> Limits | None:
    """With some room at both ends; a value that stands alone is seen against zero."""
    known = values[np.isfinite(values)]
    if level is not None:
        known = np.append(known, level)
    if not known.size:
        return None
    low, high = float(known.min()), float(known.max())
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return -0.06, 1.06
    room = 0.06 * (high - low)
    return low - room, high + room
