"""What workers compute on the shared model, without processes, threads or messages."""
