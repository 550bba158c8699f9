"""Certificates: the accuracy of a twin on held-out days, relative to the difference between two real days."""
