"""Who holds which cells of the KV cache; shared prefixes; eviction to host memory.

May import: the engine's vocabulary, `prompt_store`. Comes in: `scheduling`.
"""
