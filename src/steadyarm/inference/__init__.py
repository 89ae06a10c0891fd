"""Statistical inference: intervals that hold under drift, health checks and drift reports."""

from steadyarm.inference.boundaries import Looks, boundaries, spent
from steadyarm.inference.drift import DriftReport, drift_p_values, drift_report
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.fit import LackOfFit, lack_of_fit, lack_of_fit_p_values
from steadyarm.inference.health import (
    CountTest,
    Finding,
    HealthReport,
    LoggedSegment,
    attrition_test,
    health_report,
    late_finding,
    srm_test,
)
from steadyarm.inference.intervals import Intervals, fixed_budget
from steadyarm.inference.lift import Lifts, lift_path, lift_sequence, lifts
from steadyarm.inference.sequences import (
    Stopping,
    confidence_path,
    confidence_sequence,
    stopping_of,
)

__all__ = [
    "CountTest",
    "DriftReport",
    "Evidence",
    "Finding",
    "HealthReport",
    "Intervals",
    "LackOfFit",
    "Lifts",
    "LoggedSegment",
    "Looks",
    "Stopping",
    "attrition_test",
    "boundaries",
    "confidence_path",
    "confidence_sequence",
    "drift_p_values",
    "drift_report",
    "fixed_budget",
    "health_report",
    "lack_of_fit",
    "lack_of_fit_p_values",
    "late_finding",
    "lift_path",
    "lift_sequence",
    "lifts",
    "spent",
    "srm_test",
    "stopping_of",
]
