"""Certificates: how far a twin may be believed, measured on days it has not seen, against one real day and another."""
