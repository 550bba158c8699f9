"""Offline reinforcement learning: losses and returns, algorithms, one training scan, policy export."""
