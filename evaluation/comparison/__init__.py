"""Comparisons: shifted days, decisions, intervals, and the record that tables and reports show."""
