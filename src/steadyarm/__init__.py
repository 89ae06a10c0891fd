"""SteadyArm: find the best of many variants, and stay right when the world moves."""

from typing import TYPE_CHECKING, Any

from steadyarm import plot
from steadyarm.analysis import Analysis, analyze
from steadyarm.arms import ArmSet
from steadyarm.designs import (
    Design,
    frank_wolfe_g,
    frank_wolfe_transductive,
    frank_wolfe_xy,
    g_optimal,
    round_design,
    transductive,
    xy_optimal,
)
from steadyarm.environments import (
    BernoulliReward,
    BoundedNoise,
    Environment,
    GaussianNoise,
    ParametricEnvironment,
    Replay,
    RewardSource,
)
from steadyarm.errors import (
    BudgetSpentError,
    ExperimentExistsError,
    InvalidInputError,
    LeaseExpiredError,
    MissingExtraError,
    RepeatedRewardError,
    RewardsPendingError,
    RewardTooLateError,
    ServiceError,
    SteadyArmError,
    StorageError,
    StorageVersionError,
    UnknownAssignmentError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.live.assignments import LiveAssignment, Status
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import create_experiment, import_experiment, load_experiment
from steadyarm.live.session import Assignment, Session
from steadyarm.live.verdict import Verdict
from steadyarm.planning import Plan, Question, plan
from steadyarm.policies import (
    GBAI,
    P1,
    P1RAGE,
    AdjacentBAI,
    LinearThompson,
    MixedPeace,
    ODLinBAI,
    P1Peace,
    Peace,
    Policy,
    SequentialHalving,
    State,
    Steady,
    TopTwoThompson,
    Uniform,
)
from steadyarm.segments import Segment, SegmentStats
from steadyarm.simulation import Results, simulate

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from steadyarm.client import Client

__all__ = [
    # the test: variants, sessions, verdicts
    "ArmSet",
    "Assignment",
    "Session",
    "Verdict",
    # live experiments
    "Client",
    "Experiment",
    "LiveAssignment",
    "Status",
    "create_experiment",
    "import_experiment",
    "load_experiment",
    # designs
    "Design",
    "frank_wolfe_g",
    "frank_wolfe_transductive",
    "frank_wolfe_xy",
    "g_optimal",
    "round_design",
    "transductive",
    "xy_optimal",
    # policies
    "AdjacentBAI",
    "GBAI",
    "LinearThompson",
    "MixedPeace",
    "ODLinBAI",
    "P1",
    "P1Peace",
    "P1RAGE",
    "Peace",
    "Policy",
    "Segment",
    "SegmentStats",
    "SequentialHalving",
    "State",
    "Steady",
    "TopTwoThompson",
    "Uniform",
    # planning
    "Plan",
    "Question",
    "plan",
    # pictures
    "plot",
    # simulation
    "BernoulliReward",
    "BoundedNoise",
    "Environment",
    "GaussianNoise",
    "ParametricEnvironment",
    "Replay",
    "Results",
    "RewardSource",
    "simulate",
    # logs of tests that ran elsewhere
    "Analysis",
    "analyze",
    # errors
    "BudgetSpentError",
    "ExperimentExistsError",
    "InvalidInputError",
    "LeaseExpiredError",
    "MissingExtraError",
    "RepeatedRewardError",
    "RewardTooLateError",
    "RewardsPendingError",
    "ServiceError",
    "SteadyArmError",
    "StorageError",
    "StorageVersionError",
    "UnknownAssignmentError",
    "UnknownExperimentError",
    "WrongStateError",
]


def __getattr__(name: str) -> Any:
    """Load the client when it is first used, because it needs the extra `client`."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from steadyarm.client import Client
    except ModuleNotFoundError:
        raise MissingExtraError(
            "the client needs httpx and msgspec; install them with: pip install 'steadyarm[client]'"
        ) from None
    return Client
