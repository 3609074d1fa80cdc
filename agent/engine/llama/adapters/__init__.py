"""Adapters of llama.cpp: loaded for a model, and selected for a step."""
