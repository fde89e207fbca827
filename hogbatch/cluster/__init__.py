"""Training on several servers: the process of a server, transfers between servers, and Ray."""
