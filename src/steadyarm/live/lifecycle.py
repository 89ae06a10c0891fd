"""Create, load and describe experiments; check a whole storage."""

from __future__ import annotations

import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyarm import storages
from steadyarm.arms import ArmSet
from steadyarm.environments.families import arms_from_settings
from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    StorageError,
    UnknownExperimentError,
)
from steadyarm.live.decisions import check_servable, first_state, load_state
from steadyarm.live.experiment import Experiment
from steadyarm.live.metrics import Metric, microseconds, unnamed
from steadyarm.live.settings import (
    NEVER_MATURE,
    OF_PRIMARY,
    STOPPING,
    After,
    Looking,
    Missing,
    Settings,
    Spending,
    Sticky,
    Stop,
)
from steadyarm.policies import Policy, is_policy_name, policy_from
from steadyarm.segments import Direction
from steadyarm.storages import open_storage
from steadyarm.storages.records import ExperimentRecord, new_tag
from steadyarm.wording import did_you_mean, shortened

if TYPE_CHECKING:
    from steadyarm.storages.storage import Storage

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DESCRIBED = (
    *("arms", "policy", "budget", "seed", "direction", "reward_range", "reward_window"),
    *("reward_grace", "missing", "sticky", "control", "min_share", "metrics", "attributes"),
    *("covariates", *STOPPING, "values", "bulk", "traffic", "layer", "after", "about"),
)


def create_experiment(
    name: str,
    arms: ArmSet | Sequence[str],
    policy: Policy[Any],
    budget: int,
    storage: str | Storage | None = None,
    *,
    seed: int | None = None,
    direction: Direction = "maximize",
    reward_range: tuple[float, float] | None = None,
    reward_window: float | str | timedelta | None = None,
    reward_grace: float | str | timedelta | None = None,
    missing: Missing | None = None,
    sticky: Sticky = "unit",
    control: str | Mapping[str, float] | None = None,
    min_share: Mapping[str, float] | float | None = None,
    metrics: Sequence[Metric | Mapping[str, Any]] | None = None,
    attributes: Mapping[str, Sequence[str]] | None = None,
    covariates: Sequence[str] | None = None,
    stop: Stop | None = None,
    looks: Looking | None = None,
    spending: Spending | None = None,
    futility: float | None = None,
    values: Mapping[str, Any] | Sequence[Any] | None = None,
    bulk: bool = False,
    traffic: float = 1.0,
    layer: str | None = None,
    after: After = "show",
    about: Mapping[str, Any] | None = None,
    load_if_exists: bool = False,
    start: bool = True,
    clock: Callable[[], float] | None = None,
    by: str = "",
) -> Experiment:
    """A new live test in a storage.

    Parameters
    ----------
    name : letters, digits, dots, hyphens and underscores
    arms : the variants; a list of names for variants that share nothing
    policy : how they are chosen; Steady() if in doubt
    budget : how many assignments will be made in all; `plan` says how many are needed
    storage : a URL such as "sqlite:///tests.db" or "postgresql+psycopg://me@host/tests"; by default
        what the environment variable STEADYARM_STORAGE says, else "sqlite:///steadyarm.db"
    seed : makes all draws reproducible; drawn and stored if it is not given
    direction, reward_range, reward_window, reward_grace, missing, sticky : see `Settings`
    control, min_share, metrics, attributes, covariates : see `Settings`
    stop, looks, spending, futility, values, bulk, traffic, layer, after, about : see `Settings`
    load_if_exists : an experiment of that name with the same settings is loaded instead
    start : False leaves it a draft until `Experiment.start`
    clock : seconds since 1970, in place of the storage's own clock, for simulations
    by : the author, for the audit log

    Returns
    -------
    Experiment : running, or a draft with ``start=False``

    Examples
    --------
    >>> import steadyarm as sa
    >>> shop = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 1000, "memory", seed=1, missing="drop"
    ... )
    >>> first = shop.ask("visitor 1")
    >>> first.name == shop.ask("visitor 1").name, first.probability
    (True, 0.5)
    >>> shop.tell(first, 1.0)
    >>> sum(shop.status().rewarded)
    1
    """
    options: dict[str, Any] = {
        "seed": seed,
        "direction": direction,
        "reward_range": reward_range,
        "reward_window": reward_window,
        "reward_grace": reward_grace,
        "missing": missing,
        "sticky": sticky,
        "control": control,
        "min_share": min_share,
        "metrics": metrics,
        "attributes": attributes,
        "covariates": covariates,
        "stop": stop,
        "looks": looks,
        "spending": spending,
        "futility": futility,
        "values": values,
        "bulk": bulk,
        "traffic": traffic,
        "layer": layer,
        "after": after,
        "about": about,
    }
    check_name(name)
    settings = _settings(arms, policy, budget, **options)
    if NEVER_MATURE in settings.cautions():
        warnings.warn(NEVER_MATURE, stacklevel=2)
    return _create(name, settings, storage, load_if_exists, seed is None, start, clock, by)


def _settings(
    arms: ArmSet | Sequence[str], policy: Policy[Any], budget: int, **options: Any
) -> Settings:
    """Settings from what users give; options that are None have their usual value."""
    given = {key: value for key, value in options.items() if value is not None}
    if not given.get("min_share", True):  # 0 for all is none at all
        del given["min_share"]
    return Settings(
        arms=ArmSet.one_hot(arms) if isinstance(arms, (list, tuple)) else arms,  # type: ignore[arg-type]  # checked there
        policy=policy,
        budget=budget,
        **{"seed": secrets.randbits(53)} | given,
    )


def _create(
    name: str,
    settings: Settings,
    storage: str | Storage | None,
    load_if_exists: bool,
    any_seed: bool,
    start: bool,
    clock: Callable[[], float] | None,
    by: str,
) -> Experiment:
    stored = first_state(settings)
    check_servable(settings, load_state(settings, stored))
    with _open(storage, clock) as opened:
        try:
            record = opened.create(
                ExperimentRecord(
                    name=name,
                    tag=new_tag(),
                    state="running" if start else "draft",
                    config=settings.to_dict(),
                    created=opened.now(),
                    policy_state=stored,
                ),
                by=by,
            )
        except ExperimentExistsError:
            if not load_if_exists:
                raise
            experiment = Experiment(opened, opened.find(name), settings.policy)
            _check_same(experiment, settings, ignore_seed=any_seed)
            return experiment
        return Experiment(opened, record, settings.policy)


def load_experiment(
    name: str,
    storage: str | Storage | None = None,
    *,
    policy: Policy[Any] | None = None,
    clock: Callable[[], float] | None = None,
) -> Experiment:
    """The live test of that name; a policy of your own is given again.

    Parameters
    ----------
    name : the name of the experiment
    storage : a URL or an open storage; by default as for `create_experiment`
    policy : a policy of your own that the storage cannot name; else it is read from the storage
    clock : seconds since 1970, in place of the storage's own clock, for simulations

    Returns
    -------
    Experiment : in the state that the storage has

    Examples
    --------
    >>> import steadyarm as sa
    >>> storage = sa.storages.open_storage("memory")
    >>> shop = sa.create_experiment(
    ...     "shop", ["A", "B"], sa.Steady(), 1000, storage, seed=1, missing="drop"
    ... )
    >>> first = shop.ask("visitor 1")
    >>> sa.load_experiment("shop", storage).ask("visitor 1").name == first.name
    True
    """
    with _open(storage, clock) as opened:
        return Experiment(opened, opened.find(name), policy)


def create_from_description(
    name: str,
    description: Mapping[str, Any],
    storage: str | Storage | None = None,
    *,
    load_if_exists: bool = False,
    start: bool = True,
    by: str = "",
) -> Experiment:
    """A new live test from plain values, as TOML and JSON have them.

    See `settings_from_description` for the keys.
    """
    check_name(name)
    settings = settings_from_description(description)
    any_seed = description.get("seed") is None
    return _create(name, settings, storage, load_if_exists, any_seed, start, None, by)


def settings_from_description(description: Mapping[str, Any]) -> Settings:
    """The settings that plain values describe, as TOML and JSON have them.

    Keys are those of `create_experiment`; "variants" is another word for "arms". They are a list
    of names or a table with one of the keys one_hot, factorial, bundles or features. The policy is
    a name or a table with its name and settings. Errors name the key as their `field`.
    """
    values = dict(description)
    if "variants" in values and "arms" not in values:
        values["arms"] = values.pop("variants")
    if unknown := [key for key in values if key not in DESCRIBED]:
        raise InvalidInputError(
            f"{unknown[0]!r} is not a setting of an experiment; the settings are "
            f"{', '.join(DESCRIBED)}{did_you_mean(unknown[0], DESCRIBED)}"
        )
    for key, such in (("arms", '["A", "B"]'), ("budget", "10000")):
        if key not in values:
            raise InvalidInputError(f"{key} is required, such as {key} = {such}.", field=key)
    with _field("arms"):
        arms = values.pop("arms")
        if isinstance(arms, Mapping):
            arms = arms_from_settings(arms)
        elif isinstance(arms, (list, tuple)):
            arms = ArmSet.one_hot(arms)
    with _field("policy"):
        policy = _policy_in(values.pop("policy", "Steady"))
    return _settings(arms, policy, values.pop("budget"), **values)


@contextmanager
def _field(name: str) -> Iterator[None]:
    """Errors of what a setting is made of are errors of the setting."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(str(error), field=name) from None


def description_of(settings: Settings) -> dict[str, Any]:
    """The description from which `create_from_description` makes these settings.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> description_of(Settings(arms, sa.Steady(), 1000, seed=1, missing="drop"))
    {'arms': ['A', 'B'], 'policy': 'Steady', 'budget': 1000, 'seed': 1, 'missing': 'drop'}
    """
    left_out = {"arms", "policy", "control", "control_share", "metrics"}
    if not unnamed(settings.metrics):
        left_out |= OF_PRIMARY.keys()  # the primary metric says these
    description: dict[str, Any] = {
        "arms": arms_of(settings.arms),
        "policy": _describe_policy(settings.policy),
    }
    for field in fields(Settings):
        value = getattr(settings, field.name)
        if field.name not in left_out and value not in (None, (), {}, field.default):
            description[field.name] = list(value) if isinstance(value, tuple) else value
    if settings.control is not None:
        share = settings.control_share
        description["control"] = settings.control if share is None else {settings.control: share}
    if settings.metrics:
        description["metrics"] = [_without_none(metric.plain()) for metric in settings.metrics]
    if settings.attributes:
        declared = settings.attributes.items()
        description["attributes"] = {name: list(levels) for name, levels in declared}
    return description


def arms_of(arms: ArmSet) -> Any:
    """The arms of a description: names, factors, items, or all features."""
    if arms.recipe is not None:
        recipe = arms.recipe.to_dict()
        if "factorial" in recipe:
            recipe["factorial"] = dict(recipe["factorial"])
        return recipe
    if arms.feature_names == arms.names and np.array_equal(arms.features, np.eye(arms.size)):
        return list(arms.names)
    return {
        "features": arms.features.tolist(),
        "names": list(arms.names),
        "feature_names": list(arms.feature_names),
    }


def _describe_policy(policy: Policy[Any]) -> str | dict[str, Any]:
    """The name, and the settings that are not the default."""
    usual = {field.name: field.default for field in fields(policy)}
    settings = _without_none(policy.to_dict())
    settings = {key: value for key, value in settings.items() if usual.get(key, MISSING) != value}
    return settings if len(settings) > 1 else str(settings["name"])


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class StorageCheck:
    """The result of checking a whole storage.

    Attributes
    ----------
    experiments : how many were computed anew from their logs
    faults : a line for each fault; empty if all is in order
    skipped : experiments that were not computed anew, with the reason
    """

    experiments: int
    faults: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def check_storage(url: str | None = None) -> StorageCheck:
    """Search for damage and missing tables, and replay every experiment."""
    status = storages.storage_status(url)
    if status.state != "current":
        fault = f"tables: {status.state} ({status.revision}); see: steadyarm storage status"
        return StorageCheck(0, (fault,))
    faults, skipped, replayed = list(storages.storage_faults(url)), [], 0
    try:
        names = storages.experiment_names(url)
    except StorageError as error:  # what damage makes unreadable
        return StorageCheck(0, (*faults, str(error)))
    with closing(open_storage(url)) as storage:
        for name in names:
            try:
                record = storage.find(name)
                policy = record.config["policy"]["name"]
                if not is_policy_name(policy):
                    skipped.append(f"{name}: it uses {policy!r}, a policy of your own")
                    continue
                differences = Experiment(storage, record).replay().differences
                faults += [f"{name}: {difference}" for difference in differences]
                replayed += 1
            except UnknownExperimentError:  # pruned meanwhile
                continue
            except StorageError as error:
                faults.append(f"{name}: {error}")
            except Exception as error:  # whatever reading a row that makes no sense leads to
                faults.append(f"{name}: it cannot be replayed: {_in_words(error)}")
    return StorageCheck(replayed, tuple(faults), tuple(skipped))


def _in_words(error: Exception) -> str:
    """An unexpected error, in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def _open(storage: str | Storage | None, clock: Callable[[], float] | None) -> Iterator[Storage]:
    """Open a storage; if an error follows, close it again unless it was open before."""
    opened = open_storage(storage)
    try:
        if clock is not None:
            opened.now = lambda: microseconds(clock())
        yield opened
    except BaseException:
        if opened is not storage:
            opened.close()
        raise


def check_name(name: str) -> str:
    """Return the name if an experiment may have it."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInputError(
            f"the name is {shortened(name)}; expected up to 100 letters, digits, dots, hyphens and "
            "underscores, the first a letter or digit, such as checkout-button-2.",
            field="name",
            given=name,
            expected="up to 100 letters from a to z, digits, dots, hyphens and underscores, the "
            "first a letter or digit, such as checkout-button-2",
        )
    return name


def _policy_in(given: Any) -> Policy[Any]:
    settings = dict(given) if isinstance(given, Mapping) else {"name": given}
    if not isinstance(settings.get("name"), str):
        raise InvalidInputError(
            f'policy is {shortened(given)}; expected a name such as "steady", or a table with its '
            "name and settings."
        )
    return policy_from(settings)


def _check_same(experiment: Experiment, settings: Settings, ignore_seed: bool) -> None:
    stored, wanted = experiment.settings.to_dict(), settings.to_dict()
    for name in ("arms", "metrics"):  # neither coordinates, nor what follows from other settings
        stored[name], wanted[name] = getattr(experiment.settings, name), getattr(settings, name)
    if ignore_seed:
        wanted["seed"] = stored["seed"]
    keys = [key for key in stored | wanted if key not in ("products", "about")]
    if different := [key for key in keys if stored.get(key) != wanted.get(key)]:
        raise ExperimentExistsError(
            f"an experiment {experiment.name!r} exists with another {', '.join(different)}; load "
            "it with load_experiment, or choose another name."
        )
