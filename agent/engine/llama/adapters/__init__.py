"""Adapters of llama.cpp: loaded beside a model, and set for a step."""
