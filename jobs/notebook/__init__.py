"""Audits from Python and notebooks: what the package `classwise` offers."""

from jobs.notebook.found import Found, read
from jobs.notebook.objects import audit, run

__all__ = ["Found", "audit", "read", "run"]
