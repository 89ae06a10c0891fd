"""Random arms of many kinds, among them two hundred arm sets that are the same every time."""

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet

KINDS = ("gaussian", "binary", "near-collinear", "clustered", "interior")
COUNT = 200


def random_arm_set(seed: int) -> tuple[str, ArmSet]:
    """Arm set number `seed` of 200: K from 3 to 200, d from 2 to 20."""
    kind, X = random_features(seed)
    return kind, ArmSet.from_features(X)


def random_features(seed: int) -> tuple[str, NDArray[np.float64]]:
    """The kind and the features of that arm set."""
    rng = np.random.default_rng([7, seed])
    kind = KINDS[seed % len(KINDS)]
    K = round(3 * (200 / 3) ** rng.random()) if seed >= 2 * len(KINDS) else (3, 200)[seed // 5]
    d = int(rng.integers(2, 21))
    return kind, _features(kind, K, d, rng)


def random_points(kind: str, K: int, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(K, d) Gaussian points; on a "sphere", with a "constant" or on a "grid" if that is asked."""
    X = rng.normal(size=(K, d))
    if kind == "sphere":
        X /= np.linalg.norm(X, axis=1)[:, None]
    elif kind == "constant":
        X[:, 0] = 1.0
    elif kind == "grid":
        X = np.unique(np.round(2 * X), axis=0)
    return X


def _features(kind: str, K: int, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    X = rng.normal(size=(K, d))
    if kind == "binary":
        while 2**d < 2 * K:
            d += 1
        rows = np.unique(rng.integers(0, 2, size=(4 * K, d)), axis=0)
        return rng.permutation(rows)[:K].astype(np.float64)
    if kind == "near-collinear":
        return np.outer(rng.normal(size=K), X[0]) + 1e-4 * X
    if kind == "clustered":
        centres = rng.normal(size=(4, d))
        return centres[rng.integers(0, 4, size=K)] + 0.02 * X
    if kind == "interior":
        hull = max(3, K // 3)
        X[hull:] = rng.dirichlet(np.ones(hull), size=K - hull) @ X[:hull]
    return X
