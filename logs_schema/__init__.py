"""Tables, columns with units, checks, log formats and the day-partitioned archive."""
