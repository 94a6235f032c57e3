"""Drills on a local stack: what holds under load, after a killed head, and over a night of schedules.

    python -m benchmarks.drills load  --dir classwise-stack [--submissions 50] [--schedules 20] [--poll URL]
    python -m benchmarks.drills head  --dir classwise-stack
    python -m benchmarks.drills night --dir classwise-stack

Each prints what it measured and exits with 1 when something was lost or doubled.
"""
