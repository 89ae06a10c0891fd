"""The public names, by topic, and where they are; `__init__.py` imports each when it is used."""

from steadyarm import (
    analysis as analysis,
    arms as arms,
    client as client,
    designs as designs,
    environments as environments,
    errors as errors,
    estimators as estimators,
    inference as inference,
    live as live,
    openfeature as openfeature,
    paper as paper,
    planning as planning,
    plot as plot,
    policies as policies,
    reports as reports,
    segments as segments,
    simulation as simulation,
    storages as storages,
    testing as testing,
    theory as theory,
)
from steadyarm.analysis import Analysis, Columns, Events, analyze
from steadyarm.arms import ArmSet
from steadyarm.client import AsyncClient, Client
from steadyarm.designs import (
    Design,
    frank_wolfe_g,
    frank_wolfe_xy,
    g_optimal,
    round_design,
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
    VisitsPendingError,
    WrongStateError,
)
from steadyarm.live.assigner import LiveAssignment
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import create_experiment, load_experiment
from steadyarm.live.metrics import Metric
from steadyarm.live.breakdowns import Breakdown
from steadyarm.live.results import Status
from steadyarm.live.session import Assignment, Session
from steadyarm.live.verdict import Verdict
from steadyarm.planning import Plan, Question, plan
from steadyarm.policies import (
    GBAI,
    GSE,
    P1,
    P1RAGE,
    AdjacentBAI,
    DeconfoundedThompson,
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
from steadyarm.wire.signing import sign_unit
from steadyarm.simulation import Comparison, Results, compare, simulate

__all__ = [
    # the test: variants, sessions, verdicts
    "ArmSet",
    "Assignment",
    "Session",
    "Verdict",
    # live experiments
    "Breakdown",
    "AsyncClient",
    "Client",
    "Experiment",
    "LiveAssignment",
    "Metric",
    "Status",
    "create_experiment",
    "load_experiment",
    "sign_unit",
    # designs
    "Design",
    "frank_wolfe_g",
    "frank_wolfe_xy",
    "g_optimal",
    "round_design",
    "xy_optimal",
    # policies
    "AdjacentBAI",
    "DeconfoundedThompson",
    "GBAI",
    "GSE",
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
    "Comparison",
    "Environment",
    "GaussianNoise",
    "ParametricEnvironment",
    "Replay",
    "Results",
    "RewardSource",
    "compare",
    "simulate",
    # logs of tests that ran elsewhere
    "Analysis",
    "Columns",
    "Events",
    "analyze",
    # errors
    "BudgetSpentError",
    "ExperimentExistsError",
    "InvalidInputError",
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
    "VisitsPendingError",
    "WrongStateError",
]

__version__: str
