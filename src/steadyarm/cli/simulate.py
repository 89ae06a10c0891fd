"""`steadyarm simulate`: one policy in one world, from the command line or a TOML file."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import steadyarm as sa
from steadyarm.cli.common import FORMAT, JOBS, add_command, read_toml, show
from steadyarm.environments.named import WORLDS, world_from_settings
from steadyarm.policies import POLICIES, policy_from_dict, policy_named


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    add_command(
        commands,
        "simulate",
        run,
        [
            ("file [FILE.toml]", "policy and world, see below"),
            ("--policy NAME", f"one of: {', '.join(POLICIES).lower()} (default: steady)"),
            ("--published", "as in the paper's published runs"),
            ("--world NAME", f"one of: {', '.join(WORLDS)}"),
            ("--set KEY=VALUE ...", "a parameter of the world, such as scale=3; may be repeated"),
            ("--trials N", "simulated tests (default: 1000)"),
            ("--seed N", "seed of all random draws (default: 0)"),
            JOBS,
            FORMAT,
        ],
    )


def run(args: argparse.Namespace) -> None:
    """Run one policy in one world many times.

    Counts the wrong recommendations.

    A TOML file has the tables [policy], [world] and, where the world needs them, [arms]:

      trials = 2000
      [policy]
      name = "P1-RAGE"
      [arms]
      factorial = { headline = ["short", "long"], image = ["cat", "dog", "none"] }
      interactions = 1
      [world]
      name = "trend"
      first = [0.30, 0.05, 0.00, 0.02]
      last = [0.30, -0.02, 0.00, 0.06]
      budget = 5000
      noise = { kind = "gaussian", sd = 0.4 }
    """
    settings = _read(args.file) if args.file else {}
    world = _world(args, settings)
    policy = _policy(args, settings)
    trials = args.trials if args.trials is not None else settings.get("trials", 1000)
    seed = args.seed if args.seed is not None else settings.get("seed", 0)
    results = sa.simulate(policy, world, trials=trials, seed=seed, jobs=args.jobs)
    low, high = results.interval()
    best = world.arms.names[world.best_arm]
    facts = {
        "policy": policy.to_dict(),
        "budget": world.budget,
        "best_arm": best,
        "gap": world.gap,
        "trials": results.trials,
        "errors": results.errors,
        "error_rate": results.error_rate,
        "interval": [low, high],
        "seed": seed,
    }
    text = (
        f"{policy.name} on {world.arms.size} arms, budget {world.budget:,}\n"
        f"best on average: {best}, by {world.gap:.4g}\n"
        f"wrong in {results.errors} of {results.trials} trials: {results.error_rate:.4g} "
        f"(95 % interval {low:.4g} to {high:.4g})"
    )
    show(args, facts, text)


def _read(path: Path) -> dict[str, Any]:
    settings = read_toml(path)
    known = {"trials": int, "seed": int, "policy": dict, "world": dict, "arms": dict}
    for key, value in settings.items():
        if key not in known or not isinstance(value, known[key]):
            raise sa.InvalidInputError(
                f"{path}: {key} = {value!r} is not understood; expected trials and seed as whole "
                "numbers and the tables [policy], [world] and [arms]."
            )
    return settings


def _world(args: argparse.Namespace, settings: Mapping[str, Any]) -> sa.Environment:
    world = dict(settings.get("world", {}))
    if args.world is not None:
        world["name"] = args.world
    for text in args.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise sa.InvalidInputError(f"--set {text!r} is not of the form KEY=VALUE.")
        world[key] = _value(value)
    if not world:
        raise sa.InvalidInputError(
            "no world is given; name one with --world or in a table [world] of a TOML file."
        )
    return world_from_settings(world, settings.get("arms"))


def _value(text: str) -> Any:
    """A number, list or boolean as TOML writes it; anything else is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _policy(args: argparse.Namespace, settings: Mapping[str, Any]) -> sa.Policy[Any]:
    described = dict(settings.get("policy", {}))
    name = policy_named(args.policy or described.pop("name", "Steady"))
    if args.published:
        return POLICIES[name].published()
    described.pop("name", None)
    return policy_from_dict({"name": name} | described)
