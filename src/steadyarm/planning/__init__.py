"""Planning: how long a test must be, for right picks and for clear answers, calm or drifting."""

from steadyarm.planning.answer import Answers, Clear, Curve, Line, Need, Plan, Point, Theory
from steadyarm.planning.planner import Progress, plan
from steadyarm.planning.question import Question
from steadyarm.planning.worlds import Rhythm

__all__ = [
    "Answers",
    "Clear",
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
