"""`schedtwin train`: schedulers in a twin."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.certify.keeping import Certification
    from evaluation.configuration import RunConfig

NAME = "train"
HELP = "train schedulers in a twin: a clone of the log, then PPO that stays near it"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_step_arguments

    parser.add_argument("twin", metavar="TWIN", type=Path, help="folder written by schedtwin fit")
    parser.add_argument(
        "--force",
        action="store_true",
        help="train also in a twin that has not passed schedtwin certify; every later report says so",
    )
    add_step_arguments(parser, "policy")


def run(arguments: Namespace) -> int:
    """Train and say what the twin promises; 0."""
    from evaluation.certify.keeping import find_certification, refuse_uncertified
    from evaluation.commands.output import progress_of, show_result
    from evaluation.commands.settings import settings_of, write_product
    from evaluation.pipeline import build_policy
    from twin.problems import ORDERING, problem_of

    config = settings_of(arguments)
    found = find_certification(arguments.twin)
    if not arguments.force:
        refuse_uncertified(found, arguments.twin)
    if problem_of(arguments.twin) == ORDERING:
        return _train_orders(arguments, config, found)
    with progress_of(arguments) as progress:
        facts = write_product(
            arguments,
            "policy",
            {"twin": arguments.twin},
            config.train,
            lambda out: build_policy(
                out, arguments.twin, config.train, config.seed, progress, certification=found.facts()
            ),
        )
    show_result(arguments, facts, "\n".join([*told_of_seeds(facts), *_last_words(arguments, found)]))
    return 0


def told_of_seeds(facts: Mapping[str, Any]) -> list[str]:
    """What training says of every seed: the reward that it trained on is no value of the policy."""
    columns = ("seeds", "reward_with_member_kept_aside", "training_reward", "kl_to_clone")
    return [
        f"seed {seed}: mean reward of a decision {value:.4f} with the member kept aside; training reward {reward:.4f} "
        f"at the end, {kl:.3f} nats from the clone"
        for seed, value, reward, kl in zip(*(facts[name] for name in columns), strict=True)
    ]


def _train_orders(arguments: Namespace, config: "RunConfig", found: "Certification") -> int:
    from evaluation.commands.output import progress_of, show_result
    from evaluation.commands.settings import write_product
    from evaluation.ordering.steps import build_queue_policy, training_of

    training = training_of(config)
    with progress_of(arguments) as progress:
        facts = write_product(
            arguments,
            "policy",
            {"twin": arguments.twin},
            training,
            lambda out: build_queue_policy(
                out, arguments.twin, training, progress, certification=found.facts()
            ),
        )
    lines = [
        f"index of seed {seed}: cross-entropy {loss:.3f} nats on held-out training jobs"
        for seed, loss in zip(facts["seeds"], facts["losses"], strict=True)
    ]
    lines += facts["notes"]
    show_result(arguments, facts, "\n".join([*lines, *_last_words(arguments, found)]))
    return 0


def _last_words(arguments: Namespace, found: "Certification") -> list[str]:
    said = [] if found.passed else [f"{found.words}; every later report says so"]
    return [
        *said,
        f"{arguments.out} written; what the twin promises is no proof: schedtwin compare judges it",
    ]
