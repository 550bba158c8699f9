"""The assignment problem from a log: a scheduler of many requests at once, trained and exported."""
