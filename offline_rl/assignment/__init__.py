"""Solvers of the assignment problem: rules by hand, exact ones, bounds, and learned ones. NumPy alone but for these."""
