"""The Anthropic Messages API over the neutral request and the neutral stream of events."""
