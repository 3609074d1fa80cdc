"""Continuous batching over llama.cpp: a pure planner, and the thread that carries plans out.

Lives here: the types that all rooms below share (`prompt`, `sequence`, `step`, `statistics`,
`capacity`, `loaded_model`), the port to llama.cpp (`engine`), the thread (`worker`) and
what it does (`step_loop`).
One room each: `scheduling`, `cost`, `kv_cache`, `prompt_store`, `sampling`, `speculation`,
`grammar`, `embedding`, and `llama`, which alone imports llama.cpp.
"""
