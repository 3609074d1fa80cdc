"""Which tokens a constraint allows next: compiled grammars and their masks.

May import: `sampling`'s filters. Comes in: `sampling`, `chat/grammar`, `generation`.
"""
