"""Theory: how hard a test is, and how often its verdict can be wrong at most.

Complexities and bounds of Xiong, Camilleri, Fazel, Jain and Jamieson (AISTATS 2024). Theorems and
equations are numbered as there; the appendix holds Theorems 3 to 5 and both corollaries. What
does not hold as printed is said where it matters and in ``docs/theory.md``.
"""

from steadyarm.theory.bounds import (
    Reading,
    g_bai_error_bound,
    h_p1_rage,
    h_p1_rage_ceiling,
    h_p1_rage_exact,
    p1_rage_drift_error_bound,
    p1_rage_error_bound,
    phases_for,
)
from steadyarm.theory.complexities import (
    h_adjacent,
    h_bob,
    h_g_bai,
    h_unif,
    rho_star,
    rho_star_of_means,
)

__all__ = [
    "Reading",
    "g_bai_error_bound",
    "h_adjacent",
    "h_bob",
    "h_g_bai",
    "h_p1_rage",
    "h_p1_rage_ceiling",
    "h_p1_rage_exact",
    "h_unif",
    "p1_rage_drift_error_bound",
    "p1_rage_error_bound",
    "phases_for",
    "rho_star",
    "rho_star_of_means",
]
