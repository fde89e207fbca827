"""Runs of the real coordinator and policies; all else is simulated, reproducibly from a seed."""
