"""The project's main table, from nothing: `schedtwin reproduce table2`."""
