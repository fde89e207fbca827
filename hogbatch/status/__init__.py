"""What a run directory says about its run: events become a picture of the run, which is shown."""
