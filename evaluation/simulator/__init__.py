"""The mechanistic ground truth: a cluster whose answers are known, and the logs it writes."""
