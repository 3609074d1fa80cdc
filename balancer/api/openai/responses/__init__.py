"""OpenAI's Responses API: items in, items out, and stored responses that requests can continue.

May import: what `openai` may, and `openai`. Comes in: `api/app`.
"""
