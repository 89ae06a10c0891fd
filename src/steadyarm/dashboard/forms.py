"""What forms send: the fields in a request's body, read once. `form` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.requests import Request

from steadyarm.service.auth import header_of
from steadyarm.service.plumbing import read_body
from steadyarm.service.problems import RefusedError

__all__ = ["SMALL", "Form", "form_of"]

KIND = "application/x-www-form-urlencoded"
KEPT = "steadyarm.form"
FIELDS = 5_000
SMALL = 8_192  # bytes of a form that anybody may send, signed in or not


@dataclass(frozen=True)
class Form:
    """The fields of a form, each with all of its values."""

    values: Mapping[str, list[str]]

    def text(self, name: str, default: str = "") -> str:
        """The last value of a field."""
        return self.values.get(name, [default])[-1]

    def all(self, name: str) -> list[str]:
        """All values of a field, in order."""
        return list(self.values.get(name, ()))


async def form_of(request: Request, most: int) -> Form:
    """The form in a request's body, read once; an empty one if the body is something else."""
    if KEPT in request.scope:
        kept: Form = request.scope[KEPT]
        return kept
    kind = header_of(request.scope, b"content-type").partition(";")[0].strip().lower()
    form = Form({})
    if kind == KIND:
        form = Form(_parsed(await read_body(request, most)))
    request.scope[KEPT] = form
    return form


def _parsed(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS
        )
    except ValueError:
        raise RefusedError(
            "malformed",
            f"The form is not text in UTF-8, or has more than {FIELDS:,} fields.",
            "Load the page anew and try again.",
        ) from None
