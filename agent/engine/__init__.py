"""Continuous batching over llama.cpp: a pure planner, and the thread that carries plans out."""
