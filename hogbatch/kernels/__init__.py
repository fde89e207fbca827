"""Operations on batches: NumPy and GPU backends, and the compiled loops of CPUs."""
