"""Computations of workers on the shared model, without processes, threads or messages."""
