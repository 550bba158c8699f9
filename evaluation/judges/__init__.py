"""Judges: the systems that policies are tried in, the policies, and the one way in which they are played."""
