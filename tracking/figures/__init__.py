"""Pictures of an audit. `from_records` turns records into charts; `png` and `interactive` draw them for two media."""
