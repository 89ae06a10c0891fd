"""Planning: how long a test must be, for right picks and for clear answers, calm or drifting."""

from steadyarm.planning.answer import Line, Need, Plan, Point, Share
from steadyarm.planning.question import Question, Rhythm
from steadyarm.planning.search import Progress, plan

__all__ = [
    "Line",
    "Need",
    "Plan",
    "Point",
    "Progress",
    "Question",
    "Rhythm",
    "Share",
    "plan",
]
