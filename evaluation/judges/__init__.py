"""Judges: the systems that policies are evaluated in, and the players that act in them."""
