"""The placement problem's part of judging: its steps, its comparison, its report and its kit."""
