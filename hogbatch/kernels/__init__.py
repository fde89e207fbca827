"""Operations on batches: NumPy and GPU backends of `contract`, and the compiled loops of CPUs."""
