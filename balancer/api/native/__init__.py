"""Arriero's own API, over HTTP and over one WebSocket with many requests."""
