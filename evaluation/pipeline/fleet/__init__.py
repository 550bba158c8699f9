"""A fleet: many clusters' daily jobs in one call, their state as a page and as metrics, and what of them may go."""
