"""The stepwise actor of orchestration by frame, what it observes, and how a plan advises it."""
