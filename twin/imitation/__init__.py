"""Answers and the historical engine imitated from history alone (MAIL-MMSG), and a black box beside them."""
