"""The only package that calls llama.cpp, through its low-level API; one concern per file."""

import os

# Threads spin this often before they sleep. llama.cpp's own thread pool (`llama_attach_threadpool`)
# would say how long they poll, but a build with OpenMP ignores it.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
