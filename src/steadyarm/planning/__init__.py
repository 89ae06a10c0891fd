"""Planning: how long a test must be, for a wanted error, with each policy, calm or drifting."""

from steadyarm.planning.answer import Curve, Line, Need, Plan, Point, Theory
from steadyarm.planning.planner import Progress, plan
from steadyarm.planning.question import Question
from steadyarm.planning.worlds import Rhythm

__all__ = [
    "Curve",
    "Line",
    "Need",
    "Plan",
    "Point",
    "Progress",
    "Question",
    "Rhythm",
    "Theory",
    "plan",
]
