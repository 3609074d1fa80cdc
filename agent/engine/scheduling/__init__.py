"""What the next step computes: admission, prefill chunking, preemption, recovery.

May import: `cost`, `kv_cache`, `speculation`, `prompt_store`, the engine's vocabulary.
Comes in: the worker.
"""
