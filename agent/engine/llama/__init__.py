"""The only place that knows llama.cpp: its low-level calls, one idea a file."""
