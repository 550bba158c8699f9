"""The ordering problem: which waiting job starts next on a pool of processors."""
