"""Training on several servers: what is decided between them, without processes or connections."""
