"""Autoscalers that need no training in a twin: what operators run today, and what was published."""
