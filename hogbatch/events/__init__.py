"""Records of a run for users and programs: progress, events, summary, crash reports."""
