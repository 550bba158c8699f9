"""Jobs: steps that make products, what is kept of unfinished ones, and how long work says how far it is."""
