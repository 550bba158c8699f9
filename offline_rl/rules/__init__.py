"""Rules from logs as policies: nothing is trained, the log's own tables and a few numbers decide."""

from offline_rl.rules.actor import numbers_of, rule_actor, rule_params
from offline_rl.rules.fitting import RuleNumbers, fit_rules

__all__ = ["RuleNumbers", "fit_rules", "numbers_of", "rule_actor", "rule_params"]
