"""Training on several servers: what needs no processes or connections."""
