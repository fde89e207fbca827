"""Reports of a run for users and programs: events, their log, the state, summary, crash reports."""
