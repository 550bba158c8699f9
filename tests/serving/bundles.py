"""Small bundles made without the training stack: a scorer with drawn weights, its goldens computed in NumPy."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from logs_schema.product import writing
from offline_rl.bundle import GOLDEN, GOLDEN_ARRAYS, GRAPH, KIND, write_network
from offline_rl.contract import FeatureFacts, NetworkFacts, PolicyContract, write_contract
from offline_rl.numpy_networks import numpy_network, wanted_shapes
from offline_rl.onnx_graph import graph_of
from offline_rl.questions import drawn_questions, rows_of_answers, write_questions
from offline_rl.runner.features import NODE_FEATURES
from offline_rl.runner.network import ExportedPolicy
from offline_rl.runner.placement_form import PLACEMENT_FORM
from offline_rl.runner.policy import Policy
from offline_rl.runner.setting import parse_setting
from offline_rl.runner.table import request_feature_names, vocabulary_of

SITES = ("zone-a", "zone-b")
SERVICES = ("unknown", "resize", "detect")
RUN_S = 5.0


def contract_of(
    num_nodes: int,
    *,
    hidden: tuple[int, ...] = (16, 8),
    machines: dict[str, str] | None = None,
    cold_starts: dict[str, object] | None = None,
    any_nodes: bool = False,
) -> PolicyContract:
    """A placement policy of nodes `node-0`, ... with 16 cores and 64 GiB each, in two zones; `machines` of nodes."""
    names = [f"node-{index}" for index in range(num_nodes)]
    amounts = {"cpu_cores": 16.0, "memory_gib": 64.0, "gpus": 0.0}
    machine = {f"machine_{name}": amount for name, amount in amounts.items()}
    ratio = [1.0] * len(SERVICES)
    nodes = [
        {
            "name": name,
            "site": SITES[index % len(SITES)],
            "is_cloud": False,
            **amounts,
            **machine,
            "run_ratio": ratio,
        }
        for index, name in enumerate(names)
    ]
    setting = {
        "nodes": nodes,
        "candidate_sets": [names],
        "acceptance_of_agent": {},
        "acceptance_of_scenario": [[1.0, 1.0, 1.0]],
        "run_of_service_s": [RUN_S] * len(SERVICES),
        "time_unit_s": 1.0,
        "memory_s": 300.0,
        "sites": list(SITES),
        "scenarios": ["unknown"],
        "services": list(SERVICES),
        "queues": ["unknown"],
        "node_of_machine": machines or {},
        "cold_starts": cold_starts,
    }
    context = request_feature_names(vocabulary_of(parse_setting(setting)))
    return PolicyContract(
        problem="placement",
        choice_features=tuple(FeatureFacts(name, "1", -1.0, 20.0) for name in NODE_FEATURES),
        context_features=tuple(FeatureFacts(name, "1", -1.0, 20.0) for name in context),
        choices=tuple(names),
        network=NetworkFacts("scorer", hidden, machines is not None and not any_nodes, True),
        legality="the node can ever run it",
        setting=setting,
    )


def drawn_policy(**setting: object) -> Policy:
    """A policy of four nodes with drawn weights, on no disk; `setting` over that of `contract_of`."""
    contract = contract_of(4)
    contract = replace(contract, setting=contract.setting | setting)
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.normal(size=shape).astype(np.float32) for name, shape in wanted_shapes(contract).items()
    }
    return Policy(ExportedPolicy(contract, "", numpy_network(arrays, contract)))


def make_bundle(
    out: Path,
    *,
    num_nodes: int = 4,
    seed: int = 0,
    with_graph: bool = False,
    machines: dict[str, str] | None = None,
    rule: str | None = None,
    stand_in: str | None = None,
    cold_starts: dict[str, object] | None = None,
    any_nodes: bool = False,
) -> Path:
    """Writes a bundle whose weights, or whose rule's numbers, are drawn from `seed`; a rule may lie beside it."""
    contract = contract_of(num_nodes, machines=machines, cold_starts=cold_starts, any_nodes=any_nodes)
    contract = replace(contract, network=replace(contract.network, stand_in=stand_in))
    if rule is not None:
        contract = replace(contract, network=NetworkFacts(rule, ()))
    rng = np.random.default_rng(seed)
    arrays = {
        name: np.asarray((np.abs if rule else np.asarray)(rng.normal(size=shape)), np.float32)
        * np.float32(0.3)
        for name, shape in wanted_shapes(contract).items()
    }
    network = numpy_network(arrays, contract)
    questions, answers = drawn_questions(ExportedPolicy(contract, "", network), PLACEMENT_FORM, rng)
    seen = rows_of_answers(answers, contract)
    logits = network(*seen)
    golden = dict(zip(GOLDEN_ARRAYS, (*seen, logits, logits.argmax(1)), strict=True))
    with writing(out, KIND, seed=seed) as folder:
        write_contract(folder, contract)
        write_network(folder, arrays)
        if with_graph:
            (folder / GRAPH).write_bytes(graph_of(arrays, contract))
        np.savez(folder / GOLDEN, allow_pickle=False, **golden)
        write_questions(folder, questions)
    return out
