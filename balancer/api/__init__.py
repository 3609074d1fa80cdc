"""The client-facing APIs: each translates its own format to the neutral request and back.

One room an API (`native`, `openai`, `anthropic`), what they share (`common`), HTTP itself
(`transport`), and how the APIs are described (`openapi`).
May import: `fleet`. Comes in: the daemon; `management` for transport and descriptions.
"""
