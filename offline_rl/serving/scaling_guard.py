"""What stands between an autoscaler's policy and a cluster: bounds, rate limits, and the pod autoscaler's rules.

The policy decides where its metrics are fresh and like those of training. Where a deployment is asked for more than its
log has seen, or what users see is not known, the calibrated rules of Kubernetes' pod autoscaler decide instead; where
the use of processors is not known either, grants stay. While requests fail nothing is taken away, whoever decides, and
the load at the gateway is provided for (`offline_rl.rules.autoscaling.rescue`). No decision goes beyond the bounds, or
faster than the limits.
"""

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from logs_schema.errors import ConfigError, counted, first
from offline_rl.runner.scaling import (
    POD_RULE,
    TEACHER,
    Granted,
    Reading,
    ScalingPolicy,
    ScalingSetting,
    bounded,
    desired_replicas,
    failing,
    rescued,
    rule_cores,
)
from offline_rl.serving.scaling_doubts import SLACK, has_room, memory_seen, odd_use, unlike_training

POLICY, FALLBACK, HOLD = "policy", "fallback", "hold"


@dataclass(frozen=True)
class GuardConfig:
    """What an operator allows.

    Attributes:
        most_added: Replicas added to a deployment by one decision, at most.
        most_removed: Replicas removed from a deployment by one decision, at most.
        max_cores: Of all replicas together, at most.
        resources: Write cores and memory of replicas too (pods are restarted).
    """

    most_added: int = 4
    most_removed: int = 2
    max_cores: float | None = None
    resources: bool = False

    def __post_init__(self) -> None:
        if min(self.most_added, self.most_removed) < 1 or (
            self.max_cores is not None and self.max_cores <= 0
        ):
            raise ConfigError(
                "limits that allow nothing",
                where="--most-added, --most-removed, --max-cores",
                allowed="1 replica or more, more than 0 cores",
                advice="leave the autoscaler in recommendation mode",
            )


@dataclass(frozen=True)
class GuardedGrants:
    """What is to be granted, and how it came about.

    Attributes:
        wanted: After bounds and limits.
        by_policy: What the policy alone would grant; NaN where it cannot say.
        by_rules: What the rules of the pod autoscaler would.
        arms: Of every deployment: `POLICY`, `FALLBACK` or `HOLD`.
        reasons: Why, in words; empty for the policy within its bounds.
    """

    wanted: Granted
    by_policy: Granted
    by_rules: Granted
    arms: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass
class Guard:
    """Decides with a policy, within limits.

    Attributes:
        policy: It.
        config: The limits.
        desired: What the rules desired, with its time; the window of their stabilisation. It begins with what is
            granted, as that of Kubernetes does, so that a restart removes nothing.
        begun: [deployments] whether a deployment's window has begun.
    """

    policy: ScalingPolicy
    config: GuardConfig
    desired: deque[tuple[float, np.ndarray]] = field(default_factory=deque)
    begun: np.ndarray = field(default_factory=lambda: np.asarray(False))

    @property
    def unwritten(self) -> tuple[str, ...]:
        """Names of deployments whose replicas the policy would give other cores, which nobody writes."""
        setting = self.policy.setting
        by_rule = setting.limit("rule_cpu_cores") > 0.0
        by_policy = setting.limit("max_cpu_cores") > setting.limit("min_cpu_cores")
        resized = by_rule if setting.form == POD_RULE else by_policy
        kept = () if self.config.resources else zip(setting.names, resized, strict=True)
        return tuple(name for name, is_resized in kept if is_resized)

    @property
    def written(self) -> tuple[str, ...]:
        """Names of deployments that are written where all are: not those that keep what they have."""
        fixed = self.policy.setting.limit("min_replicas") == self.policy.setting.limit("max_replicas")
        kept = fixed & (not self.config.resources)
        return tuple(
            name
            for name, is_kept in zip(self.policy.setting.names, kept.tolist(), strict=True)
            if not is_kept
        )

    def decide(
        self,
        now_s: float,
        granted: Granted,
        now: Reading,
        before: Reading,
        stale: str = "",
        partial: str = "",
    ) -> GuardedGrants:
        """What to grant next.

        Args:
            now_s: The clock.
            granted: What is granted.
            now: The latest interval that is known.
            before: An earlier one, see `ScalingPolicy.decide`.
            stale: Why the metrics are too old; empty where they are not.
            partial: Why they may be a part of all, so that nothing is taken away; empty where they are not.
        """
        setting = self.policy.setting
        odd = odd_use(setting, granted, now)
        now = now._replace(cpu_cores_used=np.where([bool(one) for one in odd], np.nan, now.cpu_cores_used))
        with np.errstate(invalid="ignore"):
            rule = setting if self.config.resources else _keeping_sizes(setting)
            replicas = self._rules(now_s, rule, granted, now)
            by_rules = granted._replace(cpu_cores=rule_cores(rule, granted), replicas=replicas)
            is_rule = setting.form == POD_RULE
            seen = granted._replace(memory_gib=memory_seen(setting, granted))
            by_policy = by_rules if is_rule else self.policy.decide(seen, now, before)
        answers = np.isfinite(by_policy.replicas if is_rule else np.sum(by_policy, axis=0))
        reasons = self._doubts([stale or one for one in odd], answers, granted, now, before)
        known = np.isfinite(by_rules.replicas) & (not stale)
        arms = [
            POLICY if not reason else FALLBACK if rules else HOLD
            for reason, rules in zip(reasons, known.tolist(), strict=True)
        ]
        takes_policy, takes_rules = (np.array([arm == one for arm in arms]) for one in (POLICY, FALLBACK))
        wanted = Granted(
            *(
                np.where(takes_policy, policy, np.where(takes_rules, rules, now_granted))
                for policy, rules, now_granted in zip(by_policy, by_rules, granted, strict=True)
            )
        )
        held = np.array([arm == HOLD for arm in arms])
        share = 0.0 if stale else failing(setting, now)
        planned = self._limited(
            granted, _no_less(wanted, granted) if partial else wanted, held, removes=not partial
        )
        if share:
            wanted = self._limited(granted, self._rescued(granted, now, wanted), held, removes=False)
            raised = np.any(np.stack(wanted) > np.stack(planned), axis=0)
            why = f"{share:.0%} of the requests fail: nothing is taken away, and their load is provided for"
            reasons = [why if up else reason for up, reason in zip(raised.tolist(), reasons, strict=True)]
        else:
            reasons = self._cut(granted, wanted, planned, reasons, partial)
            wanted = planned
        if self.config.max_cores is not None:
            wanted, reasons = self._affordable(self.config.max_cores, granted, now, wanted, reasons)
        return GuardedGrants(wanted, by_policy, by_rules, tuple(arms), tuple(reasons))

    def _doubts(
        self, doubts: list[str], answers: np.ndarray, granted: Granted, now: Reading, before: Reading
    ) -> list[str]:
        """Why the policy does not decide for each deployment, `doubts` first; empty where it does."""
        setting = self.policy.setting
        found = [
            doubt or unlike_training(setting, place, granted, now, before)
            for place, doubt in enumerate(doubts)
        ]
        unlike = [name for name, reason in zip(setting.names, found, strict=True) if reason]
        if setting.form == TEACHER and unlike:  # it decides for all of them together
            found = [
                reason or f"{first(unlike)}: unlike training, and one network decides for all"
                for reason in found
            ]
        return [
            reason or ("" if answered else "the policy has no answer to these metrics")
            for reason, answered in zip(found, answers.tolist(), strict=True)
        ]

    def _rescued(self, granted: Granted, now: Reading, wanted: Granted) -> Granted:
        if not self.config.resources:  # whose size nobody writes
            wanted = wanted._replace(cpu_cores=granted.cpu_cores, memory_gib=granted.memory_gib)
        return rescued(self.policy.setting, granted, now, wanted)

    def _cut(
        self, granted: Granted, asked: Granted, planned: Granted, reasons: list[str], partial: str
    ) -> list[str]:
        """The reasons, with those of bounds and limits where they change the replicas that are asked for."""
        found = []
        for one, had, wants, gets, reason in zip(
            self.policy.setting.deployments,
            granted.replicas,
            asked.replicas,
            planned.replicas,
            reasons,
            strict=True,
        ):
            limit = f"{one.min_replicas} to {one.max_replicas} are allowed"
            if one.min_replicas <= wants <= one.max_replicas:
                limit = f"at most {self.config.most_added} are added at once"
                fewer = partial or f"at most {self.config.most_removed} are removed at once"
                limit = limit if gets > had else fewer
            if np.isfinite(wants) and wants != gets:
                limit = f"{counted(round(float(wants)), 'replica')} asked for, {limit}"
                reason = f"{reason}; {limit}" if reason else limit
            found.append(reason)
        return found

    def _affordable(
        self, most: float, granted: Granted, now: Reading, wanted: Granted, reasons: list[str]
    ) -> tuple[Granted, list[str]]:
        """Grants and reasons; of more than `most` cores those that work hardest get replicas as far as there is room,
        and where the cores cannot be summed nothing is raised."""
        asked, had = (one.replicas * one.cpu_cores for one in (wanted, granted))
        unknown = (granted.replicas > 0.0) & ~np.isfinite(asked)  # what is gone has no replicas, and no cores
        total, room = float(np.nansum(asked)), max(most, float(np.nansum(had)))
        if unknown.any():
            names = np.array(self.policy.setting.names)[unknown]
            why = f"the cores of {', '.join(names)} are not known, {most:g} are allowed of all"
        elif total > room:
            why = f"{total:.1f} cores are planned, {most:g} are allowed"
        else:
            return wanted, reasons
        raised = asked > had
        kept = Granted(*(np.where(raised, old, new) for old, new in zip(granted, wanted, strict=True)))
        if not unknown.any():
            kept = kept._replace(replicas=_filled(room, kept, wanted, now))
        cut = raised & (kept.replicas * kept.cpu_cores < asked)
        return kept, [why if is_cut else reason for is_cut, reason in zip(cut.tolist(), reasons, strict=True)]

    def _limited(
        self, granted: Granted, wanted: Granted, held: np.ndarray, *, removes: bool = True
    ) -> Granted:
        """Within bounds and rate limits, which hold for what stands outside the bounds as well.

        Memory that the log never changed, or never named, stays as it is granted.
        """
        within = bounded(self.policy.setting, wanted)
        memory = np.where(has_room(self.policy.setting), within.memory_gib, granted.memory_gib)
        within = within._replace(memory_gib=memory)
        if not self.config.resources:
            within = within._replace(cpu_cores=granted.cpu_cores, memory_gib=granted.memory_gib)
        low = granted.replicas - (self.config.most_removed if removes else 0)
        high = granted.replicas + self.config.most_added
        within = within._replace(replicas=np.clip(within.replicas, low, high))
        return Granted(*(np.where(held, old, new) for old, new in zip(granted, within, strict=True)))

    def _rules(self, now_s: float, setting: ScalingSetting, granted: Granted, now: Reading) -> np.ndarray:
        """Replicas [deployments] that the pod autoscaler asks for; NaN where the use of processors is not known."""
        desired = desired_replicas(setting, granted, now)
        num_known = len(self.desired)
        self.desired = deque(one for one in self.desired if one[0] <= now_s)
        if num_known and not self.desired:  # the clock was set back, past all of the window
            self.begun = np.asarray(False)
        if (begins := (granted.replicas > 0.0) & ~self.begun).any():
            self.desired.append((now_s, np.where(begins, granted.replicas, np.nan)))
            self.begun = self.begun | begins
        self.desired.append((now_s, desired))
        while self.desired[0][0] < now_s - setting.down_window_s:
            self.desired.popleft()
        most = np.max([np.where(np.isfinite(one), one, -np.inf) for _, one in self.desired], axis=0)
        rules = np.where(desired < granted.replicas, np.minimum(most, granted.replicas), desired)
        return np.where(granted.replicas > 0.0, rules, np.nan)  # whoever switched it off will switch it on


def _filled(room: float, kept: Granted, wanted: Granted, now: Reading) -> np.ndarray:
    """[deployments] replicas, with those that are wanted beyond `kept` and of its size as far as all take no more than
    `room` cores: one by one, to whose replicas work hardest."""
    replicas, work = kept.replicas.copy(), np.nan_to_num(now.cpu_cores_used * now.ready)
    room -= float(np.nansum(replicas * kept.cpu_cores))
    more = (wanted.cpu_cores == kept.cpu_cores) & (wanted.replicas > replicas)
    while (more := more & (replicas < wanted.replicas) & (kept.cpu_cores <= room + SLACK)).any():
        place = int(np.argmax(np.where(more, work / np.maximum(replicas * kept.cpu_cores, SLACK), -1.0)))
        replicas[place] += 1.0
        room -= float(kept.cpu_cores[place])
    return replicas


def _no_less(wanted: Granted, granted: Granted) -> Granted:
    """What is wanted, and never less than what is granted; NaN stays."""
    return Granted(*(np.maximum(one, had) for one, had in zip(wanted, granted, strict=True)))


def _keeping_sizes(setting: ScalingSetting) -> ScalingSetting:
    """The setting where the rule leaves replicas as large as they are, since nobody writes another size."""
    return replace(
        setting, deployments=tuple(replace(one, rule_cpu_cores=0.0) for one in setting.deployments)
    )
