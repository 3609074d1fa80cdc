"""What becomes of each field that a client of OpenAI's or Anthropic's sends.

A field is obeyed, ignored and told, or refused by name: these clients cannot be told to leave a
field out. Lives here: the tables' type, and the pass over a body that applies one. The tables
themselves stand beside the requests of each API.

May import: `transport`, `common`. Comes in: `openai`, `anthropic`.
"""
