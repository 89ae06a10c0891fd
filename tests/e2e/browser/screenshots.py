"""Pictures of all pages, to look at: `python -m tests.e2e.browser.screenshots --out FOLDER`.

Every page of every world, on a phone, a laptop and a desk, in the light and in the dark; and an
index.html that shows them side by side.
"""

from __future__ import annotations

import argparse
import html
import tempfile
from collections.abc import Iterable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.chromium import SIZES, new_context, open_browser
from tests.e2e.browser.names import HOSTILE_EXPERIMENT
from tests.e2e.browser.reading import address, draw_all
from tests.e2e.browser.sites import Site, site, worlds_in
from tests.e2e.browser.worlds import WORLDS

__all__ = ["PAGES", "take", "warm"]

PAGES: dict[str, str] = {
    "overview": "/",
    "new": "/new",
    "docs": "/docs",
    **{
        ("hostile-experiment" if world.name == HOSTILE_EXPERIMENT else world.name[:30]): address(
            world.name
        )
        for world in WORLDS
    },
    "headlines-all": f"{address('headlines')}?all=1",
    "confirmation": f"{address('button-colour')}/stop",
    "numbers": f"{address('landing-page')}/charts/effects",
    "missing": "/experiments/nothing-of-that-name",
}


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description="Screenshots of all pages.")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--only", nargs="*", metavar="PAGE", help="such as overview or landing-page"
    )
    parser.add_argument("--widths", nargs="*", type=int, choices=list(SIZES), default=list(SIZES))
    args = parser.parse_args()
    expect.set_options(timeout=30_000)  # the machine may be busy
    args.out.mkdir(parents=True, exist_ok=True)
    pages = {name: path for name, path in PAGES.items() if not args.only or name in args.only}
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        worlds = worlds_in(Path(folder))
        for kind, guarded, found in (
            ("full", False, worlds),
            ("empty", False, None),
            ("guarded", True, worlds),
        ):
            place = Path(folder, kind)
            place.mkdir()
            wanted = {"full": pages, "empty": {"empty": "/"}, "guarded": {"sign-in": "/"}}[kind]
            with site(place, found, guarded) as served:
                if kind == "full":
                    warm(served)
                take(browser, served, wanted, args.out, args.widths)
    _index(args.out)
    print(f"Open {args.out / 'index.html'}")


def warm(served: Site) -> None:
    """Look at every experiment once, so that the overview knows the leaders."""
    with served.api() as api:
        for world in WORLDS:
            api.get(address(world.name)).raise_for_status()


def take(
    browser: Browser,
    served: Site,
    pages: dict[str, str],
    out: Path,
    widths: Iterable[int] = SIZES,
    shades: Iterable[bool] = (False, True),
) -> list[Path]:
    """Pictures of whole pages, as NAME-WIDTH-light.png and so on."""
    made = []
    for width in widths:
        for dark in shades:
            context = new_context(browser, served.url, width, dark)
            page = context.new_page()
            for name, path in pages.items():
                page.goto(path)
                _settle(page)
                made.append(out / f"{name}-{width}-{'dark' if dark else 'light'}.png")
                page.screenshot(path=made[-1], full_page=True)
            context.close()
    return made


def _settle(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    draw_all(page)


def _index(out: Path) -> None:
    pictures = sorted(path.name for path in out.glob("*.png"))
    shown = "\n".join(
        f'<figure><a href="{html.escape(name)}"><img src="{html.escape(name)}" width="400" '
        f'loading="lazy" alt=""></a><figcaption>{html.escape(name)}</figcaption></figure>'
        for name in pictures
    )
    style = "body {display:flex;flex-wrap:wrap;gap:1rem;align-items:start;font-family:sans-serif}"
    head = f"<meta charset=utf-8><title>Screenshots</title><style>{style}</style>"
    (out / "index.html").write_text(f"<!DOCTYPE html>{head}{shown}", encoding="utf-8")


if __name__ == "__main__":
    main()
