"""What the policies and judges of a comparison of placements are, in words."""

from evaluation.baselines import COMPARED, TRUTH_BASELINES
from evaluation.comparison.entries import JudgeFacts, PolicyFacts
from offline_rl.rules.in_twin import DESCRIPTIONS

TWIN_POLICY, USERS, LADDER = "twin", "user", "ladder"
REPLAY, SHIFTED_TWIN, TRAINING_TWIN = "replay", "twin of shifted days", "training twin"
POLICIES = (
    *(PolicyFacts(one.name, "baseline", one.description) for one in (*COMPARED, *TRUTH_BASELINES)),
    *(PolicyFacts(name, "rule", words) for name, words in DESCRIPTIONS.items()),
    PolicyFacts("history", "history", "the logged decisions"),
    PolicyFacts("bc", "imitation", "behaviour cloning, sampled as the log decided"),
    PolicyFacts("bc_greedy", "imitation", "behaviour cloning, likeliest decision"),
    PolicyFacts("cql", "offline", "conservative Q-learning from the log alone; all seeds"),
    PolicyFacts("iql", "offline", "implicit Q-learning from the log alone; all seeds"),
    PolicyFacts("awr", "offline", "advantage-weighted regression from the log alone; all seeds"),
    PolicyFacts("td3_bc", "offline", "TD3+BC for choices from the log alone; all seeds"),
    PolicyFacts(
        "direct_method", "offline", "worth of a decision learned from the log, taken greedily; all seeds"
    ),
    PolicyFacts("regularised", "imitation", "Xiong et al.'s regularised imitation, equation 8; all seeds"),
    PolicyFacts(
        TWIN_POLICY, "trained", "PPO trained in the twin of the training days, near the clone; all seeds"
    ),
    PolicyFacts(
        "residual", "trained", "PPO in the twin from the best rule, a correction of its scores; first seed"
    ),
    PolicyFacts(
        LADDER, "trained", "what training chose to export: a rule, or what was surely better in the twin"
    ),
)
JUDGES = (
    JudgeFacts(
        "truth",
        "the simulated system that wrote this log, played again: shift 0 is the last training day again, later shifts "
        "are that many days later. What the other judges try to foresee.",
    ),
    JudgeFacts(
        REPLAY,
        "logged arrivals; logged outcomes where decisions agree, otherwise the outcome of the nearest request in time "
        "that ran on the chosen node. Exact for the logged policy, blind to the crowding that another policy causes.",
    ),
    JudgeFacts(
        SHIFTED_TWIN,
        "logged arrivals; answers from a twin fitted on the test days, unseen in training. Sees crowding as far as the "
        "log taught it; it is a model, not the system. The logged decisions (history) meet the logged "
        "acceptances and run times in it, to which they were reactions: waits alone are the twin's.",
    ),
    JudgeFacts(
        TRAINING_TWIN,
        "logged arrivals of the test days; answers from the very twin the policy was trained in: its in-model value.",
    ),
)
