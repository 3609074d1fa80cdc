"""Framing of the agent socket: splits, joins and interleaves frames, and times heartbeats."""
