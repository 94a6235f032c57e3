"""What the sampling measures share: forward passes over (sample, draw) pairs, and sequential verdicts."""
