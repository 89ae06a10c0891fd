"""Settings of a live experiment. They are validated once and never change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args, overload

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.arms.recipes import BETWEEN, BundleNames, FactorialNames, names_in
from steadyarm.covariates import validate_covariates
from steadyarm.errors import InvalidInputError
from steadyarm.live.metrics import (
    LARGEST,
    REWARD,
    SECOND,
    Metric,
    check_name,
    range_of,
    seconds_of,
    unnamed,
    usual_grace,
    validate_metrics,
)
from steadyarm.live.units import (
    Declared,
    check_names,
    encode_covariates,
    encode_levels,
    validate_attributes,
    without_known,
)
from steadyarm.policies import Policy, is_policy_name, policy_from
from steadyarm.segments import Direction, Segment
from steadyarm.validation import (
    check_choice,
    check_fraction,
    check_positive,
    finite_number,
    whole_number,
)
from steadyarm.wording import number, strung

Missing = Literal["zero", "drop", "fail"]
Sticky = Literal["unit", "none"]
Stop = Literal["recommend", "when sure"]
Spending = Literal["obrien-fleming", "pocock"]
After = Literal["show", "refuse"]
Looking = int | Literal["daily", "weekly"]

USUAL_LOOKS, MOST_LOOKS = 8, 60  # at a test that may stop early
STOPPING = ("stop", "looks", "spending", "futility")
ABOUT = ("description", "hypothesis", "owner", "tags")
LONGEST_ABOUT, MOST_TAGS = (2000, 50), 20  # characters of a text and of a tag
UNSUITABLE = re.compile(r"[\0\ud800-\udfff]")  # what databases or UTF-8 cannot hold
FEW = 10  # rounds of a variant, on average, below which a budget is small
OF_PRIMARY = {  # settings of the reward, and what the primary metric calls them
    "direction": "direction",
    "reward_range": "range",
    "reward_window": "window",
    "reward_grace": "grace",
    "missing": "missing",
}
LARGEST_VALUE = 16 * 1024  # bytes of a value as JSON
EXACT = 2**53  # up to here every program reads whole numbers exactly
NEVER_MATURE = (
    "without a reward_window, visits without a reward are judged only after the test is stopped; "
    "give reward_window, or report zeros, too."
)


@dataclass
class Settings:
    """The settings of an experiment.

    Parameters
    ----------
    arms : the variants
    policy : how they are chosen
    budget : how many assignments will be made in all
    seed : makes the whole test reproducible
    direction : "maximize" or "minimize" the reward
    reward_range : (least, largest) reward that can occur; others are refused
    reward_window : how long after its assignment a reward may happen to count; None for ever.
        Seconds, a timedelta, or text such as "90m", "12h", "7d"; kept in seconds
    reward_grace : how long after its window a reward that happened in time may still arrive, such
        as from a buffer after an outage; the policy observes segments, and visits are judged,
        only after it. By default the window again, at most seven days; 0 for none
    missing : what a reward that never came counts as: "zero", such as a click that did not happen;
        "drop", as the mean of the same variant's rewards around it, right if rewards get lost
        whatever they are; "fail", no verdict without it. May be left out only where large rewards
        are good and a reward_range that contains 0 is given: then it is "zero".
    sticky : "unit" if a unit keeps its first variant, "none" if every request is drawn anew
    control : name of the variant that others are compared with, such as what is there today; or
        {name: share}, which gives it exactly this share throughout. Kept as name and share
    min_share : {name: share} that variants get in addition to what the policy gives them of the
        rest; a number for all variants but a control with a share, unless they are very many
    control_share : the share of the control, if it was not given with its name; None if the policy
        decides how often it is played
    metrics : what else is measured, see `Metric`. If one of them is primary it is the reward, and
        says what direction, reward_range, reward_window, reward_grace and missing would say
    attributes : {name: levels} of what is known of units when they are assigned, such as
        {"device": ["mobile", "desktop"]}; results can be shown by level. A unit of another level
        counts as "other"
    covariates : names of numbers that are known of units before they are assigned, at most five,
        such as ["visits_last_month", "spend"]; they take noise away (docs/run/covariates.md)
    stop : "when sure" lets the test stop itself at the first look that decides it; "recommend" only
        says so; None for a test that is played to its end
    looks : interim analyses: a number, evenly spaced over the budget; "daily", after
        midnight UTC; or "weekly", after whole weeks, so that a weekly rhythm cannot mislead. 8 by
        default
    spending : how the error probability is spent: "obrien-fleming", hardly any early; or "pocock",
        nearly evenly
    futility : smallest difference that matters, in units of the reward; the test then also stops
        when no variant can be shown to differ by it any more
    values : the value of each variant, any JSON value: {name: value}, or a list in the order of
        the variants. Assignments return it beside the name. By default {factor: level} where
        variants combine factors, the list of items for bundles, else the name
    bulk : True lets a bulk evaluation of flags (docs/integrate/openfeature.md) assign variants, so
        that a page that fetches all flags at once takes part, whether it shows this one or not;
        by default only units that have a variant get it there
    traffic : share of all units that take part in the test, above 0 and at most 1; others see the
        control, outside of the test
    layer : tests of one layer have no unit in common. Each gets a part of the layer as large as its
        traffic, which is free again when the test is archived
    after : what units without a variant get once the test is over: "show" them the recommended
        variant if it is clear, else the control, without a control the leader; or "refuse" with an
        error. See docs/run/after_the_test.md
    about : what people read of the test: a description, hypothesis and owner, each a text, and a
        list of tags; {"owner": "Ada", "tags": ["checkout"]}

    Examples
    --------
    >>> import steadyarm as sa
    >>> test = sa.create_experiment(
    ...     "shop", ["old", "new"], sa.Steady(), 1000, "memory", control="old", reward_range=(0, 1),
    ...     reward_window="7d",
    ... )
    >>> test.settings.control, test.settings.missing, test.settings.reward_window
    ('old', 'zero', 604800.0)
    """

    arms: ArmSet
    policy: Policy[Any]
    budget: int
    seed: int
    direction: Direction = "maximize"
    reward_range: tuple[float, float] | None = None
    reward_window: float | None = None
    missing: Missing = None  # type: ignore[assignment]  # chosen in __post_init__ or refused
    sticky: Sticky = "unit"
    control: str | None = None
    min_share: Mapping[str, float] = field(default_factory=dict)
    reward_grace: float | None = None
    control_share: float | None = None
    metrics: tuple[Metric, ...] = ()
    attributes: Declared = field(default_factory=dict)
    covariates: tuple[str, ...] = ()
    stop: Stop | None = None
    looks: Looking | None = None
    spending: Spending | None = None
    futility: float | None = None
    values: Mapping[str, Any] | None = None
    bulk: bool = False
    traffic: float = 1.0
    layer: str | None = None
    after: After = "show"
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Policy):
            expected = "an instance of a policy, such as Steady()"
            raise InvalidInputError.of("policy", self.policy, expected)
        if not isinstance(self.arms, ArmSet):
            expected = 'an ArmSet, such as ArmSet.one_hot(["A", "B"])'
            raise InvalidInputError.of("arms", self.arms, expected)
        self.arms.refuse_targets("a live test")
        self.values = validate_variant_values(self.values, self.arms.names, self.arms.large)
        self.metrics = validate_metrics(self.metrics or ())
        self.attributes = validate_attributes(self.attributes or {})
        self.covariates = validate_covariates(self.covariates or ())
        check_names(self.covariates, [*(m.name for m in self.metrics), *self.attributes])
        self._take_primary()
        check_choice(self.direction, "direction", get_args(Direction))
        check_choice(self.sticky, "sticky", get_args(Sticky))
        check_choice(self.after, "after", get_args(After))
        self.about = _validate_about(self.about)
        check_choice(self.bulk, "bulk", (True, False))
        whole_number(self.budget, "budget", least=1, most=2**53 - 1)
        whole_number(self.seed, "seed", most=2**63 - 1)
        self.reward_range = range_of(self.reward_range)
        self._check_times()
        self._check_shares()
        self._check_stopping()
        if self.bulk and self.sticky == "none":
            raise InvalidInputError(
                'bulk=True needs sticky="unit": otherwise every bulk evaluation would assign a '
                "new variant.",
                field="bulk",
            )
        self._check_traffic()
        self._check_missing()  # last: other mistakes have a simpler explanation

    def _take_primary(self) -> None:
        """Take over what a primary metric among the metrics says of the reward."""
        if unnamed(self.metrics):
            return
        usual = {field.name: field.default for field in fields(self)}
        for name, own in OF_PRIMARY.items():
            value, declared = getattr(self, name), getattr(self.primary, own)
            if value not in (usual[name], declared):
                raise InvalidInputError(
                    f"{name} is {value!r}, but the primary metric {self.primary.name!r} has its "
                    f"own {own}; set it only in the metric.",
                    field=name,
                )
            setattr(self, name, declared)

    def _check_times(self) -> None:
        """Turn window and grace into seconds."""
        if self.reward_window is not None:
            self.reward_window = seconds_of(self.reward_window)
            if self.reward_grace is None:
                self.reward_grace = usual_grace(self.reward_window)
        elif self.reward_grace is not None:
            raise InvalidInputError(
                f"reward_grace is {self.reward_grace!r}, but it needs a reward_window; give "
                "reward_window, or leave reward_grace out.",
                field="reward_grace",
            )
        if self.reward_grace is not None:
            self.reward_grace = seconds_of(self.reward_grace, "reward_grace", least=0)

    def _check_shares(self) -> None:
        """Check the control, and the shares of some variants."""
        self.control, self.control_share = _control(self.control, self.control_share, self.arms)
        fixed = {} if self.control_share is None else {self.control: self.control_share}
        floors = self.min_share
        if isinstance(floors, (int, float)) and self.arms.large and floors:
            raise InvalidInputError(
                f"min_share is {floors:g} for each of {self.arms.size:,} variants, of which few "
                "are played at a time; name those that are to have it, such as "
                f"{{{self.arms.names[0]!r}: {floors:g}}}.",
                field="min_share",
            )
        if isinstance(floors, (int, float)):
            names = () if self.arms.large else self.arms.names
            floors = {name: floors for name in names if name not in fixed}
        self.min_share = _shares(floors, "min_share", self.arms)
        if self.control in fixed and self.control in self.min_share:
            raise InvalidInputError(
                f"{self.control!r} is the control and has a fixed share; leave it out of "
                "min_share.",
                field="min_share",
            )
        total, field = sum((*fixed.values(), *self.min_share.values())), "min_share"
        if total >= 1:
            raise InvalidInputError(
                f"control and min_share reserve {100 * total:.3g} % of all assignments; they must "
                "leave some for the policy.",
                field=field if self.min_share else "control",
            )
        if total and self.policy.waits:
            raise InvalidInputError(
                f"{self.policy.name} assigns each variant a fixed number of times, so "
                "control_share and min_share do not apply. Leave both out, or use a policy such "
                "as Steady.",
                field="policy",
            )
        guarded = [metric.name for metric in self.metrics if metric.role == "guardrail"]
        if guarded and not self.control:
            raise InvalidInputError(
                f"the guardrail {guarded[0]!r} needs a control to compare with; set control.",
                field="control",
            )

    def _check_traffic(self) -> None:
        """Check which share of all units takes part."""
        self.traffic = finite_number(self.traffic, "traffic")
        if not 0 < self.traffic <= 1:
            raise InvalidInputError.of("traffic", self.traffic, "a share above 0 and at most 1")
        if self.layer is not None:
            check_name(self.layer, "the layer", "layer")
        if self.traffic == 1 and self.layer is None:
            return
        field = "traffic" if self.layer is None else "layer"
        if self.control is None:
            raise InvalidInputError(
                f"{field} leaves units out of the test; they see the control, so set control.",
                field="control",
            )
        if self.sticky == "none":
            raise InvalidInputError(
                f'{field} needs units that keep their variants; use sticky="unit".', field="sticky"
            )

    @cached_property
    def keyed(self) -> bool:
        """Whether a reward may be made of several events, so that it is final after its window."""
        return any(metric.role == "primary" and metric.keyed for metric in self.metrics)

    @cached_property
    def primary(self) -> Metric:
        """The metric that steers, whether it has an entry among the metrics or not."""
        named = (metric for metric in self.metrics if metric.role == "primary")
        return next(named, None) or Metric(
            REWARD,
            role="primary",
            **{own: getattr(self, name) for name, own in OF_PRIMARY.items()},
        )

    def values_of_event(self, name: str, event: str, value: float) -> dict[str, float]:
        """The value of an event in each metric that it feeds.

        name : the name of the experiment; a reward without a name takes events of that name, too
        """
        values = {
            metric.name: metric.value_of(value)
            for metric in self.measured.values()
            if (metric.event or metric.name) == event
        }
        return values if values or event != name else {REWARD: value}

    @cached_property
    def variant_values(self) -> Sequence[Any]:
        """The value of each variant, given or derived, in their order."""
        recipe = self.arms.recipe
        values = values_of(self.arms.names if recipe is None else recipe.names, self.values)
        return values if self.arms.large else tuple(values[:])

    def format_value(self, value: float) -> str:
        """A mean reward as people read it: with its unit, if the primary metric has a name.

        Parameters
        ----------
        value : the mean
        """
        return number(value) if unnamed(self.metrics) else self.primary.format_value(value)

    @cached_property
    def by_event(self) -> bool:
        """Whether rewards are made of events, or count up to a cap only, as other metrics may."""
        named = (metric for metric in self.metrics if metric.role == "primary")
        return self.keyed or any(metric.cap is not None for metric in named)

    @cached_property
    def further(self) -> tuple[Metric, ...]:
        """All metrics but the primary one: secondary metrics and guardrails."""
        return tuple(metric for metric in self.metrics if metric.role != "primary")

    @cached_property
    def measured(self) -> Mapping[str, Metric]:
        """All metrics whose values are reported, by their names."""
        others = {metric.name: metric for metric in self.metrics if metric.ratio is None}
        return {self.primary.name: self.primary} | others

    def _check_stopping(self) -> None:
        """Check when the test may stop early, and take the defaults if it may."""
        if self.stop is None:
            for name in STOPPING[1:]:
                if (value := getattr(self, name)) is not None:
                    raise InvalidInputError(
                        f"{name} is {value!r}, but the test does not stop early; give "
                        f'stop="when sure" or stop="recommend", or leave {name} out.',
                        field=name,
                    )
            return
        check_choice(self.stop, "stop", get_args(Stop))
        if not self.policy.unbiased:
            raise InvalidInputError(
                f"stop is {self.stop!r}, but {self.policy.name} leaves variants out, so intervals "
                "do not hold at several looks; leave stop out, or use a policy such as Steady.",
                field="stop",
            )
        self.looks = USUAL_LOOKS if self.looks is None else self.looks
        if self.looks not in ("daily", "weekly"):
            try:
                self.looks = whole_number(self.looks, "looks", least=1, most=MOST_LOOKS)
            except InvalidInputError:
                expected = f'"daily", "weekly" or a number of looks from 1 to {MOST_LOOKS}'
                raise InvalidInputError.of("looks", self.looks, expected) from None
        self.spending = self.spending or "obrien-fleming"
        check_choice(self.spending, "spending", get_args(Spending))
        if self.futility is not None:
            self.futility = check_positive(self.futility, "futility")

    def _check_missing(self) -> None:
        low, high = self.reward_range or (0.0, 0.0)
        if self.missing is not None:
            check_choice(self.missing, "missing", get_args(Missing))
        elif self.direction == "maximize" and self.reward_range and low <= 0 <= high:
            self.missing = "zero"
        else:
            raise InvalidInputError(
                "`missing` is required unless `reward_range` includes 0 and large rewards are "
                'good. Choose "zero" if no reward means 0, "drop" if rewards get lost, or "fail" '
                "if every reward must come.",
                field="missing",
            )
        if self.missing == "zero" and not low <= 0 <= high:
            raise InvalidInputError(
                f"a missing reward counts as zero, which is outside of the reward_range ({low:g} "
                f'to {high:g}); use missing="drop" or "fail".',
                field="missing",
            )

    def mix_shares(self, segment: Segment) -> Segment:
        """A policy's segment (a batch of one) with the shares of control and min_share in it."""
        if self.control_share is None and not self.min_share:
            return segment
        shares = {self.arms.index(name): share for name, share in self.min_share.items()}
        control = None if self.control is None else self.arms.index(self.control)
        if control is not None and self.control_share is not None:
            shares[control] = self.control_share
        segment = segment.in_blocks()
        if segment.arms is not None:
            both = np.union1d(segment.arms, np.array(sorted(shares), dtype=np.int64))
            weights = np.zeros((1, both.size))
            weights[:, np.searchsorted(both, segment.arms)] = segment.weights
            segment = replace(segment, weights=weights, arms=both)
        floors, free = np.zeros(segment.columns), np.ones(segment.columns, dtype=bool)
        for arm, share in shares.items():
            floors[segment.column_of(arm)] = share
        if control is not None and self.control_share is not None:
            free[segment.column_of(control)] = False
        if not free.any():
            raise InvalidInputError(
                f"{self.policy.name} wants to play the control alone, which has its fixed share; "
                "leave its share out, or give other variants a min_share."
            )
        own = np.where(free, segment.weights[0], 0.0)
        if own.sum() <= 0:  # the policy wants nothing but the control
            own = free.astype(np.float64)
        mixed = floors + (1.0 - floors.sum()) * own / own.sum()
        return replace(segment, weights=mixed[None])

    def check_reward(self, reward: Any) -> float:
        """The reward as a number, if it can occur."""
        value = finite_number(reward, "the reward")
        low, high = self.reward_range or (-LARGEST, LARGEST)
        if not low <= value <= high:
            where, other = "what can be added up", "report rewards in a larger unit"
            if self.reward_range:
                where, other = "the reward_range", "create an experiment with a wider range"
            raise InvalidInputError(
                f"the reward is {value:g}, outside of {where} ({low:g} to {high:g}); it was not "
                f"stored. Correct it, or {other}."
            )
        return value

    @cached_property
    def window(self) -> int | None:
        """The reward window in microseconds."""
        return None if self.reward_window is None else round(self.reward_window * SECOND)

    @cached_property
    def grace(self) -> int:
        """How long after its window a reward may still arrive, in microseconds."""
        return round((self.reward_grace or 0) * SECOND)

    @cached_property
    def patience(self) -> int | None:
        """How long after its assignment a reward may arrive, in microseconds; None for ever."""
        return None if self.window is None else self.window + self.grace

    def cautions(self) -> list[str]:
        """Warnings about what these settings may lead to, in sentences.

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> Settings(arms, sa.Steady(), 1000, 1, reward_window="2d", missing="zero").cautions()
        []
        """
        warnings = []
        if self.missing == "zero" and self.reward_window is None:
            warnings.append(NEVER_MATURE)
        if self.missing == "zero" and self.direction == "minimize":
            warnings.append(
                'a missing reward counts as zero, the best value with direction="minimize": a '
                'variant that loses its measurements would win. missing="drop" is safer.'
            )
        arms = self.arms
        if self.budget < FEW * (arms.rank if arms.large else arms.size):
            warnings.append(
                "the budget is small for so many variants; steadyarm plan computes how many "
                "visits you need."
            )
        return warnings

    def to_dict(self, arms: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Numbers, texts and lists only.

        arms : a description of the variants in place of all of their features
        """
        levels, products = encode_levels(self.attributes)
        covariates, their_products = encode_covariates(self.covariates, self.missing)
        ratios = [list(metric.ratio) for metric in self.metrics if metric.ratio]
        return {field.name: getattr(self, field.name) for field in fields(self)} | {
            "arms": self.arms.to_dict() if arms is None else dict(arms),
            "policy": self.policy.to_dict(),
            "reward_range": None if self.reward_range is None else list(self.reward_range),
            "min_share": dict(self.min_share),
            "metrics": [metric.to_dict() for metric in self.metrics] + levels + covariates,
            "products": ratios + products + their_products,
            "attributes": {name: list(self.attributes[name]) for name in self.attributes},
            "covariates": list(self.covariates),
            "values": None if self.values is None else dict(self.values),
            "about": dict(self.about),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], policy: Policy[Any] | None = None) -> Self:
        """The settings that `to_dict` wrote; a policy of your own is given again.

        Parameters
        ----------
        data : the result of `to_dict`
        policy : of your own, which the data only name

        Returns
        -------
        Settings
        """
        values = dict(data)
        values.pop("products", None)  # for storages
        values["metrics"] = tuple(map(Metric.from_dict, without_known(values.get("metrics", ()))))
        if not unnamed(values["metrics"]):
            values = {name: value for name, value in values.items() if name not in OF_PRIMARY}
        policy = load_policy(
            values["policy"],
            policy,
            "load_experiment(name, storage, policy=…). The service, the command line and the "
            "dashboard know policies that come with SteadyArm, or with an installed package",
        )
        values |= {"arms": ArmSet.from_dict(values["arms"]), "policy": policy}
        return cls(**values)


def load_policy(stored: Mapping[str, Any], given: Policy[Any] | None, how: str) -> Policy[Any]:
    """The policy that `Policy.to_dict` wrote; one of your own must be given again.

    how : to give it, for the error if it is missing
    """
    if given is None:
        if not is_policy_name(name := stored.get("name")):
            raise InvalidInputError(
                f"the test was run with {name!r}, a policy of your own; give it again: {how}, "
                "or install it as a package (docs/research/own_policy.md)."
            )
        return policy_from(stored)
    if json.loads(json.dumps(given.to_dict())) != json.loads(json.dumps(stored)):
        raise InvalidInputError(
            f"the test was run with {stored}, but the policy given is {given.to_dict()}; give the "
            "policy of the test."
        )
    return given


def variants_in(config: Mapping[str, Any]) -> int:
    """The number of variants in what `Settings.to_dict` wrote, without making them."""
    return len(names_in(config["arms"]))


def events_in(name: str, config: Mapping[str, Any]) -> list[str]:
    """The events that an experiment measures, without making its settings.

    An experiment whose reward has no name of its own takes "reward" and its own name.

    config : the result of `Settings.to_dict`

    Examples
    --------
    >>> orders = {"name": "orders", "event": "purchase", "role": "secondary", "ratio": None}
    >>> events_in("shop", {"metrics": [orders]})
    ['purchase', 'reward', 'shop']
    """
    metrics = without_known(config.get("metrics", ()))
    events = [metric["event"] or metric["name"] for metric in metrics if metric["ratio"] is None]
    if all(metric["role"] != "primary" for metric in metrics):
        events += [REWARD, name]
    return list(dict.fromkeys(events))


def _validate_about(given: Any) -> dict[str, Any]:
    """The description of the test for people, without empty fields."""
    if not isinstance(given, Mapping) or given.keys() - ABOUT:
        expected = f"a mapping with some of {', '.join(ABOUT)}"
        raise InvalidInputError.of("about", given, expected)
    about = {key: given[key] for key in ABOUT if given.get(key)}
    for key, value in about.items():
        texts = value if key == "tags" else [value]
        listed = isinstance(texts, (list, tuple)) and len(texts) <= MOST_TAGS
        if not listed or not all(_is_text(text, LONGEST_ABOUT[key == "tags"]) for text in texts):
            expected = f"a text of up to {LONGEST_ABOUT[0]:,} characters"
            if key == "tags":
                expected = f"up to {MOST_TAGS} texts of up to {LONGEST_ABOUT[1]} characters"
            raise InvalidInputError.of(f"about.{key}", value, expected)
    return about | ({"tags": list(about["tags"])} if "tags" in about else {})


def _is_text(value: Any, longest: int) -> bool:
    """Whether a value is a text that storages can keep and pages can show."""
    return isinstance(value, str) and len(value) <= longest and not UNSUITABLE.search(value)


def _control(given: Any, share: Any, arms: ArmSet) -> tuple[str | None, float | None]:
    """The control and its share, from its name or from {name: share}."""
    if isinstance(given, Mapping):
        if len(given) > 1:
            raise InvalidInputError(
                f"control names {len(given)} variants ({strung(list(map(str, given)), 8)}); "
                "only one can be the control. Give others a min_share.",
                field="control",
            )
        shares = _shares(given, "control", arms)
        return next(iter(shares.items()), (None, None))
    if given is None:
        if share is not None:
            raise InvalidInputError(
                f"control_share is {share!r}, but control is not set.",
                field="control",
            )
        return None, None
    if not isinstance(given, str):
        first = arms.names[0]
        expected = f"the name of a variant, such as {first!r}, or its share, {{{first!r}: 0.1}}"
        raise InvalidInputError.of("control", given, expected)
    if share is None:
        _check_variant(given, "control", arms)
        return given, None
    return given, _shares({given: share}, "control", arms)[given]


def _check_variant(name: Any, what: str, arms: ArmSet) -> None:
    if name not in arms.names:
        raise InvalidInputError(
            f"{what} {name!r} is not one of the variants: {strung(arms.names, 8)}.",
            field=what,
        )


def _shares(given: Any, what: str, arms: ArmSet) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        expected = f"shares by the variants' names, such as {{{arms.names[0]!r}: 0.1}}"
        raise InvalidInputError.of(what, given, expected)
    for name in given:
        _check_variant(name, what, arms)
        try:
            check_fraction(given[name], f"{what} of {name!r}")
        except InvalidInputError as error:
            error.field = what
            raise
    return {name: float(share) for name, share in given.items()}


# What variants stand for: any JSON value for each, given or derived from how they are made


def values_of(names: Sequence[str], given: Mapping[str, Any] | None = None) -> Sequence[Any]:
    """The value of each variant, in the order of their names.

    names : those of the recipe, if the set of variants has one

    Values are shared between callers. Do not change them.

    Examples
    --------
    >>> values_of(FactorialNames({"size": ("S", "L"), "hat": ("no", "yes")}))[1]
    {'size': 'S', 'hat': 'yes'}
    >>> values_of(BundleNames(("a", "b", "c"), 2))[2], values_of(["A", "B"])[0]
    (['b', 'c'], 'A')
    >>> values_of(["A", "B"], {"A": {"price": 9}, "B": {"price": 12}})[1]
    {'price': 12}
    """
    if given is not None:
        return tuple(given[name] for name in names)
    if isinstance(names, (FactorialNames, BundleNames)):
        return _LazyValues(names)
    return names


class _LazyValues(Sequence[Any]):
    """Values of combinations or bundles, each computed when it is read."""

    def __init__(self, names: FactorialNames | BundleNames) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if isinstance(self._names, BundleNames):
            return self._names[index].split(BETWEEN)
        return self._names.levels_of(index)


def validate_variant_values(
    given: Any, names: Sequence[str], large: bool = False
) -> dict[str, Any] | None:
    """Values by the names of the variants, if each variant has one and JSON can say it.

    given : a mapping by name, or a list in the order of the variants; None if none are given
    large : whether the set is too large to write down a value for each
    """
    if given is None:
        return None
    if large:
        raise InvalidInputError(
            f"values cannot be given for {len(names):,} variants; leave them out, and use what "
            "assignments return: factors with their levels, or the items of a bundle.",
            field="values",
        )
    if isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise InvalidInputError(
                f"there are {len(given)} values for {len(names)} variants; give one for each, in "
                "their order, or an object by their names.",
                field="values",
            )
        given = dict(zip(names, given, strict=True))
    if not isinstance(given, Mapping):
        expected = f"an object by the variants' names, such as {{{names[0]!r}: …}}, or a list"
        raise InvalidInputError.of("values", given, expected)
    known = set(names)
    if unknown := [name for name in given if name not in known]:
        raise InvalidInputError(
            f"values name {unknown[0]!r}, which is not one of the variants: {strung(names, 8)}.",
            field="values",
        )
    if missing := [name for name in names if name not in given]:
        raise InvalidInputError(
            f"values are missing for {strung(missing, 8)}; give one for every variant, or for "
            "none.",
            field="values",
        )
    return {name: _validate_value(given[name], name) for name in names}


def _validate_value(given: Any, name: str) -> Any:
    """Return a value in JSON's own types, if JSON can say it and every program reads it alike."""
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
        value = json.loads(text, parse_int=_exact_int)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"the value of {name!r} is not valid JSON: {error}. Expected texts, numbers, true, "
            "false, null, lists and objects.",
            field="values",
        ) from None
    if size > LARGEST_VALUE:
        raise InvalidInputError(
            f"the value of {name!r} has {size:,} bytes as JSON; expected at most "
            f"{LARGEST_VALUE:,}. Store large content elsewhere and give its address.",
            field="values",
        )
    return value


def _exact_int(digits: str) -> int:
    if abs(number := int(digits)) > EXACT:
        raise ValueError(f"{digits} is above 2**53, which not every program reads exactly")
    return number
