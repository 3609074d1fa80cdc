"""The client-facing APIs: each translates its own format to the neutral request and back.

One room an API (`native`, `openai`, `anthropic`), what they share (`common`), the frame around all
of their calls (`endpoint`), what a route is (`route`), HTTP itself (`transport`), and how our own
APIs are described (`openapi`).
"""
