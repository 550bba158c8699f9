"""Gradient steps a second of d3rlpy's learners; run by `bench_learners` with the interpreter of d3rlpy's environment.

    python peer_learners.py LOG.npz BATCH WIDTH...

Prints one line of JSON: learner -> steps a second, the drawing of batches included. Its IQL is of continuous
actions.
"""

import json
import sys
import time

import numpy as np


def main() -> None:
    import d3rlpy

    arrays, batch = np.load(sys.argv[1]), int(sys.argv[2])
    encoder = d3rlpy.models.encoders.VectorEncoderFactory([int(width) for width in sys.argv[3:]])
    terminals = np.zeros(len(arrays["observation"]), np.float32)
    terminals[int(arrays["length"]) - 1 :: int(arrays["length"])] = 1.0

    def dataset(action: np.ndarray) -> "d3rlpy.dataset.MDPDataset":
        return d3rlpy.dataset.MDPDataset(arrays["observation"], action, arrays["reward"], terminals)

    chosen, continuous = dataset(arrays["choice"]), dataset(arrays["action"])
    algos, both = d3rlpy.algos, {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder}
    value = {"value_encoder_factory": encoder}
    learners = {
        "bc": (algos.DiscreteBCConfig(batch_size=batch, encoder_factory=encoder), chosen, 150),
        "td3_bc": (algos.TD3PlusBCConfig(batch_size=batch, **both), continuous, 80),
        "iql": (algos.IQLConfig(batch_size=batch, **both, **value), continuous, 80),
        "cql": (algos.DiscreteCQLConfig(batch_size=batch, encoder_factory=encoder), chosen, 80),
    }
    found = {}
    for name, (config, data, num_steps) in learners.items():
        learner = config.create(device=False)
        learner.build_with_dataset(data)
        rates = []
        for _ in range(4):
            begun = time.perf_counter()
            for _ in range(num_steps):
                learner.update(data.sample_transition_batch(batch))
            rates.append(num_steps / (time.perf_counter() - begun))
        found[name] = max(rates)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
