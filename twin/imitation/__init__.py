"""Answers and the historical engine imitated from history alone (MAIL-MMSG)."""
