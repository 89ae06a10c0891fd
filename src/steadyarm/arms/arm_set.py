"""ArmSet: the finite set of variants, their names and their features, validated once.

Every later part works on coordinates, the arms written in a basis of their own span, and speaks
to the user in `features`, the columns the user gave. Few arms are stored as tables; of large sets
`rows` computes the coordinates of some on demand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms.generated import values_of
from steadyarm.arms.recipes import (
    Bundles,
    CountedNames,
    Factorial,
    OneHot,
    Recipe,
    listing,
    recipe_from_dict,
)
from steadyarm.arms.rows import (
    LARGE,
    SAME,
    DenseRows,
    Rows,
    Span,
    check_apart,
    check_distinct,
    frozen,
    is_large,
    read_rows,
    row_blocks,
    span_from_dict,
    span_of,
    span_to_dict,
)
from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_names, name_list, whole_number

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix

MOST_IN_TABLE = 2**27  # 1 GB: the largest table of arms that is computed on demand

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ArmSet:
    """A finite set of arms: K names and a (K, d) feature matrix, immutable.

    Build one with `from_features`, `one_hot`, `factorial` or `bundles`.

    Attributes
    ----------
    names : K distinct strings; of large sets made from the index
    feature_names : d strings
    span : the arms in a basis of their span
    given : (K, d) features as the user gave them; None if a recipe makes them
    recipe : what a factorial or bundle set, or a large one-hot set, was made from; else None
    targets : the arms that can be recommended, if they are others than those that can be played;
        see `with_targets`

    Examples
    --------
    >>> arms = ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog", "none"]})
    >>> arms
    ArmSet(6 arms, 6 features)
    >>> arms.names[1]
    'headline=short, image=dog'
    """

    names: Sequence[str]
    feature_names: tuple[str, ...]
    span: Span
    given: Rows | None = None
    recipe: Recipe | None = None
    targets: ArmSet | None = None

    @classmethod
    def from_features(
        cls,
        X: ArrayLike | sparray | spmatrix,
        names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> ArmSet:
        """Arms given by their feature vectors, one row an arm.

        A large array of float64, or a memory map, is not copied: it must not change later.

        Parameters
        ----------
        X : (K, d) numbers: an array, a list of rows, or a sparse table
        names, feature_names : of its rows and columns; numbered if they are not given

        Returns
        -------
        ArmSet

        Examples
        --------
        >>> arms = ArmSet.from_features([[1, 0], [0, 1], [1, 1]], names=["a", "b", "both"])
        >>> arms.size, arms.rank
        (3, 2)
        """
        return cls._of_rows(read_rows(X), names, feature_names)

    @classmethod
    def _of_rows(
        cls,
        given: DenseRows,
        names: Sequence[str] | None,
        feature_names: Sequence[str] | None,
        span: Span | None = None,
    ) -> ArmSet:
        """Arms of checked rows; their span is derived unless it is given."""
        K, d = given.shape
        if names is not None:
            names = name_list(names, "names")
            check_names(names, K, "arm", "rows")
        if feature_names is None:
            feature_names = tuple(f"x{j}" for j in range(d))
        feature_names = name_list(feature_names, "feature_names")
        check_names(feature_names, d, "feature", "columns")
        check_distinct(given, names or CountedNames(K))
        span = span_of(given) if span is None else span
        if span.rows is not given:
            check_apart(span.rows, names or CountedNames(K))
        if names is None:
            names = CountedNames(K) if is_large(*span.rows.shape) else CountedNames(K)[:]
        return cls(names, feature_names, span, given)

    @classmethod
    def one_hot(cls, names: Sequence[str] | int) -> ArmSet:
        """Arms that share nothing: the classic A/B/n test.

        names : the names of the arms, or how many arms there are, which are then numbered

        Examples
        --------
        >>> ArmSet.one_hot(["A", "B", "C"]).features[1].tolist()
        [0.0, 1.0, 0.0]
        >>> ArmSet.one_hot(8).names[-1]
        'arm 7'
        """
        if isinstance(names, int):
            names = CountedNames(whole_number(names, "names", least=2))
        names = name_list(names, "names")
        K = len(names)
        if K * K <= LARGE:
            return cls.from_features(np.eye(K), names=names, feature_names=names)
        check_names(names, K, "arm", "rows")
        recipe = OneHot(names)
        return cls(names, names, Span(recipe.rows), recipe=recipe)

    @classmethod
    def factorial(
        cls, factors: Mapping[str, Sequence[str]], interactions: int = 2, constant: bool = True
    ) -> ArmSet:
        """Every combination of the factors' levels, with effects up to order `interactions`.

        A factor of L levels has L - 1 columns: its first level is -1 in all of them, level l is
        +1 in column l. Two levels are thus coded -1 and +1, and D two-level factors give the
        features of the paper's multivariate example. Interactions are products of columns. Arms
        are ordered with the last factor varying fastest.

        Parameters
        ----------
        factors : name of each factor and its levels
        interactions : 1 for main effects only, 2 adds pairs, and so on
        constant : whether the first column is the constant one

        Examples
        --------
        >>> arms = ArmSet.factorial({"a": ["lo", "hi"], "b": ["lo", "hi"]}, interactions=2)
        >>> arms.features.astype(int).tolist()
        [[1, -1, -1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, 1, 1, 1]]
        >>> arms.feature_names
        ('(constant)', 'a=hi', 'b=hi', 'a=hi:b=hi')
        """
        return cls._make(Factorial(factors, interactions, constant))

    @classmethod
    def bundles(cls, items: Sequence[str], size: int, interactions: int = 2) -> ArmSet:
        """Every bundle of `size` of the items: "the best 6 of n pieces of content".

        Features are a constant, 0/1 inclusion of each item, and for interactions of order two
        and more the products of inclusions. Since every bundle has the same size these columns
        are linearly dependent; the arm set works in their span and answers in these columns.

        size : items of a bundle
        interactions : 1 for what each item adds, 2 adds what pairs of them do, and so on

        Examples
        --------
        >>> arms = ArmSet.bundles(["news", "sport", "weather", "games"], size=2)
        >>> arms
        ArmSet(6 arms, 11 features of rank 6)
        >>> arms.names[0]
        'news + sport'
        """
        return cls._make(Bundles.of(items, size, interactions))

    @classmethod
    def _make(cls, recipe: Factorial | Bundles) -> ArmSet:
        """The set of a recipe; only the recipe is kept if there are many arms."""
        names, feature_names = recipe.names, recipe.feature_names
        K, rows = len(names), recipe.rows
        if rows is None or not is_large(*rows.shape):
            _check_room(K, len(feature_names))
            given = read_rows(recipe.features())
            # effects of factors are independent, and their singular values spread by √K at most
            span = Span(given) if isinstance(recipe, Factorial) else None
            return replace(cls._of_rows(given, names[:], feature_names, span), recipe=recipe)
        names.check()
        check_names(feature_names, len(feature_names), "feature", "columns")
        return cls(names, feature_names, Span(rows), recipe=recipe)

    def with_targets(self, targets: ArmSet) -> ArmSet:
        """A transductive set: these arms can be played, the targets can be recommended.

        `g_optimal`, `xy_optimal`, `GBAI`, `P1RAGE` and `Steady` support it in simulations. The
        recommended arm and the estimates are then those of targets.

        Parameters
        ----------
        targets : arms with the same features, in the span of those that can be played

        Returns
        -------
        ArmSet : the set itself if the targets are the same arms

        Examples
        --------
        Test single changes, and recommend any combination of them:

        >>> every = ArmSet.factorial({"a": ["no", "yes"], "b": ["no", "yes"]}, interactions=1)
        >>> arms = every.subset([0, 1, 2]).with_targets(every)
        >>> arms
        ArmSet(3 arms, 3 features, 4 targets)
        """
        if not isinstance(targets, ArmSet):
            raise InvalidInputError.of("targets", targets, "an ArmSet")
        if targets == self:
            return self
        if self.large or targets.large or targets.targets is not None:
            raise InvalidInputError("large sets, and sets with targets, cannot have targets.")
        if targets.dimension != self.dimension:
            raise InvalidInputError(
                f"the targets have {targets.dimension} features; expected {self.dimension}, those "
                "of the arms that can be played."
            )
        features = targets.features
        left = np.linalg.lstsq(self.features.T, features.T, rcond=None)[0].T @ self.features
        missed = np.abs(features - left).max(axis=1)
        if missed.max() > SAME * np.abs(features).max():
            raise InvalidInputError(
                f"target {targets.names[missed.argmax()]!r} is not in the span of the arms that "
                "can be played, so that no rewards tell its value; leave it out or add arms."
            )
        return replace(self, targets=targets)

    def refuse_targets(self, what: str) -> None:
        """Refuse a set whose targets are other arms than those that can be played.

        what : that does not support it
        """
        if self.targets is not None:
            raise InvalidInputError(
                f"{what} does not support arms with targets; simulate GBAI(), P1RAGE() or "
                "Steady() with Environment.from_parameters, or leave the targets out."
            )

    @property
    def recommendable(self) -> ArmSet:
        """The arms that can be recommended: the targets, or else all arms."""
        return self if self.targets is None else self.targets

    @cached_property
    def target_coordinates(self) -> Floats:
        """(M, r) read-only array: arms that can be recommended, in the basis of those played."""
        if self.targets is None:
            return self.coordinates
        return frozen(self.targets.features @ self.dual)

    @property
    def size(self) -> int:
        """Number of arms, the paper's K."""
        return len(self.names)

    @property
    def dimension(self) -> int:
        """Number of features the user gave, d."""
        return len(self.feature_names)

    @cached_property
    def rank(self) -> int:
        """Dimension of the span of the arms; the paper's d when the features are independent."""
        return self.rows.shape[1]

    @property
    def rows(self) -> Rows:
        """(K, r) the arms in a basis of their span, by index or in blocks."""
        return self.span.rows

    @cached_property
    def basis(self) -> Floats:
        """(d, r) read-only array, that basis: ``features = coordinates @ basis.T``."""
        return self._table_of("basis")

    @cached_property
    def dual(self) -> Floats:
        """(d, r) read-only array, its inverse: ``coordinates = features @ dual``."""
        return self._table_of("dual")

    def _table_of(self, what: Literal["basis", "dual"]) -> Floats:
        stored: Floats | None = getattr(self.span, what)
        if stored is not None:
            return stored
        _check_room(self.dimension, self.rank, "features", "coordinates")
        return frozen(np.eye(self.dimension) if self.plain else getattr(self.recipe, what))

    @property
    def plain(self) -> bool:
        """Whether coordinates are the features themselves."""
        return self.span.basis is None and self.rank == self.dimension

    @cached_property
    def large(self) -> bool:
        """Whether policies work with few arms at a time, and in passes over all of them."""
        K, r = self.rows.shape
        return is_large(K, r) and 2 * r <= K

    @cached_property
    def coordinates(self) -> Floats:
        """(K, r) read-only array: the arms in a basis of their span."""
        if isinstance(self.rows, DenseRows):
            return np.asarray(self.rows.array)
        _check_room(*self.rows.shape)
        return frozen(self.rows.block(0, self.size))

    @cached_property
    def features(self) -> Floats:
        """(K, d) read-only array, as the user gave them."""
        if isinstance(self.given, DenseRows):
            return np.asarray(self.given.array)
        if self.plain:
            return self.coordinates
        _check_room(self.size, self.dimension)
        if self.given is not None:
            return frozen(self.given.block(0, self.size))
        return frozen(self.coordinates @ self.basis.T)

    def coordinates_of(self, arms: Indices | None) -> Floats:
        """(m, r) coordinates of some arms, in their order; of all if None."""
        return self.coordinates if arms is None else self.rows.take(arms)

    def features_of(self, arms: Indices) -> Floats:
        """(m, d) features of some arms, in their order."""
        if self.given is not None:
            return self.given.take(arms)
        rows = self.rows.take(arms)
        return rows if self.plain else np.asarray(rows @ self.basis.T)

    def values(self, theta: ArrayLike) -> Floats:
        """(K,) values x'θ of all arms, for a parameter (r,) in coordinates.

        Parameters
        ----------
        theta : (r,) parameter in coordinates
        """
        return values_of(self.rows, np.asarray(theta, dtype=np.float64))

    def blocks(self) -> list[tuple[int, int]]:
        """The bounds of blocks of arms, each small enough to process at once."""
        return row_blocks(*self.rows.shape)

    def subset(self, arms: ArrayLike) -> ArmSet:
        """Few of the arms, in the coordinates and features of the whole set.

        Their span may be smaller than that of all, which coordinates do not show.

        Examples
        --------
        >>> arms = ArmSet.factorial({f"factor {i}": ["off", "on"] for i in range(16)})
        >>> arms.subset([0, 65535]).names[1][:22]
        'factor 0=on, factor 1='
        """
        indices = np.asarray(arms, dtype=np.int64)
        given = DenseRows(frozen(self.features_of(indices)))
        rows = given if self.plain else DenseRows(frozen(self.rows.take(indices)))
        names = tuple(self.names[k] for k in indices.tolist())
        span = Span(rows) if self.plain else Span(rows, self.basis, self.dual)
        return ArmSet(names, self.feature_names, span, given)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of names and features, or of the recipe: equal for arm sets of equal content."""
        if self.given is None and self.recipe is not None:
            return hashlib.sha256(json.dumps(self.recipe.to_dict()).encode()).hexdigest()
        digest = hashlib.sha256("\x00".join((*self.names, "", *self.feature_names)).encode())
        digest.update(np.ascontiguousarray(self.features, dtype=np.float64).reshape(-1).data)
        if self.targets is not None:
            digest.update(self.targets.fingerprint.encode())
        return digest.hexdigest()

    @cached_property
    def coordinates_fingerprint(self) -> str:
        """Hash of the arms and of their coordinates to the bit: what a design depends on."""
        if self.span.basis is None:
            return self.fingerprint
        digest = hashlib.sha256(self.fingerprint.encode())
        parts = [self.span.basis, self.span.dual]
        if isinstance(self.rows, DenseRows):
            parts.append(np.asarray(self.rows.array))
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def parameters(self, theta: ArrayLike) -> Floats:
        """Parameters in the user's features from parameters in coordinates (last axis).

        Where the features are dependent this is one of the vectors that give the same values.

        Parameters
        ----------
        theta : (…, r) parameters in coordinates

        Returns
        -------
        (…, d) parameters in features
        """
        parameter = np.asarray(theta, dtype=np.float64)
        if self.plain:
            return parameter.copy()
        rows = parameter.reshape(-1, self.rank) @ self.dual.T
        return np.asarray(rows.reshape(*parameter.shape[:-1], self.dimension))

    def index(self, name: str) -> int:
        """Position of the arm called `name`."""
        try:
            return self.names.index(name)
        except ValueError:
            raise InvalidInputError(
                f"there is no arm {name!r}; the arms are {listing(self.names)}."
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and strings, from which `from_dict` makes the same arm set; without targets.

        Where coordinates are not the features they are in it, to the bit, so that a test that is
        read again goes on in the coordinates that it began with.
        """
        self.refuse_targets("to_dict")
        recipe = None if self.recipe is None else self.recipe.to_dict()
        if self.given is None and recipe is not None:
            return recipe
        counted = isinstance(self.names, CountedNames)
        named: dict[str, Any] = {
            "names": None if counted else list(self.names),
            "feature_names": list(self.feature_names),
        }
        named["span"] = None if self.plain else span_to_dict(self.span)
        if recipe is not None:
            named["recipe"] = recipe
        return {**named, "features": self.features.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArmSet:
        """The arm set that `to_dict` described.

        Parameters
        ----------
        data : the result of `to_dict`

        Returns
        -------
        ArmSet
        """
        recipe = recipe_from_dict(data)
        if isinstance(recipe, OneHot):
            return cls.one_hot(recipe.names)
        if recipe is not None:
            return cls._make(recipe)
        names, feature_names = data["names"], data["feature_names"]
        given = read_rows(data["features"])
        span = span_from_dict(data["span"], given) if "span" in data else None
        arms = cls._of_rows(given, names, feature_names, span)
        return replace(arms, recipe=recipe_from_dict(data.get("recipe", {})))

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArmSet) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        rank = "" if self.rank == self.dimension else f" of rank {self.rank}"
        targets = "" if self.targets is None else f", {self.targets.size} targets"
        return f"ArmSet({self.size} arms, {self.dimension} features{rank}{targets})"


def _check_room(rows: int, columns: int, of: str = "arms", by: str = "features") -> None:
    if rows * columns > MOST_IN_TABLE:
        raise InvalidInputError(
            f"a table of {rows:,} {of} and {columns:,} {by} does not fit in memory; take the "
            "arms you need with features_of, coordinates_of or subset."
        )
