"""Formulas in TeX, drawn when the site is built: its pages need neither scripts nor fonts for them.

Documents write a formula as GitHub reads it, too: in a fence of the language "math", or within a
line as $`x^2`$. What Markdown makes of these is replaced by a drawing whose text is the TeX.
"""

from __future__ import annotations

import functools
import html
import re
import warnings

with warnings.catch_warnings():  # it opens its font in a way that Python 3.11 dislikes
    warnings.simplefilter("ignore", DeprecationWarning)
    from ziamath.zmath import Latex

__all__ = ["drawn", "with_formulas"]

SIZE = 20.0  # in which formulas are drawn; pages scale them to their text
IN_LINE = re.compile(r"\$<code>(.*?)</code>\$([.,;:)]*)", re.DOTALL)  # and what must not be alone
DISPLAYED = re.compile(r'<div class="math">(.*?)</div>', re.DOTALL)
TAG = re.compile(r'<svg xmlns="http://www.w3.org/2000/svg" width="([\d.]+)" height="([\d.]+)"')


def with_formulas(content: str) -> str:
    r"""The content of a page with its formulas drawn.

    Examples
    --------
    >>> page = with_formulas("<p>The gap $<code>\\Delta</code>$ of $5.</p>")
    >>> 'aria-label="\\Delta"' in page, page.endswith(" of $5.</p>")
    (True, True)
    """
    content = IN_LINE.sub(
        lambda found: (
            f'<span class="formula">{drawn(html.unescape(found[1]), True)}{found[2]}</span>'
        ),
        content,
    )
    return DISPLAYED.sub(
        lambda found: f'<div class="formula">{drawn(html.unescape(found[1]), False)}</div>', content
    )


@functools.cache
def drawn(tex: str, inline: bool) -> str:
    """A formula as SVG, in the size and colour of the text around it."""
    tex = " ".join(tex.split())
    formula = Latex(tex, size=SIZE, color="currentColor", inline=inline)
    lowered = formula.getyofst() / SIZE if inline else 0.0
    label = html.escape(tex, quote=True)

    def opening(found: re.Match[str]) -> str:
        width, height = (float(one) / SIZE for one in found.groups())
        style = f"width:{width:.3f}em;height:{height:.3f}em;vertical-align:{lowered:.3f}em"
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'aria-label="{label}" style="{style}"'
        )

    svg, count = TAG.subn(opening, formula.svg(), count=1)
    assert count == 1, "ziamath draws in another way than it did"
    return svg.replace('fill="black"', 'fill="currentColor"')  # of lines above letters
