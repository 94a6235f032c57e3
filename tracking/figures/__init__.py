"""Pictures of an audit. `views` turns records into charts, `png` and `interactive` draw a chart for the two media."""
