"""Prompts that were computed before, on disk by key; and what says that they fit a model.

May import: `shared`, the `Prompt` value (`agent.engine.prompt`). Comes in: the engine's vocabulary,
`kv_cache`, `scheduling`, `generation`.
"""
