"""What do faults cost? One module per question; see __main__.py."""
