"""Choices of the form for new experiments, each with a sentence for those who have to choose."""

from __future__ import annotations

__all__ = ["CHOICES", "LABELS", "POLICIES", "USUAL"]

POLICIES = {
    "Steady": "Recommended. Moves visitors to the variants that can still win, and stays right "
    "when visitors change from day to day.",
    "Uniform": "All variants get the same share throughout. Stays right when visitors change, but "
    "needs more of them.",
    "G-BAI": "A fixed split, worked out beforehand so that all variants are known equally well. "
    "Learns nothing on the way.",
    "P1-RAGE": "Half a fixed split, half on the variants that matter. The published method from "
    "which Steady comes.",
    "P1-Peace": "As P1-RAGE, with another rule for which variants still matter.",
    "Mixed-Peace": "Drops variants step by step, but keeps half of the visitors for a fixed split.",
    "Peace": "Drops variants for good, step by step. Quick in a calm world, misled by a changing "
    "one; waits for all rewards of a step.",
    "OD-LinBAI": "Halves the variants step by step. Quick in a calm world, misled by a changing "
    "one; waits for all rewards of a step.",
    "P1": "The better a variant looks, the more visitors it gets. Treats every variant by itself.",
    "Adjacent-BAI": "A fixed split that compares variants with their neighbours only. Learns "
    "nothing on the way.",
    "Sequential-Halving": "Drops the worse half of the variants, again and again. Quick in a calm "
    "world, misled by a changing one; waits for all rewards of a step.",
    "Linear-Thompson": "Made to earn while testing: the leader soon gets nearly all visitors. "
    "Misled when visitors change.",
    "Top-Two-Thompson": "Compares the leader with its closest rival most of the time. Misled when "
    "visitors change.",
}
CHOICES: dict[str, dict[str, str]] = {
    "kind": {
        "variants": "Separate variants, such as three headlines",
        "factorial": "Combinations of parts, such as every headline with every picture",
    },
    "interactions": {
        "2": "Parts may work together: a picture can help one headline and harm another",
        "1": "Parts work by themselves: the best headline is best with every picture. "
        "Needs fewer visitors, if it is true",
    },
    "policy": {name.lower(): text for name, text in POLICIES.items()},
    "direction": {"maximize": "The more the better", "minimize": "The less the better"},
    "range": {
        "click": "Yes or no, such as a click or a purchase: 1 or 0",
        "custom": "A number between two limits, such as stars from 1 to 5",
        "none": "Any number, such as euros",
    },
    "window_unit": {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"},
    "missing": {
        "zero": "It counts as 0: nothing came, so nothing happened. Right if only clicks and "
        "purchases are told",
        "drop": "It was lost: it counts as the average of the same variant. Right if rewards get "
        "lost whatever they are",
        "fail": "It must come: there is no verdict without it",
    },
    "sticky": {
        "unit": "A visitor sees the same variant every time",
        "none": "Every request is drawn anew, such as the subject of a mail",
    },
    "start": {"now": "Start at once", "draft": "Keep it as a draft and start it later"},
}
USUAL = {
    "name": "",
    "kind": "variants",
    "variants": "",
    "interactions": "2",
    "budget": "",
    "policy": "steady",
    "direction": "maximize",
    "range": "click",
    "range_low": "",
    "range_high": "",
    "window": "1",
    "window_unit": "d",
    "missing": "zero",
    "sticky": "unit",
    "control": "",
    "control_share": "",
    "min_share": "",
    "start": "now",
    "seed": "",
}
LABELS = {
    "name": "Name",
    "kind": "What is tested",
    "variants": "Variants",
    "interactions": "How parts work together",
    "budget": "Visitors in all",
    "policy": "Method",
    "direction": "What is better",
    "range": "What a reward is",
    "range_low": "Least reward",
    "range_high": "Largest reward",
    "window": "How long to wait for a reward",
    "window_unit": "Unit of time",
    "missing": "If no reward comes",
    "sticky": "Visitors who come again",
    "control": "Variant with a fixed share",
    "control_share": "Its share",
    "min_share": "Least share of every variant",
    "start": "Start",
    "seed": "Seed",
}
