"""The papers' tables and figures, from the simulation of their logs on: `schedtwin reproduce`."""
