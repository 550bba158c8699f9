import twin  # noqa: F401 - before JAX, which reads what this sets
