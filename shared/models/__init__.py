"""Models as the fleet speaks of them: where their files come from, who should serve them.

Comes in: `messages`, both daemons. May import: the other words of `shared`.
"""
