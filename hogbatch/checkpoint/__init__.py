"""What a run saves while it trains: checkpoints, and the run directory that holds them."""
