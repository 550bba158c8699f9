"""The daily job: yesterday's decisions join the archive, a new policy is made, and the better one runs tomorrow."""
