"""Looks: a test as people see it, as plain values; pages, reports and plots draw them."""

from steadyarm.looks.course import course_of, shares_of
from steadyarm.looks.effects import effects_of
from steadyarm.looks.look import (
    Course,
    Effect,
    Effects,
    Interaction,
    Light,
    Look,
    Shares,
    Waiting,
)
from steadyarm.looks.looking import look_at
from steadyarm.looks.ranking import Standing, order_of, standing_of

__all__ = [
    "Course",
    "Effect",
    "Effects",
    "Interaction",
    "Light",
    "Look",
    "Shares",
    "Standing",
    "Waiting",
    "course_of",
    "effects_of",
    "look_at",
    "order_of",
    "shares_of",
    "standing_of",
]
