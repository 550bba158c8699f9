"""The digital twin: contracts, exact bookkeeping, learned responses, rollouts."""

from twin.backend import avoid_wrong_reductions

avoid_wrong_reductions()
