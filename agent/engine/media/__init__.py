"""Media in prompts: what clients send is checked and decoded here, before a projector encodes it.

May import: `agent.engine.prompt`. Comes in: the engine's edge and preparation.
"""
