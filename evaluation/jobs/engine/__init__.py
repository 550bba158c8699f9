"""The engine: one task on many items, in processes of this machine or on a Ray cluster (`logs_schema.mapping`)."""
