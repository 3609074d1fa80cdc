"""Continuous batching over llama.cpp: a pure planner, and the thread that carries plans out.

This package has the types that its sub-packages share (`prompt`, `sequence`, `step`, `statistics`,
`capacity`, `loaded_model`), the port to llama.cpp (`engine`), the thread (`worker`) and its loop
(`step_loop`). The sub-packages are `scheduling`, `cost`, `kv_cache`, `prompt_store`, `sampling`,
`speculation`, `grammar`, `embedding`, and `llama`, the only one that imports llama.cpp.
"""
