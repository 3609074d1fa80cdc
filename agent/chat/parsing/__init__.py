"""An answer's text told apart while it streams: reasoning, tool calls, content.

May import: `families` and `calls`. Comes in: `generation`.
"""
