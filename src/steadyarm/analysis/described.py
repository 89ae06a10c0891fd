"""What an exported log's description says of the test, so that nobody needs to say it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Direction
from steadyarm.transfer import description_beside

__all__ = ["Described", "described"]


@dataclass(frozen=True, eq=False)
class Described:
    """The test that a log was exported from.

    Attributes
    ----------
    name : of the test
    arms : its variants, in its order
    direction : of its rewards
    shares : (K,) the allocation of each segment, by the segment's number as text
    """

    name: str
    arms: ArmSet
    direction: Direction
    shares: Mapping[str, NDArray[np.float64]]

    def notes(self, direction: Direction) -> list[str]:
        """What was taken from the description, and what was asked otherwise."""
        found = [
            f"The variants, their order and their features are those of the test {self.name}, "
            "from the description beside the log."
        ]
        if direction != self.direction:
            found.append(
                f"The test was to {self.direction} rewards, but this analysis is to {direction} "
                f"them; give the direction {self.direction} if that is not meant."
            )
        return found


def described(source: Any) -> Described | None:
    """What stands beside the log, if it is one file that was exported with its description."""
    if isinstance(source, (list, tuple)) and len(source) == 1:
        source = source[0]
    if not isinstance(source, (str, Path)) or "://" in str(source) or not Path(source).is_file():
        return None
    try:
        snapshot = description_beside(source)
        if snapshot is None:
            return None
        config = snapshot.experiment.config
        arms = ArmSet.from_dict(config["arms"])
        weights = {
            str(record.index): record.segment.dense(arms.size).weights[0]
            for record, _ in snapshot.segments
        }
        return Described(snapshot.experiment.name, arms, config["direction"], weights)
    except (InvalidInputError, LookupError, TypeError) as error:
        raise InvalidInputError(
            f"{Path(source).name} cannot be read together with the description beside it: {error} "
            "Export the test again, or give the variants (arms, on the command line --arms FILE)."
        ) from None
