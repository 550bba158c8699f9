"""Slot mode of the ground truth: papers 001 and 003, repaired."""
