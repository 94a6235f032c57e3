"""How often every interval and test misses, by simulation: ``python -m benchmarks.coverage``."""
