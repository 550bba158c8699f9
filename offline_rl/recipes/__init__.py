"""Recipes: how schedulers are trained from a log and in a twin, on the algorithms of this package."""
