"""The learning algorithms; what is re-exported here is what can be chosen."""

from offline_rl.algorithms.advantage_weighted import AdvantageWeightedConfig, advantage_weighted
from offline_rl.algorithms.behaviour_cloning import BehaviourCloningConfig, behaviour_cloning
from offline_rl.algorithms.cmmac import CMMACConfig, cmmac
from offline_rl.algorithms.conservative_q import ConservativeQConfig, conservative_q
from offline_rl.algorithms.ddpg import DDPGConfig, ddpg
from offline_rl.algorithms.direct_method import DirectMethodConfig, direct_method
from offline_rl.algorithms.gpg import GPGConfig, gpg
from offline_rl.algorithms.gpo import GPOConfig, gpo
from offline_rl.algorithms.implicit_q import ImplicitQConfig, implicit_q
from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.algorithms.regularised_imitation import RegularisedImitationConfig, regularised_imitation
from offline_rl.algorithms.td3 import TD3Config, td3
from offline_rl.algorithms.td3_bc import TD3BCConfig, td3_bc
from offline_rl.algorithms.td3_bc_choices import ChoicesTD3BCConfig, td3_bc_choices

__all__ = [
    "AdvantageWeightedConfig",
    "BehaviourCloningConfig",
    "CMMACConfig",
    "ChoicesTD3BCConfig",
    "ConservativeQConfig",
    "DDPGConfig",
    "DirectMethodConfig",
    "GPGConfig",
    "GPOConfig",
    "ImplicitQConfig",
    "PPOConfig",
    "RegularisedImitationConfig",
    "TD3BCConfig",
    "TD3Config",
    "advantage_weighted",
    "behaviour_cloning",
    "cmmac",
    "conservative_q",
    "ddpg",
    "direct_method",
    "gpg",
    "gpo",
    "implicit_q",
    "ppo",
    "regularised_imitation",
    "td3",
    "td3_bc",
    "td3_bc_choices",
]
