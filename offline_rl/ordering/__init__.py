"""Learning the order of a queue: run times predicted, an index of them, and PPO in generated weeks."""
