"""The digital twin: contracts, exact bookkeeping, learned responses, rollouts."""

from twin.backend import prepare

prepare()
