"""Readers of events: the console, the live view, status, reports and trackers."""
