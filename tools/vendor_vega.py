"""Write the dashboard's copy of Vega, from the one inside vl-convert: no network is needed.

Run it after an update of vl-convert or Altair, so that pages, files and notebooks draw with the
same version of Vega-Lite: python -m tools.vendor_vega
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import altair
import vl_convert

from steadyarm.plot.spec import VEGA_LITE

FILE = Path(__file__).parents[1] / "src/steadyarm/dashboard/static/vega.js"
HEAD = (
    "/* Vega {}, Vega-Lite {} and Vega-Embed {} with what they need, as vl-convert {} bundles them."
    " See NOTICE for their licences. */\n"
)


def head() -> str:
    """The first line, with the versions that are installed here."""
    return HEAD.format(
        vl_convert.get_vega_version(),
        altair.SCHEMA_VERSION.removeprefix("v"),
        vl_convert.get_vega_embed_version(),
        version("vl-convert-python"),
    )


if __name__ == "__main__":
    code = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    print(f"{FILE}: {FILE.write_text(head() + code):,} characters")
