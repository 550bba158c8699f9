"""The learning algorithms; what is re-exported here is what can be chosen."""

from offline_rl.algorithms.behaviour_cloning import BehaviourCloningConfig, behaviour_cloning
from offline_rl.algorithms.ppo import PPOConfig, ppo

__all__ = ["BehaviourCloningConfig", "PPOConfig", "behaviour_cloning", "ppo"]
