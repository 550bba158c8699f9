"""The survey: the days of an archive against each other, and from which shift on one no longer describes another."""
