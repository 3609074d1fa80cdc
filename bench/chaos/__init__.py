"""Faults looked for, not waited for: `python -m bench.chaos`.

Real daemons, each in a network namespace of its own, under a load whose answers are known; faults
drawn from a seed; and a judge that has seen every request.

Pure: `faults` (what may be tried, and what each may cost), `plan` (which, when), `line` (what a bad
network does to a packet), `record` and `judge` (what became of each request), `footprint` (what a
daemon holds). The rest starts, strikes and measures. Uses the tests' daemons and texts. Nothing
comes in.
"""
