"""The survey: differences between the days of an archive, and the shift from which on they exceed their limits."""
