"""Jobs: steps that make products, units of unfinished products, and progress displays."""
