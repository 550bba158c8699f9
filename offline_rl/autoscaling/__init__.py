"""Learning to grant: a teacher of all deployments, and light students of one each."""
