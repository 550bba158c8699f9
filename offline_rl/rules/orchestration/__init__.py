"""Rules of dispatch and orchestration that plan with the tables of a log: the rivals of what is learned."""
