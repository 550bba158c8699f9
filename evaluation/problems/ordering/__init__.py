"""Policies of the ordering problem, compared with each other by replay."""
