"""The service on one machine, as ``deploy/local-stack.sh`` starts it.

`layout` says where everything lies, which ports it has and what is secret; `processes` starts and ends what it started
and nothing else; `parts` says what runs; `databases` and `accounts` prepare PostgreSQL and MLflow.
"""
