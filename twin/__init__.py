"""The digital twin: contracts, exact bookkeeping, learned responses, rollouts."""
