"""Theory: complexities of tests, and bounds of error probabilities.

Complexities and bounds of Xiong, Camilleri, Fazel, Jain and Jamieson (AISTATS 2024). Theorems and
equations are numbered as there; the appendix holds Theorems 3 to 5 and both corollaries.
``docs/research/theory.md`` lists statements that do not hold as printed.

A complexity is a number H such that errors fall like exp(-T/H), up to constants and logarithms.
`theta` is the parameter of a stationary world, or the average over the rounds of one that
moves, in the features of the arms. Where low rewards are wanted give ``-theta``.

Bounds have all constants. They hold for rewards of size at most one, or `largest_reward`: the
proofs use |r_t| ≤ 1, although the setting of the paper allows means and noise of up to one each,
so rewards of up to two. There is no bound for unbounded noise, such as Gaussian noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs import adjacent_optimal, solve_directions, xy_optimal
from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_positive, finite_number, whole_number

__all__ = [
    "g_bai_error_bound",
    "h_adjacent",
    "h_bob",
    "h_g_bai",
    "h_p1_rage",
    "h_p1_rage_ceiling",
    "h_p1_rage_exact",
    "h_p1_rage_one_hot_ceiling",
    "h_unif",
    "p1_rage_drift_error_bound",
    "p1_rage_error_bound",
    "phases_for",
    "rho_star",
    "rho_star_of_means",
]

# Instance: arms with their true means, one of which is best; where all of the theory starts.


TOLERANCE = 1e-9  # proven relative gap asked of every design
TIE = 2.0**-40  # of the largest mean, up to which two means count as equal

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Instance:
    """Arms, their means (K,), the best arm, and the gaps Δ_k (K,); the best's is the smallest."""

    arms: ArmSet
    means: Floats
    best: int
    gaps: Floats

    @classmethod
    def from_parameter(cls, arms: ArmSet, theta: ArrayLike) -> Instance:
        """Means x'θ, θ in the features of the arms."""
        return cls.from_means(arms, arms.features @ _vector(theta, arms.dimension, "theta"))

    @classmethod
    def from_means(cls, arms: ArmSet, means: ArrayLike) -> Instance:
        """Means given directly."""
        arms.refuse_targets("this complexity")
        values = _vector(means, arms.size, "means")
        best = int(values.argmax())
        gaps = values[best] - values
        gaps[best] = np.inf
        rival = int(gaps.argmin())
        gaps[best] = gaps[rival]
        if gaps[best] <= TIE * np.abs(values).max():
            raise InvalidInputError(
                f"arms {arms.names[best]!r} and {arms.names[rival]!r} have the same mean "
                f"{values[best]:g}, so no single arm is best; leave one of them out."
            )
        return cls(arms, values, best, gaps)

    @property
    def gap(self) -> float:
        """Δ_(1): by how much the best arm beats the second best."""
        return float(self.gaps[self.best])

    def worst_comparison(self, power: float) -> float:
        """Least over designs of the largest ‖x - x*‖² / Δ_x^power over the other arms."""
        others = np.arange(self.arms.size) != self.best
        X = self.arms.coordinates
        differences = (X[self.best] - X[others]) / self.gaps[others, None] ** (power / 2)
        return solve_directions(self.arms, differences, TOLERANCE).value


def halvings(gap: float) -> int:
    """⌈log2(1/gap)⌉, exact also at powers of two."""
    return 1 - math.frexp(gap)[1]


def whole_halvings(gap: float) -> int:
    """⌊log2(1/gap)⌋: the largest i with gap ≤ 2^-i, exact also at powers of two."""
    fraction, exponent = math.frexp(gap)
    return 1 - exponent if fraction == 0.5 else -exponent


def _vector(values: ArrayLike, length: int, what: str) -> Floats:
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} is not a list of numbers ({error}).") from None
    if vector.shape != (length,):
        of = "features" if what == "theta" else "arms"
        hint = " For a world that moves give the average over its rounds." * (vector.ndim == 2)
        raise InvalidInputError(
            f"{what} has shape {vector.shape}; expected ({length},), one number for each of the "
            f"{length} {of}.{hint}"
        )
    if not np.isfinite(vector).all():
        where = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise InvalidInputError(f"{what}[{where}] is {vector[where]}; expected a finite number.")
    return vector


# Complexities


def rho_star(arms: ArmSet, theta: ArrayLike) -> float:
    """ρ*(θ) = H_LB(θ), equation (2): the least possible worst ‖x - x*‖² / Δ_x².

    The norm is in the inverse of A(λ), the least is over designs λ and the worst over the arms x
    that are not best. It is what an oracle needs that knows θ, in a stationary world. To a
    proven relative gap of 1e-9.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the features of the arms; the average over the rounds where rewards
        drift

    Returns
    -------
    float : H_LB, a number of rounds: errors fall like exp(-T/H)

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{rho_star(arms, [0.5, 0.3]):.4f}")  # two arms: 4/Δ²
    100.0000
    >>> soare = ArmSet.from_features([[1, 0], [0, 1], [np.cos(0.1), np.sin(0.1)]])
    >>> print(f"{rho_star(soare, [1.0, 0.0]):.1f}")
    440.3
    """
    return Instance.from_parameter(arms, theta).worst_comparison(2)


def rho_star_of_means(arms: ArmSet, means: ArrayLike) -> float:
    """ρ* of equation (2), from the means (K,) of the arms instead of a parameter.

    Parameters
    ----------
    arms : the variants
    means : (K,) mean reward of each arm

    Returns
    -------
    float : H_LB, a number of rounds: errors fall like exp(-T/H)

    Examples
    --------
    >>> print(f"{rho_star_of_means(ArmSet.from_features([[1.0], [3.0]]), [0.1, 0.3]):.4f}")
    11.1111
    """
    return Instance.from_means(arms, means).worst_comparison(2)


def h_g_bai(arms: ArmSet, theta: ArrayLike) -> float:
    """H_G-BAI(θ) = d / Δ_(1)², Theorem 1: what G-BAI needs however the world moves.

    d is the rank of the arms.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the features of the arms; the average over the rounds where rewards
        drift

    Returns
    -------
    float : H_G-BAI, a number of rounds: errors fall like exp(-T/H)

    Examples
    --------
    >>> arms = ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> print(f"{h_g_bai(arms, [0.5, 0.1]):.4f}")
    50.0000
    """
    return arms.rank / Instance.from_parameter(arms, theta).gap ** 2


def h_unif(arms: ArmSet, theta: ArrayLike) -> float:
    """H_UNIF(θ) = K / Δ_(1)², Section 4: what uniform play needs if the arms share nothing.

    The features serve for the means alone.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the features of the arms; the average over the rounds where rewards
        drift

    Returns
    -------
    float : H_UNIF, a number of rounds: errors fall like exp(-T/H)

    Examples
    --------
    >>> arms = ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> print(f"{h_unif(arms, [0.5, 0.1]):.4f}")
    75.0000
    """
    return arms.size / Instance.from_parameter(arms, theta).gap ** 2


def h_bob(arms: ArmSet, theta: ArrayLike) -> float:
    """H_BOB(θ) = max over k of k / Δ_(k), over Δ_(1), Section 5: the best of both worlds.

    With arms that share nothing no algorithm does better in a stationary world, if it is
    to be robust to drift as well (Abbasi-Yadkori et al. 2018). The features serve for the means
    alone.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the features of the arms; the average over the rounds where rewards
        drift

    Returns
    -------
    float : H_BOB, a number of rounds: errors fall like exp(-T/H)

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B", "C"])
    >>> print(f"{h_bob(arms, [0.5, 0.4, 0.0]):.4f}")  # 2/0.1 beats 3/0.5
    200.0000
    """
    gaps = np.sort(Instance.from_parameter(arms, theta).gaps)
    return float((np.arange(1, gaps.size + 1) / gaps).max() / gaps[0])


def h_adjacent(arms: ArmSet, theta: ArrayLike) -> float:
    """H_Adjacent(θ): the least possible worst ‖x - x'‖² over neighbours, over Δ_(1)².

    Neighbours are arms joined by an edge of the convex hull. It is what Adjacent-BAI needs
    however the world moves, and its authors show that none can do with less (Maynard-Zhang,
    Xiong, Jamieson and Fazel, COLT 2026). To a proven relative gap of 1e-6.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the features of the arms; the average over the rounds where rewards
        drift

    Returns
    -------
    float : H_Adjacent, a number of rounds: errors fall like exp(-T/H)

    Examples
    --------
    >>> cube = ArmSet.factorial({f: ["0", "1"] for f in "abcd"}, interactions=1)
    >>> print(f"{h_adjacent(cube, [0.0, 0.5, 0.4, 0.3, 0.1]):.4f}")  # 4/Δ², whatever the factors
    100.0000
    """
    return adjacent_optimal(arms).value / Instance.from_parameter(arms, theta).gap ** 2


# What P1-RAGE needs in a stationary world: Theorems 2 to 4 and Corollary 2.


def h_p1_rage(arms: ArmSet, theta: ArrayLike, m: int | None = None) -> float:
    """H_P1-RAGE(θ), equation (4) of Theorem 2: the simplified form, without constants.

    m i_0 / Δ_(1) times the least worst ‖x - x*‖² / Δ_x, plus m √d / Δ_(1) times the least worst
    ‖x - x*‖, with i_0 = ⌈log2(1/Δ_(1))⌉ + 1. Good to compare instances; for numbers that bound
    something see `h_p1_rage_exact` and `h_p1_rage_ceiling`.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter of a stationary world, in the features of the arms
    m : number of virtual phases averaged, at least i_0, which is the default

    Returns
    -------
    float : H_P1-RAGE; errors fall like exp(-cT/H) with an unknown constant c

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{h_p1_rage(arms, [0.75, 0.25]):.4f}")  # m = i0 = 2: 64 + 8 √2
    75.3137
    """
    instance = Instance.from_parameter(arms, theta)
    m, i0 = _check_phases(m, instance.gap)
    main, low_order = _simplified_terms(instance)
    return (m * i0 * main + m * low_order) / instance.gap


def h_p1_rage_one_hot_ceiling(arms: ArmSet, theta: ArrayLike) -> float:
    """Corollary 1: 2 i_0 (i_0 log 2K + 1) H_BOB(θ), never below `h_p1_rage` with m = i_0.

    For arms that share nothing: their features must be linearly independent, as those of one-hot
    arms are. The logarithm is natural. With two arms whose gap is above 1.96 it is slightly too
    small (``docs/research/theory.md``).

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter of a stationary world, in the features of the arms

    Returns
    -------
    float : an upper bound of `h_p1_rage`

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B", "C"])
    >>> theta = [0.5, 0.4, 0.0]  # H_BOB = 200, i_0 = 5
    >>> print(f"{h_p1_rage(arms, theta):,.0f} {h_p1_rage_one_hot_ceiling(arms, theta):,.0f}")
    10,765 19,918
    """
    instance = Instance.from_parameter(arms, theta)
    if arms.rank < arms.size:
        raise InvalidInputError(
            f"the {arms.size} arms have rank {arms.rank}; Corollary 1 is about arms that share "
            "nothing, such as ArmSet.one_hot. Use h_p1_rage for others."
        )
    _, i0 = _check_phases(None, instance.gap)
    return 2 * i0 * (i0 * math.log(2 * arms.size) + 1) * h_bob(arms, theta)


def h_p1_rage_ceiling(arms: ArmSet, theta: ArrayLike, m: int | None = None) -> float:
    """Theorem 4: a number never below `h_p1_rage_exact`, from the two terms of equation (4).

    The constants are not those printed, which rest on equation (7) as printed. The same steps from
    what the proof of Theorem 3 gives, with shares that double from event to event up to one, lead
    to 512 (n + 1), 32/3 and 16/3 for n events.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter of a stationary world, in the features of the arms
    m : number of virtual phases averaged, at least i_0, which is the default

    Returns
    -------
    float : an upper bound of `h_p1_rage_exact`, and larger by orders of magnitude

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{h_p1_rage_ceiling(arms, [0.75, 0.25]):.1f}")
    49283.3
    """
    instance = Instance.from_parameter(arms, theta)
    m, _ = _check_phases(m, instance.gap)
    main, low_order = _simplified_terms(instance)
    events = len(_demands(instance, 0.0))
    return (512 * (events + 1) * m * main + 32 / 3 * m * low_order + 16 / 3) / instance.gap


def h_p1_rage_exact(
    arms: ArmSet,
    theta: ArrayLike,
    m: int | None = None,
    epsilon: float = 0.0,
    largest_reward: float = 1.0,
) -> float:
    """H̄_P1-RAGE of Theorem 3, equation (7): the exact minimum over the sequence a.

    Every event of the proof demands a share of the budget. For a given H the shares can be chosen
    smallest one after the other, each the root of a quadratic, so the minimum is where the last
    of them reaches one.

    Equation (7) as printed has one demand per arm, with precision Δ_k at phase ī(k). The proof
    has one per event: precision 2^-i at every phase i that some gap of interest reaches, also at
    those where no arm has its ī(k). So (7) can be too small, about four times, and for arms with
    gaps above 1/2 its ī(k) is not defined. Gaps above 1 need one more event, before the first.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter of a stationary world, in the features of the arms
    m : number of virtual phases averaged, which is the policy's `max_phases`; at least i_0, the
        default. (Algorithm 3 averages m + 1, the proof divides by m.)
    epsilon : arms with gaps up to this will do (Corollary 2); i_0 becomes that of ε if ε > Δ_(1)
    largest_reward : no reward is ever larger in size; the proof says 1

    Returns
    -------
    float : H̄_P1-RAGE, with which `p1_rage_error_bound` is computed; 0 if every arm is good enough

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{h_p1_rage_exact(arms, [0.75, 0.25]):.1f}")
    2119.0
    """
    instance = Instance.from_parameter(arms, theta)
    return _exact_complexity(instance, m, epsilon, largest_reward)[0]


class _Demand(NamedTuple):
    """An event: its f(A_(i-2)), and the precision demanded at its end."""

    f: float
    precision: float


def _exact_complexity(
    instance: Instance, m: int | None, epsilon: float, largest_reward: float
) -> tuple[float, int]:
    """H̄ as `h_p1_rage_exact` says it, and the number of events over which the proof sums."""
    if finite_number(epsilon, "epsilon") < 0:
        raise InvalidInputError.of("epsilon", epsilon, "a gap of at least 0")
    R = check_positive(largest_reward, "largest_reward")
    m, _ = _check_phases(m, max(instance.gap, epsilon))
    demands = _demands(instance, epsilon)
    every = xy_optimal(instance.arms, tol=TOLERANCE).value
    spread = 48 * m * R**2
    reach = 8 * R * (m * math.sqrt(instance.arms.rank * every) + 1)
    return _least_over_shares(demands, spread, reach), len(demands)


def _check_phases(m: int | None, gap: float) -> tuple[int, int]:
    """Phases m, i_0 unless given and never less, and i_0 of a gap."""
    i0 = max(halvings(gap) + 1, 1)
    if m is not None and whole_number(m, "m", least=1) < i0:
        raise InvalidInputError(
            f"m is {m}; a gap of {gap:g} needs at least i0 = {i0} virtual phases. Give a larger m, "
            "or say with epsilon which gap no longer matters."
        )
    return i0 if m is None else m, i0


def _simplified_terms(instance: Instance) -> tuple[float, float]:
    """The terms of equation (4), without m, i_0 and 1/Δ_(1)."""
    low_order = math.sqrt(instance.arms.rank * instance.worst_comparison(0))
    return instance.worst_comparison(1), low_order


def _demands(instance: Instance, epsilon: float) -> list[_Demand]:
    """One per event: 2^-i for i up to the phase of the smallest gap above ε.

    An arm is separated from the best by the event i with 2^-i < Δ ≤ 2^(1-i). The first event is
    number 1, or earlier if there are gaps above 1.
    """
    wrong = instance.gaps[instance.gaps > epsilon]
    if not wrong.size:
        return []
    first = min(whole_halvings(instance.gaps.max()) + 1, 1)
    last = whole_halvings(wrong.min()) + 1
    values = _f_values(instance, range(first, last + 1))
    return [_Demand(values[i], 2.0**-i) for i in range(first, last + 1)]


def _f_values(instance: Instance, phases: range) -> dict[int, float]:
    """f(A_(i-2)) for each phase i; equal sets are solved once."""
    by_size: dict[int, float] = {}
    values = {}
    for i in phases:
        among = np.flatnonzero(instance.gaps <= 2.0 ** (3 - i))
        if among.size not in by_size:
            by_size[among.size] = xy_optimal(instance.arms, among, tol=TOLERANCE).value
        values[i] = by_size[among.size]
    return values


def _least_over_shares(demands: list[_Demand], spread: float, reach: float) -> float:
    """The least H for which shares 0 ≤ a_1 ≤ a_2 ≤ … ≤ 1 meet all demands.

    A demand: spread Σ (a_i' - a_(i'-1)) f_i' + reach a_i δ ≤ 3 H a_i² δ², sums up to phase i.
    """
    if not demands:
        return 0.0
    alone = max((spread * f + reach * delta) / (3 * delta**2) for f, delta in demands)

    def surplus(logarithm: float) -> float:
        return _last_share(demands, alone * math.exp(logarithm), spread, reach) - 1.0

    if surplus(0.0) <= 0.0:  # one demand, or others that cost nothing on top of it
        return alone
    high = 1.0
    while surplus(high) > 0.0:
        high *= 2
    return alone * math.exp(scipy.optimize.brentq(surplus, 0.0, high, xtol=1e-13, rtol=1e-14))


def _last_share(demands: list[_Demand], H: float, spread: float, reach: float) -> float:
    """The last share if each is the smallest allowed; earlier ones only make later ones dearer."""
    share = total = 0.0
    for demand in demands:
        square = 3 * H * demand.precision**2
        linear = reach * demand.precision + spread * demand.f
        before = spread * max(total - share * demand.f, 0.0)
        root = (linear + math.sqrt(linear**2 + 4 * square * before)) / (2 * square)
        new = max(share, root)
        total += (new - share) * demand.f
        share = new
    return share


# How often a policy errs at most


def g_bai_error_bound(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float = 1.0
) -> float:
    """Theorem 1: G-BAI errs with probability at most K exp(-T Δ_(1)² / (12 d)), or one.

    However the world moves; θ is then the average over its rounds. For rewards of size up to R
    the exponent is divided by R². With rewards of up to two, which the paper's setting allows,
    the constant 12 is not enough: see ``docs/research/technical_note.md`` for an instance.

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the features of the arms; the average over the rounds where rewards
        drift
    budget : T, rounds of the test
    largest_reward : no reward is ever larger in size

    Returns
    -------
    float : a bound on the probability of a wrong recommendation, at most 1

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{g_bai_error_bound(arms, [0.75, 0.25], budget=400):.4f}")  # 2 exp(-100/24)
    0.0310
    """
    return _drift_bound(arms, theta, budget, largest_reward, 1 / 12)


def p1_rage_drift_error_bound(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float = 1.0
) -> float:
    """Theorems 2 and 5: P1-RAGE errs with probability at most K exp(-3 T Δ_(1)² / (64 d)), or one.

    However the world moves, whatever m and however often it redesigns: all comes from the half
    of G-optimal design. For rewards of size up to R the exponent is divided by R².

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter in the features of the arms; the average over the rounds where rewards
        drift
    budget : T, rounds of the test
    largest_reward : no reward is ever larger in size

    Returns
    -------
    float : a bound on the probability of a wrong recommendation, at most 1

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{p1_rage_drift_error_bound(arms, [0.75, 0.25], budget=1000):.4f}")
    0.0057
    """
    return _drift_bound(arms, theta, budget, largest_reward, 3 / 64)


def p1_rage_error_bound(
    arms: ArmSet,
    theta: ArrayLike,
    budget: int,
    m: int | None = None,
    epsilon: float = 0.0,
    largest_reward: float = 1.0,
) -> float:
    """Theorem 3, and with it Theorem 2: at most 2 i_0 K T exp(-T / H̄), or one, if nothing moves.

    H̄ is `h_p1_rage_exact`. The bound is for a new allocation after every round, which is
    ``P1RAGE(max_phases=m, updates="rounds")``. Like the proof it takes no notice of cutting the
    budget at whole rounds, nor of the first round, which is played before anything is averaged.
    With ε it bounds the probability to name an arm whose gap is above ε (Corollary 2).

    Parameters
    ----------
    arms : the variants
    theta : (d,) parameter of a stationary world, in the features of the arms
    budget : T, rounds of the test
    m : number of virtual phases averaged, the policy's `max_phases`; at least i_0, the default
    epsilon : arms with gaps up to this will do
    largest_reward : no reward is ever larger in size

    Returns
    -------
    float : a bound on the probability of a wrong recommendation, at most 1

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{p1_rage_error_bound(arms, [0.75, 0.25], budget=40_000):.4f}")
    0.0020
    """
    instance, T = _check(arms, theta, budget, largest_reward)
    H, events = _exact_complexity(instance, m, epsilon, largest_reward)
    if H == 0.0:
        return 0.0
    return min(1.0, 2 * events * arms.size * T * math.exp(-T / H))


def phases_for(effect: float, first_cut: float = 1.0) -> int:
    """The choice of m for the smallest effect that matters: ⌈log2(1/ε)⌉ + 1 virtual phases.

    Theorem 2 asks for it with ε = Δ_(1), Corollary 2 with the largest gap that is as good as
    none. It is the least `max_phases` for ``P1RAGE``; more phases cost little. (Section 5 writes
    log without a base; the proof halves, so it is log2. The m = 15 of the paper's runs is enough
    for gaps down to 2^-14, not only down to the 2^-13 it names.)

    Parameters
    ----------
    effect : ε, in units of the rewards
    first_cut : the policy's own `first_cut`, where virtual elimination starts

    Returns
    -------
    int : the number of virtual phases, at least 1

    Examples
    --------
    >>> phases_for(0.05)  # 2^-5 is the first power below 0.05
    6
    >>> phases_for(2**-14)
    15
    """
    return max(
        halvings(check_positive(effect, "effect") / check_positive(first_cut, "first_cut")) + 1, 1
    )


def _drift_bound(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float, constant: float
) -> float:
    instance, T = _check(arms, theta, budget, largest_reward)
    gap = instance.gap / largest_reward
    return min(1.0, arms.size * math.exp(-constant * T * gap**2 / arms.rank))


def _check(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float
) -> tuple[Instance, int]:
    instance = Instance.from_parameter(arms, theta)
    R = check_positive(largest_reward, "largest_reward")
    arm = int(np.abs(instance.means).argmax())
    if abs(instance.means[arm]) > R * (1 + 1e-12):
        raise InvalidInputError(
            f"the mean of arm {arms.names[arm]!r} is {instance.means[arm]:g}, but largest_reward "
            f"is {R:g}; say with largest_reward how large rewards can be in size."
        )
    return instance, whole_number(budget, "budget", least=1)
