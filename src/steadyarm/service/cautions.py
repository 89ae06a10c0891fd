"""What settings may bring about unmeant, told when an experiment is created."""

from __future__ import annotations

from steadyarm.settings import Settings

__all__ = ["cautions_about"]

FEW = 10  # rounds of a variant, on average


def cautions_about(settings: Settings) -> list[str]:
    """Sentences, none if all is well.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> cautions_about(Settings(arms, sa.Steady(), 1000, seed=1, reward_window="2d"))
    []
    """
    found = []
    if settings.missing == "zero" and settings.reward_window is None:
        found.append(
            "rewards that are never told count as zero only at the end, and until then the policy "
            "does not learn; give reward_window, or tell zeros, too."
        )
    arms = settings.arms
    if settings.budget < FEW * (arms.rank if arms.large else arms.size):
        found.append("the budget is small for so many variants; see steadyarm plan.")
    return found
