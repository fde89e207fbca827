"""What several tests share: processes of a run, cases, oracles and checks of the documentation."""
