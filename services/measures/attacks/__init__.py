"""Adversarial attacks in plain torch: batched, compacting, keyed by sample id, free of ray and mlflow."""
