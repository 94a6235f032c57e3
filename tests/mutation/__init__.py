"""Mutation testing of `services.numerics`: `make mutants`; docs/mutation.md says what it found."""
