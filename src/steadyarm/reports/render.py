"""Rendering of reports: templates, their filters, and files."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from steadyarm import __version__, wording
from steadyarm.errors import InvalidInputError
from steadyarm.plot.spec import Spec, data_url, note_of
from steadyarm.storages.records import to_datetime
from steadyarm.wording import write_atomically

ENDINGS = (".html", ".htm")
ROWS = 40  # of a table; a note says how many there are


@cache
def environment() -> Environment:
    """The environment of the templates, which escapes all values."""
    made = Environment(
        loader=PackageLoader("steadyarm.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        counted=wording.counted,
        number=wording.number,
        percent=wording.percent,
        p_value=wording.p_value,
        sentence=lambda text: f"{text[:1].upper()}{text[1:]}",
        summary=lambda policy: (inspect.getdoc(type(policy)) or "").partition("\n\n")[0],
        time=lambda micros: wording.when(to_datetime(micros)),
        when=wording.when,
    )
    made.globals.update(
        figure=figure, listed=wording.listed, most=ROWS, reach=wording.reach, version=__version__
    )
    return made


def render(template: str, **values: Any) -> str:
    """Fill in a template of a report."""
    return environment().get_template(template).render(values)


def figure(spec: Spec) -> Markup:
    """A chart as a picture inside the page, with its small print as text."""
    return Markup('<figure><img src="{}" alt="{}"><figcaption>{}</figcaption></figure>').format(
        data_url(spec), spec["description"], note_of(spec)
    )


def plus_minus(value: float, error: float) -> str:
    """An estimate with its standard error."""
    return f"{wording.number(value)} ± {f'{error:.2g}' if np.isfinite(error) else '-'}"


def check_path(path: Path) -> None:
    """Refuse a path that no report can be written to, before any work is done."""
    if path.suffix.lower() not in ENDINGS:
        raise InvalidInputError(
            f"the report is {path.name}; use a file name that ends in .html. To get a PDF, print "
            "the page."
        )
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; give the name of a file.")


def write_report(page: str, path: Path) -> Path:
    """Write a report to a file; it is never half-written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_report("<p>All is well.</p>", Path(folder) / "report.html").name)
    report.html
    """
    check_path(path)
    try:
        return write_atomically(path, page.encode())
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error}") from None
