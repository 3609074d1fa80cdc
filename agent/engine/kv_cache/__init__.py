"""Who holds which cells of the KV cache; shared prefixes; eviction to host memory.

`Memory` has two layouts: `UnifiedMemory`, one cache for all, and `StreamMemory`, one a sequence.
"""
