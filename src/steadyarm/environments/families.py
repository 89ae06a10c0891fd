"""Families of worlds: those of the paper and further ones that drift, and all by name."""

from __future__ import annotations

import csv
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments.covariate import CovariateEnvironment
from steadyarm.environments.environment import (
    BernoulliReward,
    BoundedNoise,
    Environment,
    GaussianNoise,
    Noise,
    validate_table,
)
from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_choice, finite_number, not_negative, whole_number
from steadyarm.wording import did_you_mean

T = TypeVar("T")

# Soare's arm set and the paper's worlds on it: still, oscillating, malicious.


def soare_arms(d: int = 10, omega: float = 0.1) -> ArmSet:
    """The d basis vectors and one arm at angle `omega` from the first (Soare et al. 2014).

    Parameters
    ----------
    d : number of features, at least 2
    omega : angle of the last arm to the first, in radians

    Returns
    -------
    ArmSet : d + 1 arms with d features

    Examples
    --------
    >>> soare_arms(d=3, omega=0.5).features[3].round(3).tolist()
    [0.878, 0.479, 0.0]
    """
    whole_number(d, "d", least=2)
    finite_number(omega, "omega")
    tilted = np.zeros(d)
    tilted[:2] = np.cos(omega), np.sin(omega)
    names = [f"e{j + 1}" for j in range(d)]
    return ArmSet.from_features(np.vstack([np.eye(d), tilted]), names=[*names, "tilted"])


def soare_stationary(
    budget: int = 5010, d: int = 10, omega: float = 0.1, noise: Noise | None = None
) -> Environment:
    """The classic hard case: θ = 2e₁, and an arm at angle ω that is nearly as good as e₁.

    Parameters
    ----------
    budget : rounds of the test
    d, omega : see `soare_arms`
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : its best arm is e₁

    Examples
    --------
    >>> world = soare_stationary()
    >>> world.best_arm, round(world.gap, 4)
    (0, 0.01)
    """
    theta = 2.0 * np.eye(whole_number(d, "d", least=2))[0]
    return Environment.from_parameters(soare_arms(d, omega), theta, noise, budget)


def soare_oscillating(
    scale: float = 1.0,
    period: float = 200,
    budget: int = 10_000,
    d: int = 10,
    omega: float = 0.5,
    noise: Noise | None = None,
) -> Environment:
    """θ_t = (0.3, 0, …, 0, 0.5 - s sin(2πt/L)): the last arm is best on average, and swings.

    Parameters
    ----------
    scale : s, how far the last parameter swings
    period : L, rounds of one swing
    budget : rounds of the test
    d, omega : see `soare_arms`
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : its best arm on average is e_d over whole periods

    Examples
    --------
    >>> world = soare_oscillating(scale=3)
    >>> world.best_arm, round(world.gap, 4)
    (9, 0.2)
    """
    check_period(period)
    scale, budget = finite_number(scale, "scale"), whole_number(budget, "budget", least=1)
    thetas = np.zeros((budget, whole_number(d, "d", least=2)))
    thetas[:, 0] = 0.3
    thetas[:, -1] += 0.5 - scale * np.sin(2 * np.pi * np.arange(budget) / period)
    return Environment.from_parameters(soare_arms(d, omega), thetas, noise)


def malicious_switch(
    budget: int = 10_000,
    d: int = 10,
    omega: float = 0.5,
    noise: Noise | None = None,
    published: bool = False,
) -> Environment:
    """θ = (0, 1, …, 1) in the first third, then 2e₁: a policy that drops e₁ early is wrong.

    With `published` the one round at the switch has θ = 0, as in the paper's published runs.

    Parameters
    ----------
    budget : rounds of the test, at least 3
    d, omega : see `soare_arms`
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1
    published : whether the round at the switch has θ = 0

    Returns
    -------
    Environment : its best arm on average is e₁

    Examples
    --------
    >>> world = malicious_switch()
    >>> world.best_arm, round(world.gap, 4)
    (0, 0.0034)
    """
    budget = whole_number(budget, "budget", least=3)
    thetas = np.tile(2.0 * np.eye(whole_number(d, "d", least=2))[0], (budget, 1))
    switch = budget // 3
    thetas[:switch] = 1.0
    thetas[:switch, 0] = 0.0
    if published:
        thetas[switch] = 0.0
    return Environment.from_parameters(soare_arms(d, omega), thetas, noise or GaussianNoise())


def check_period(period: float) -> None:
    """Refuse a period that is not a positive number of rounds."""
    if not finite_number(period, "period") > 0:
        raise InvalidInputError.of("period", period, "a positive number of rounds")


# The paper's multivariate test: layouts of two-level slots, still or oscillating.


MOST_DRAWS = 10_000  # of phases, until the oscillation leaves the best arm what it was


def layouts(slots: int = 4) -> ArmSet:
    """Every layout of a page with `slots` two-level slots; main effects and pairs.

    Parameters
    ----------
    slots : number of two-level slots, at least 2

    Returns
    -------
    ArmSet : 2^slots arms

    Examples
    --------
    >>> layouts(4)
    ArmSet(16 arms, 11 features)
    """
    whole_number(slots, "slots", least=2)
    return ArmSet.factorial({f"slot {j + 1}": ["-", "+"] for j in range(slots)}, interactions=2)


def multivariate(
    slots: int = 4,
    scale: float = 0.0,
    period: float = 900,
    budget: int = 10_000,
    alpha_1: float = 1.0,
    alpha_2: float = 0.5,
    noise: Noise | None = None,
    seed: int = 0,
) -> Environment:
    """A random instance as in the paper's text; scale 0 is stationary.

    Every weight of θ* is uniform on [-0.1, 0.1], times α₁ for slots and α₂ for pairs. Each
    weight either keeps still or swings by scale · max|θ*| with its own phase, with equal chance;
    phases are drawn again until the best arm on average is that of θ*.

    Parameters
    ----------
    slots : number of two-level slots
    scale : how far parameters swing, in multiples of max|θ*|
    period : rounds of one swing
    budget : rounds of the test
    alpha_1 : α₁, factor of the weights of single slots
    alpha_2 : α₂, factor of the weights of pairs of slots
    noise : how rewards scatter around their means; by default GaussianNoise(0.3)
    seed : the seed of the instance

    Returns
    -------
    Environment : on the arms of `layouts`

    Examples
    --------
    >>> still, moving = multivariate(seed=3), multivariate(seed=3, scale=4)
    >>> still.best_arm == moving.best_arm
    True
    """
    check_period(period)
    scale, budget = finite_number(scale, "scale"), whole_number(budget, "budget", least=1)
    arms = layouts(slots)
    rng = np.random.default_rng(whole_number(seed, "seed"))
    alpha = np.full(arms.dimension, alpha_2)
    alpha[0], alpha[1 : 1 + slots] = 1.0, alpha_1
    theta = rng.uniform(-0.1, 0.1, arms.dimension)
    noise = GaussianNoise(0.3) if noise is None else noise
    still = Environment.from_parameters(arms, alpha * theta, noise, budget)
    if scale == 0:
        return still
    for _ in range(MOST_DRAWS):
        swings = rng.integers(2, size=arms.dimension)
        phases = rng.uniform(0, 2 * np.pi, arms.dimension)
        wave = _wave(budget, period, phases) * swings
        thetas = alpha * (theta + scale * np.abs(theta).max() * wave)
        moving = Environment.from_parameters(arms, thetas, noise)
        if moving.best_arm == still.best_arm:
            return moving
    raise InvalidInputError(
        f"with scale {scale} and period {period}, none of {MOST_DRAWS} random oscillations left "
        "the best arm what it was; take a smaller scale, another period or another seed."
    )


def published_multivariate(
    series: Literal["scale", "period"] = "scale", value: float = 0
) -> Environment:
    """The very instance behind the paper's figures, at one value of its series.

    Series "scale" has scales 0, 1, …, 9 at period 900; series "period" has periods 300, 600, …,
    3000 at scale 2.

    Parameters
    ----------
    series : which setting varies
    value : its value

    Returns
    -------
    Environment : on the arms of ``layouts(4)``, with the paper's budget and noise

    Examples
    --------
    >>> world = published_multivariate("scale", 3)
    >>> world.best_arm, round(world.gap, 4)
    (11, 0.0364)
    """
    check_choice(series, "series", ("scale", "period"))
    file = resources.files("steadyarm.environments") / "published_multivariate_instance.json"
    instance = json.loads(file.read_text())
    settings = {setting[series]: setting for setting in instance[f"{series}_series"]}
    if value not in settings:
        raise InvalidInputError(
            f"{series} is {value}; the published values are {', '.join(map(str, settings))}."
        )
    setting = settings[value]
    theta = np.array(instance["theta_star"])
    wave = _wave(instance["budget"], setting["period"], np.array(setting["phases"]))
    thetas = theta + setting["scale"] * np.abs(theta).max() * wave
    return Environment.from_parameters(layouts(4), thetas, GaussianNoise(instance["noise_sd"]))


def _wave(budget: int, period: float, phases: NDArray[np.float64]) -> NDArray[np.float64]:
    """(T, d) unit oscillations, rounds counted from 0."""
    t = np.arange(budget)[:, None]
    return np.sin(2 * np.pi * t / period + phases)


# Worlds that move in ways the paper did not try, each from a few parameter vectors.


def trend(
    arms: ArmSet, first: ArrayLike, last: ArrayLike, budget: int, noise: Noise | None = None
) -> Environment:
    """Parameters that move in a straight line from `first` to `last`.

    Parameters
    ----------
    arms : the variants
    first : (d,) parameter in the first round
    last : (d,) parameter in the last round
    budget : rounds of the test
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : with means that change linearly over the rounds

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> trend(arms, [0.0, 0.4], [1.0, 0.4], budget=100).average.round(2).tolist()
    [0.5, 0.4]
    """
    start, end = _vector(arms, first, "first"), _vector(arms, last, "last")
    way = np.linspace(0.0, 1.0, whole_number(budget, "budget", least=1))[:, None]
    return Environment.from_parameters(arms, start + way * (end - start), noise)


def random_walk(
    arms: ArmSet,
    theta: ArrayLike,
    step: float,
    budget: int,
    seed: int = 0,
    noise: Noise | None = None,
) -> Environment:
    """Parameters that take an independent normal step of sd `step` after every round.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the first round
    step : standard deviation of each step of each parameter
    budget : rounds of the test
    seed : the seed of the walk
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : one realisation of the walk, the same in every trial

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = random_walk(arms, [0.5, 0.0], step=0.01, budget=1000, seed=1)
    >>> world.means[0].tolist(), world.means[999].round(2).tolist()
    ([0.5, 0.0], [0.3, -0.08])
    """
    base = _vector(arms, theta, "theta")
    not_negative(step, "step")
    rng = np.random.default_rng(whole_number(seed, "seed"))
    steps = step * rng.standard_normal((whole_number(budget, "budget", least=1), len(base)))
    steps[0] = 0.0
    return Environment.from_parameters(arms, base + steps.cumsum(axis=0), noise)


def switching(
    arms: ArmSet,
    thetas: ArrayLike,
    budget: int,
    shares: Sequence[float] | None = None,
    noise: Noise | None = None,
) -> Environment:
    """One parameter after the other, abruptly; each for its share of the budget.

    Parameters
    ----------
    arms : the variants
    thetas : (n, d) parameters in their order
    budget : rounds of the test
    shares : (n,) positive numbers, in whose proportion the budget is divided; equal by default
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : with means that are constant between the switches

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = switching(arms, [[0.0, 1.0], [0.6, 0.1]], budget=10, shares=[0.3, 0.7])
    >>> world.average.round(2).tolist()
    [0.42, 0.37]
    """
    table = _rows(arms, thetas)
    share = np.ones(len(table)) if shares is None else np.asarray(shares, dtype=np.float64)
    if share.shape != (len(table),) or not ((share > 0) & (share < np.inf)).all():
        raise InvalidInputError.of(
            "shares", shares, f"{len(table)} positive numbers, one per parameter"
        )
    ends = np.rint(np.cumsum(share) / share.sum() * whole_number(budget, "budget", least=1)).astype(
        np.int64
    )
    return Environment.from_parameters(
        arms, np.repeat(table, np.diff(ends, prepend=0), axis=0), noise
    )


def shock(
    arms: ArmSet,
    theta: ArrayLike,
    during: ArrayLike,
    budget: int,
    start: float = 0.2,
    length: float = 0.1,
    noise: Noise | None = None,
) -> Environment:
    """Parameter `theta`, but for one spell of `during`; start and length in shares of the budget.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter outside of the spell
    during : (d,) parameter within it
    budget : rounds of the test
    start : where the spell starts, as a share of the budget
    length : how long it lasts, as a share of the budget
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : with means that differ during the spell

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> shock(arms, [0.5, 0.4], during=[0.0, 3.0], budget=100).average.round(2).tolist()
    [0.45, 0.66]
    """
    start, length = finite_number(start, "start"), finite_number(length, "length")
    if not (0 <= start <= 1 and 0 <= length <= 1):
        raise InvalidInputError(
            f"start is {start} and length is {length}; expected shares of the budget, 0 to 1."
        )
    budget = whole_number(budget, "budget", least=1)
    thetas = np.tile(_vector(arms, theta, "theta"), (budget, 1))
    first = round(start * budget)
    thetas[first : first + round(length * budget)] = _vector(arms, during, "during")
    return Environment.from_parameters(arms, thetas, noise)


def repeating(
    arms: ArmSet, thetas: ArrayLike, each: int, budget: int, noise: Noise | None = None
) -> Environment:
    """Parameters in turn, `each` rounds a time, over and over.

    Seven daily parameters are the paper's weekly periods; two with a short `each` are a pattern
    that an adversary would choose against blocks of that length.

    Parameters
    ----------
    arms : the variants
    thetas : (n, d) parameters in their order
    each : rounds that a parameter lasts at a time
    budget : rounds of the test
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : with means that repeat after n times `each` rounds

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = repeating(arms, [[1.0, 0.0], [0.0, 1.0]], each=2, budget=5)
    >>> world.means[:, 0].tolist()
    [1.0, 1.0, 0.0, 0.0, 1.0]
    """
    table = _rows(arms, thetas)
    place = (
        np.arange(whole_number(budget, "budget", least=1))
        // whole_number(each, "each", least=1)
        % len(table)
    )
    return Environment.from_parameters(arms, table[place], noise)


def weekday_weekend(
    arms: ArmSet,
    weekday: ArrayLike,
    weekend: ArrayLike,
    visits_per_day: int,
    days: int = 14,
    first_day: int = 5,
    noise: Noise | None = None,
) -> Environment:
    """One parameter from Monday to Friday, another at weekends; day 0 is a Monday.

    Parameters
    ----------
    arms : the variants
    weekday : (d,) parameter from Monday to Friday
    weekend : (d,) parameter on Saturday and Sunday
    visits_per_day : rounds of a day
    days : length of the test
    first_day : weekday on which the test starts: 0 for Monday, 5 for Saturday, up to 6
    noise : how rewards scatter around their means; by default GaussianNoise(1.0), normal with sd 1

    Returns
    -------
    Environment : with a budget of ``days * visits_per_day`` rounds

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = weekday_weekend(arms, [0.3, 0.2], [0.1, 0.4], visits_per_day=10, days=7)
    >>> world.average.round(3).tolist()
    [0.243, 0.257]
    """
    visits_per_day = whole_number(visits_per_day, "visits_per_day", least=1)
    if not 0 <= whole_number(first_day, "first_day") < 7:
        raise InvalidInputError.of("first_day", first_day, "0 (Monday) to 6 (Sunday)")
    week = np.array(
        [_vector(arms, weekday, "weekday")] * 5 + [_vector(arms, weekend, "weekend")] * 2
    )
    rolled = np.roll(week, -first_day, axis=0)
    return repeating(
        arms, rolled, visits_per_day, visits_per_day * whole_number(days, "days", least=1), noise
    )


def _vector(arms: ArmSet, values: ArrayLike, what: str) -> NDArray[np.float64]:
    table = validate_table(values, arms.dimension, what, "features", budget=1)
    if np.ndim(values) != 1:
        shape = np.shape(values)
        raise InvalidInputError(f"{what} has shape {shape}; expected ({arms.dimension},).")
    return np.asarray(table[0])


def _rows(arms: ArmSet, values: ArrayLike) -> NDArray[np.float64]:
    return validate_table(values, arms.dimension, "thetas", "features", budget=None)


# Worlds by name, from plain values: what a command line or a TOML file can say.


def table(
    arms: ArmSet,
    means: str | None = None,
    thetas: str | None = None,
    noise: Noise | None = None,
) -> Environment:
    """Your own table from a CSV file without header: means (T, K) or parameters (T, d)."""
    if (means is None) == (thetas is None):
        raise InvalidInputError("the world 'table' needs either means or thetas, a CSV file.")
    path = Path(means or thetas or "")
    try:
        with path.open() as file:
            values = np.array([[float(x) for x in row] for row in csv.reader(file)])
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the table {path} cannot be read: {error}") from None
    build = Environment.from_means if means else Environment.from_parameters
    return build(arms, values, noise)


WORLDS: dict[str, Callable[..., Environment]] = {
    family.__name__: family
    for family in (
        soare_stationary,
        soare_oscillating,
        malicious_switch,
        multivariate,
        published_multivariate,
        trend,
        random_walk,
        switching,
        shock,
        repeating,
        weekday_weekend,
        table,
    )
}

NOISES: dict[str, Callable[..., Noise]] = {
    "gaussian": GaussianNoise,
    "bounded": BoundedNoise,
    "bernoulli": BernoulliReward,
}


def arms_from_settings(settings: Mapping[str, Any]) -> ArmSet:
    """The arm set that one of the keys one_hot, factorial, bundles or features describes.

    What `ArmSet.to_dict` wrote is read too, with the coordinates in it.

    Examples
    --------
    >>> arms_from_settings({"factorial": {"a": ["x", "y"], "b": ["x", "y"]}, "interactions": 1})
    ArmSet(4 arms, 3 features)
    """
    builders: dict[str, Callable[..., ArmSet]] = {
        "one_hot": ArmSet.one_hot,
        "factorial": ArmSet.factorial,
        "bundles": ArmSet.bundles,
        "features": ArmSet.from_features,
    }
    if "span" in settings:
        return ArmSet.from_dict(settings)
    rest = dict(settings)
    kinds = [kind for kind in builders if kind in rest]
    if len(kinds) != 1:
        raise InvalidInputError(
            f"the arms have the keys {', '.join(settings) or 'none'}; expected exactly one of "
            f"{', '.join(builders)}."
        )
    return _call(builders[kinds[0]], f"arms of kind {kinds[0]}", (rest.pop(kinds[0]),), rest)


def world_from_settings(
    settings: Mapping[str, Any], arms: Mapping[str, Any] | None = None
) -> Environment | CovariateEnvironment:
    """The world called settings["name"], its other keys as parameters.

    With "correlation" every unit has a covariate of that correlation with its reward's noise.

    Examples
    --------
    >>> world_from_settings({"name": "soare_oscillating", "scale": 3, "budget": 400}).budget
    400
    >>> rising = {"name": "trend", "first": [0, 1], "last": [1, 1], "budget": 10}
    >>> world_from_settings(rising | {"noise": "bernoulli"}, {"one_hot": ["A", "B"]}).best_arm
    1
    """
    rest = dict(settings)
    name = str(rest.pop("name", "")).replace("-", "_")
    if name not in WORLDS:
        raise InvalidInputError(
            f"there is no world {name!r}; the worlds are {', '.join(WORLDS)}"
            f"{did_you_mean(name, list(WORLDS))}"
        )
    if "noise" in rest:
        rest["noise"] = _noise(rest["noise"])
    takes_arms = "arms" in inspect.signature(WORLDS[name]).parameters
    if takes_arms and arms is None:
        raise InvalidInputError(f"the world {name!r} needs arms; describe them in a table [arms].")
    if not takes_arms and arms is not None:
        raise InvalidInputError(f"the world {name!r} has its own arms; leave [arms] out.")
    first = (arms_from_settings(arms),) if arms is not None else ()
    correlation = rest.pop("correlation", None)
    world = _call(WORLDS[name], f"the world {name}", first, rest, ("correlation",))
    return world if correlation is None else world.with_covariate(correlation)


def _noise(settings: Any) -> Noise:
    rest = dict(settings) if isinstance(settings, Mapping) else {"kind": settings}
    kind = rest.pop("kind", "gaussian")
    if kind not in NOISES:
        raise InvalidInputError(f"there is no noise {kind!r}; there is {', '.join(NOISES)}.")
    return _call(NOISES[kind], f"{kind} noise", (), rest)


def _call(
    build: Callable[..., T],
    what: str,
    first: tuple[Any, ...],
    rest: dict[str, Any],
    also: tuple[str, ...] = (),
) -> T:
    """What `build` makes; errors name the settings that it takes, and those in `also`."""
    signature = inspect.signature(build)
    names = [*list(signature.parameters)[len(first) :], *also]
    try:
        signature.bind(*first, **rest)
    except TypeError as error:
        unknown = next((key for key in rest if key not in names), "")
        reason = f"there is no setting {unknown!r}" if unknown else str(error)
        hint = did_you_mean(unknown, names)
        raise InvalidInputError(f"{what}: {reason}; it takes {', '.join(names)}{hint}") from None
    return build(*first, **rest)
