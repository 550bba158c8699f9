"""The whole job in one command, and its daily form."""
