"""The orchestration problem's kit: dispatch by slots and orchestration by frames, learned from a log of both."""
