"""Rehearsals: training on a simulated server, with real gradients in simulated time."""
