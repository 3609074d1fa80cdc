"""Who holds which cells of the KV cache; shared prefixes; eviction to host memory.

`Memory` has two layouts: `UnifiedMemory`, one cache for all, and `StreamMemory`, one a sequence.

May import: the engine's vocabulary, `prompt_store`. Comes in: `scheduling`.
"""
