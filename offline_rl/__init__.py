"""Learning policies from logs and inside twins, and exporting them."""
