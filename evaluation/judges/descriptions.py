"""Names and descriptions of the policies and judges of a placement comparison."""

from evaluation.baselines import BASELINES, TRUTH_BASELINES
from evaluation.comparison.entries import JudgeFacts, PolicyFacts
from offline_rl.rules.in_twin import DESCRIPTIONS
from offline_rl.rules.size_intervals import SIZE_INTERVALS, WORDS

TWIN_POLICY, USERS, LADDER = "twin", "user", "ladder"
REPLAY, SHIFTED_TWIN, TRAINING_TWIN = "replay", "twin of shifted days", "training twin"
POLICIES = (
    *(PolicyFacts(one.name, "baseline", one.description) for one in (*BASELINES, *TRUTH_BASELINES)),
    *(PolicyFacts(name, "rule", words) for name, words in DESCRIPTIONS.items()),
    PolicyFacts(SIZE_INTERVALS, "rule", WORDS),
    PolicyFacts("history", "history", "the logged decisions"),
    PolicyFacts("bc", "imitation", "behaviour cloning, sampled"),
    PolicyFacts("bc_greedy", "imitation", "behaviour cloning, most probable decision"),
    PolicyFacts("cql", "offline", "conservative Q-learning from the log alone; all seeds"),
    PolicyFacts("iql", "offline", "implicit Q-learning from the log alone; all seeds"),
    PolicyFacts("awr", "offline", "advantage-weighted regression from the log alone; all seeds"),
    PolicyFacts("td3_bc", "offline", "TD3+BC for discrete choices from the log alone; all seeds"),
    PolicyFacts(
        "direct_method", "offline", "reward of a decision fitted on the log, maximised greedily; all seeds"
    ),
    PolicyFacts("regularised", "imitation", "Xiong et al.'s regularised imitation, equation 8; all seeds"),
    PolicyFacts(
        TWIN_POLICY, "trained", "PPO trained in the twin of the training days, near the clone; all seeds"
    ),
    PolicyFacts(
        "residual", "trained", "PPO in the twin from the best rule, a correction of its scores; first seed"
    ),
    PolicyFacts(
        LADDER, "trained", "the policy chosen for export: a rule, or one that is surely better in the twin"
    ),
)
JUDGES = (
    JudgeFacts(
        "truth",
        "the simulated system that wrote this log: shift 0 simulates the last training day again, later shifts are "
        "that many days later. The other judges estimate its values.",
    ),
    JudgeFacts(
        REPLAY,
        "logged arrivals; logged outcomes where decisions agree, otherwise the outcome of the nearest request in time "
        "that ran on the chosen node. Exact for the logged policy; ignores the congestion that another policy causes.",
    ),
    JudgeFacts(
        SHIFTED_TWIN,
        "logged arrivals; outcomes from a twin fitted on the test days, which are not training days. It models "
        "congestion as far as the log shows it; it is a model, not the system. The logged decisions (history) get the "
        "logged acceptances and run times, which they were reactions to: only waits are simulated.",
    ),
    JudgeFacts(
        TRAINING_TWIN,
        "logged arrivals of the test days; outcomes from the twin that the policy was trained in: its in-model value. "
        "The logged decisions (history) get the logged acceptances and run times here, too: where it is off, that "
        "error stands between them and every other policy.",
    ),
)
