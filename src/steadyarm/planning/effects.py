"""Effects: what the arms are truly worth, as far as the question says it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.files import csv_text
from steadyarm.linalg import gram
from steadyarm.validation import check_positive, finite_number
from steadyarm.wording import counted, listed

# What last quarter's log says: a small reader of CSV files with an arm and a reward a row.


@dataclass(frozen=True)
class LogSummary:
    """Per arm, in order of appearance: name and mean; over all: the noise.

    Attributes
    ----------
    sd : standard deviation of rewards around the means of their arms
    conversions : whether all rewards are 0 or 1
    """

    names: tuple[str, ...]
    means: tuple[float, ...]
    sd: float
    conversions: bool


def read_log(path: Path) -> LogSummary:
    """Summarise a CSV file with the columns arm and reward; others are ignored."""
    sums: dict[str, list[float]] = {}
    conversions = True
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if not {"arm", "reward"} <= set(rows.fieldnames or ()):
                raise InvalidInputError(
                    f"{path} has the columns {', '.join(rows.fieldnames or ['none'])}; expected "
                    "a first line that names at least arm and reward."
                )
            for row in rows:
                reward = _number(row["reward"], path, rows.line_num)
                arm = csv_text((row["arm"] or "").strip())
                if not arm:
                    raise InvalidInputError(
                        f"{path}, line {rows.line_num}: the arm is empty; expected its name."
                    )
                conversions = conversions and reward in (0.0, 1.0)
                seen = sums.setdefault(arm, [0.0, 0.0, 0.0])
                seen[0] += 1
                delta = reward - seen[1]  # Welford's running mean and squares
                seen[1] += delta / seen[0]
                seen[2] += delta * (reward - seen[1])
    except FileNotFoundError:
        raise InvalidInputError(
            f"effects.log: {path} does not exist; give a CSV file with the columns arm and reward."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"the log {path} cannot be read: {error}") from None
    if len(sums) < 2:
        raise InvalidInputError(f"{path} has {counted(len(sums), 'arm')}; a test needs at least 2.")
    table = np.array(list(sums.values()))
    freedom = table[:, 0].sum() - len(table)
    sd = float(np.sqrt(table[:, 2].sum() / freedom)) if freedom > 0 else 0.0
    if not sd > 0:
        raise InvalidInputError(
            f"all rewards of each arm in {path} are the same; there is no noise to plan for."
        )
    return LogSummary(tuple(sums), tuple(table[:, 1].tolist()), sd, conversions)


def _number(text: str | None, path: Path, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InvalidInputError(
            f"{path}, line {line}: the reward is {text!r}; expected a number. Leave out rows "
            "whose reward is not known."
        )
    return value


Floats = NDArray[np.float64]

MOST_SHAPES = 32  # worlds with a smallest gap: one per best arm, up to as many arms
KINDS = ("smallest_gap", "means", "spread", "range")  # ways to say what arms are worth
CHECKED = 1000  # worlds drawn to see whether most are possible
TINY = 1e-12
PLACES = 10  # decimals of the flattest effects, in gaps


@dataclass(frozen=True, eq=False)
class Effects:
    """The arms' values relative to a common level; exactly one of the first four is given.

    Parameters
    ----------
    smallest_gap : one arm leads all others by it, and apart from that the arms differ as little as
        their features allow (`flattest`); which arm leads is drawn anew for every simulated test.
        The second best arm is at the level
    means : known values of the arms, such as those of an earlier test; arms that share features
        get the nearest values that their features can say
    spread : standard deviation of normal effects, drawn anew for every simulated test
    range : lowest and highest of uniform effects, drawn anew for every simulated test
    indifference : naming an arm that is worse than the best by no more than this is no error

    Arms that share features have drawn effects only of the kind that their features can say,
    scaled to the standard deviation that arms on their own would have.
    """

    arms: ArmSet
    smallest_gap: float | None = None
    means: tuple[float, ...] | None = None
    spread: float | None = None
    range: tuple[float, float] | None = None
    indifference: float = 0.0

    def __post_init__(self) -> None:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise InvalidInputError(
                f"effects has {listed(given) or 'none of its keys'}; expected exactly one of "
                "smallest_gap, means, spread, range or log."
            )
        for what in ("smallest_gap", "spread"):
            if (value := getattr(self, what)) is not None:
                check_positive(value, f"effects.{what}")
        if finite_number(self.indifference, "effects.indifference") < 0:
            raise InvalidInputError.of("effects.indifference", self.indifference, "at least 0")
        if self.means is not None and len(self.means) != self.arms.size:
            raise InvalidInputError(
                f"effects.means has {len(self.means)} values; expected {self.arms.size}, one per "
                "arm in the order of the arms."
            )
        if self.smallest_gap is not None and self.indifference >= self.smallest_gap:
            raise InvalidInputError.of(
                "effects.indifference",
                self.indifference,
                f"less than effects.smallest_gap, which is {self.smallest_gap:g}, or no verdict "
                "could be wrong",
            )
        if self.range is not None and not (len(self.range) == 2 and self.range[0] < self.range[1]):
            raise InvalidInputError.of("effects.range", list(self.range), "[lowest, highest]")
        if self.range is not None and self.indifference >= self.range[1] - self.range[0]:
            raise InvalidInputError.of(
                "effects.indifference",
                self.indifference,
                f"less than the width of effects.range {list(self.range)}, or no verdict could be "
                "wrong",
            )
        if self.drawn and self.indifference == 0:
            raise InvalidInputError(
                "effects.indifference is missing; effects that are drawn can lie arbitrarily close "
                "together, so say which difference does not matter, such as a fifth of the spread."
            )
        if self.means is not None and self.reference_gap <= 0:
            raise InvalidInputError(
                "effects.means has no arm that leads by more than effects.indifference; nothing "
                "could go wrong, or nothing could be found. Leave out arms that are equal."
            )

    @property
    def drawn(self) -> bool:
        """Whether the effects come from a prior."""
        return self.spread is not None or self.range is not None

    @cached_property
    def shapes(self) -> Floats:
        """(M, K) all worlds there can be, if effects are not drawn."""
        if self.means is not None:
            basis = _orthonormal(self.arms.coordinates)
            return np.array([basis @ (np.array(self.means) @ basis)])
        gap = self.smallest_gap or 0.0
        K = self.arms.size
        if np.array_equal(self.arms.features, np.eye(K)):
            return gap * np.eye(K)
        leaders = np.unique(np.linspace(0, K - 1, min(K, MOST_SHAPES)).astype(int))
        shapes = [flattest(self.arms, int(k), gap) for k in leaders]
        found = [shape for shape in shapes if shape is not None]
        if not found:
            raise InvalidInputError("no arm can be the best of all; check the features.")
        return np.array(found)

    @cached_property
    def reference_gap(self) -> float:
        """The smallest lead whose loss would be an error, from which a search starts."""
        if self.smallest_gap is not None:
            return self.smallest_gap
        if self.means is None:
            return self.indifference
        values = self.shapes[0]
        behind = values.max() - np.sort(values)[:-1]
        wrong = behind[behind > self.indifference]
        return float(wrong.min()) if wrong.size and behind.min() > 0 else 0.0

    def draw(self, rng: np.random.Generator, trials: int) -> Floats:
        """(trials, K) effects, one row a simulated test."""
        if not self.drawn:
            return np.asarray(self.shapes[rng.integers(len(self.shapes), size=trials)])
        shape = (trials, self.arms.size)
        if self.range is None:
            return np.asarray(((self.spread or 0.0) * rng.standard_normal(shape)) @ self._projector)
        low, high = self.range
        centre = (low + high) / 2
        return np.asarray(centre + (rng.uniform(low, high, shape) - centre) @ self._projector)

    def draw_within(self, rng: np.random.Generator, trials: int, low: float, high: float) -> Floats:
        """Effects of which every one is between `low` and `high`; others are drawn anew."""
        effects = self.draw(rng, trials)
        while (outside := ~((effects >= low) & (effects <= high)).all(axis=1)).any():
            effects[outside] = self.draw(rng, int(outside.sum()))
        return effects

    def check_within(self, low: float, high: float) -> None:
        """Refuse effects of which many are not between `low` and `high`."""
        values = self.shapes
        if self.drawn:
            values = self.draw(np.random.default_rng(0), CHECKED)
        inside = ((values >= low - TINY) & (values <= high + TINY)).all(axis=1).mean()
        if inside < (0.5 if self.drawn else 1.0):
            raise InvalidInputError(
                f"with this rate and rhythm {100 * (1 - inside):.0f} % of the worlds have "
                "an arm that converts at a rate below 0 or above 1; make the gap, or the rhythm's "
                "strength or lift, smaller.",
                field="effects.smallest_gap",
            )

    @cached_property
    def _projector(self) -> Floats:
        """(K, K) onto what the features can say, scaled to keep the variance on average."""
        basis = _orthonormal(self.arms.coordinates)
        return np.asarray(gram(basis.T) * np.sqrt(self.arms.size / basis.shape[1]))

    def to_dict(self) -> dict[str, Any]:
        """The settings."""
        values = {kind: getattr(self, kind) for kind in KINDS} | {"indifference": self.indifference}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v}

    def describe(self) -> str:
        """The effects in a few words."""
        end = f", differences up to {self.indifference:g} do not matter"
        end = end if self.indifference else ""
        if self.smallest_gap is not None:
            return f"one arm leads the others by {self.smallest_gap:g}{end}"
        if self.means is not None:
            return f"known means, smallest lead {self.reference_gap:.3g}{end}"
        if self.spread is not None:
            return f"normal effects with standard deviation {self.spread:g}{end}"
        low, high = self.range or (0.0, 0.0)
        return f"uniform effects from {low:g} to {high:g}{end}"


def flattest(arms: ArmSet, best: int, gap: float) -> Floats | None:
    """(K,) values with the least variance of which arm `best` leads all others by `gap`.

    The second best is at zero. None if the features let no world have this best arm. A least
    distance problem, solved by Lawson and Hanson's non-negative least squares. Without a constant
    among what the features can say, the sum of squares is least and nothing is shifted.

    Examples
    --------
    >>> (flattest(ArmSet.one_hot(["A", "B", "C"]), best=1, gap=0.1).round(3) + 0.0).tolist()
    [0.0, 0.1, 0.0]
    >>> pages = ArmSet.factorial({"a": ["0", "1"], "b": ["0", "1"]}, interactions=1)
    >>> (flattest(pages, best=3, gap=0.1).round(3) + 0.0).tolist()
    [-0.1, 0.0, 0.0, 0.1]
    """
    X = arms.coordinates
    constant = has_constant(arms)
    basis = _orthonormal(X - X.mean(axis=0) if constant else X)
    others = np.arange(arms.size) != best
    lead = basis[best] - basis[others]
    target = np.zeros(basis.shape[1] + 1)
    target[-1] = 1.0
    found, residual = scipy.optimize.nnls(np.vstack([lead.T, np.ones(len(lead))]), target)
    if residual < 1e-9:
        return None
    miss = np.append(found @ lead, found.sum() - 1.0)
    values = basis @ (-miss[:-1] / miss[-1])
    values /= values[best] - values[others].max()
    values = gap * values.round(PLACES)  # SciPy's last bits depend on the processor
    return np.asarray(values - values[others].max() if constant else values)


def has_constant(arms: ArmSet) -> bool:
    """Whether all arms can have the same value, other than zero."""
    ones = np.ones(arms.size)
    basis = _orthonormal(arms.coordinates)
    fitted = basis @ (ones @ basis)
    return bool(np.abs(fitted - 1.0).max() < 1e-8)


def _orthonormal(X: Floats) -> Floats:
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    return np.asarray(left[:, singular > singular[0] * 1e-10])
