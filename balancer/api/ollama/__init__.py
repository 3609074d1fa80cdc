"""Ollama's API over the neutral request and the neutral stream of events."""
