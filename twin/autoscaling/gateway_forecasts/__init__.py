"""What users see of an application as a function of load and grants, learned from one log, with intervals."""
