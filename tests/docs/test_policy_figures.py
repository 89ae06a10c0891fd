"""Pictures on the pages of policies: every policy is in the recorded rates and has its picture."""

from __future__ import annotations

import io
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from steadyarm.policies import POLICIES
from steadyarm.policies.named import VARIANTS
from tools.docs.policy_figures import FOLDER, PANELS, WORDS, picture_of, read_rates

NAMES = {policy.name for policy in POLICIES.values()}


def test_every_policy_has_rates_in_every_panel_at_the_same_settings() -> None:
    settings: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for rate in read_rates():
        settings[rate.figure, rate.policy].append(rate.value)
        assert rate.low <= rate.error <= rate.high
    every = NAMES | VARIANTS.keys()
    assert settings.keys() == {(figure, name) for figure in PANELS for name in every}
    for figure in PANELS:
        assert len({tuple(settings[figure, name]) for name in every}) == 1
    assert VARIANTS.keys() == WORDS.keys()


def test_every_page_shows_its_picture() -> None:
    for path in FOLDER.glob("*.md"):
        if path.name != "index.md":
            assert f"]({path.stem}.png)" in path.read_text()
            assert (FOLDER / f"{path.stem}.png").exists()
    assert len(list(FOLDER.glob("*.png"))) == len(NAMES)


def test_a_picture_is_about_its_policy() -> None:
    rates = read_rates()
    one, other = (pixels(picture_of(name, rates)) for name in ("Peace", "P1-RAGE"))
    assert one.shape == other.shape
    assert (one != other).any(axis=2).mean() > 0.005


def pixels(png: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
