"""A second, small model that guesses what the served one will say.

May import: the engine's own words (`agent.engine`), `llama`. Comes in: `llama.engine`.
"""
