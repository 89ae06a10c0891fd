"""The same designs by cvxpy, independent of everything in `src`; slow, used to compare."""

import warnings
from typing import Any

import cvxpy
import numpy as np
from numpy.typing import NDArray

cp: Any = cvxpy  # its own annotations are incomplete


class CannotSolveError(RuntimeError):
    """cvxpy does not reach its own accuracy."""


def all_pairs(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differences of all pairs of rows."""
    i, j = np.triu_indices(len(X), 1)
    return X[i] - X[j]


def optimal_value(X: NDArray[np.float64], Y: NDArray[np.float64]) -> float:
    """Least over designs on the rows of X of the largest y'A^-1 y over the rows of Y.

    Semidefinite program "least total weight with y'A^-1 y <= 1"; constraints are brought in until
    none is violated, so the value is that of the whole program.
    """
    whitened, R = np.linalg.qr(X)
    X, Y = whitened, np.linalg.solve(R.T, Y.T).T
    scale = np.sqrt(np.square(Y).sum(axis=1).max())
    Y = Y / scale
    K, r = X.shape
    products = (X[:, :, None] * X[:, None, :]).reshape(K, r * r)
    active = np.argsort(-np.square(Y).sum(axis=1))[: 2 * r].tolist()
    while True:
        lam = cp.Variable(K, nonneg=True)
        A = cp.reshape(products.T @ lam, (r, r), order="C")
        one = np.ones((1, 1))
        constraints = [cp.bmat([[A, Y[[j]].T], [Y[[j]], one]]) >> 0 for j in active]
        problem = cp.Problem(cp.Minimize(cp.sum(lam)), constraints)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # 1e-8 is not always met; 1e-5 is compared
            problem.solve(solver=cp.CLARABEL)
        weights = np.maximum(lam.value, 1e-8 * lam.value.max())
        variances = np.einsum("ij,ij->i", Y @ np.linalg.inv((X.T * weights) @ X), Y)
        worst = np.argsort(-variances)[: 2 * r]
        new = [int(j) for j in worst if variances[j] > 1 + 2e-7 and int(j) not in active]
        if not new and problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            raise CannotSolveError(f"cvxpy ended with {problem.status}")
        if not new:
            value: float = problem.value * scale**2
            return value
        active += new


def achieved_value(
    X: NDArray[np.float64], Y: NDArray[np.float64], weights: NDArray[np.float64]
) -> float:
    """Largest y'A^+y over the rows of Y; infinite when one is outside of the range of A."""
    whitened, R = np.linalg.qr(X)
    Y = np.linalg.solve(R.T, Y.T).T
    values, vectors = np.linalg.eigh((whitened.T * weights) @ whitened)
    kept = values > 1e-11 * values[-1]
    if np.abs(Y @ vectors[:, ~kept]).max(initial=0.0) > 1e-7 * np.abs(Y).max():
        return np.inf
    return float(np.square((Y @ vectors[:, kept]) / np.sqrt(values[kept])).sum(axis=1).max())
