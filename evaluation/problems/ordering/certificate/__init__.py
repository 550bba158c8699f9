"""Certificates of twins of batch queues: generated weeks against weeks that the twin has not seen."""
