"""What several benchmarks need, each thing once. Nothing here belongs to one question."""
