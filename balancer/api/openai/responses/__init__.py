"""OpenAI's Responses API: items in, items out, and the results that later requests go on from.

May import: what `openai` may, and `openai`. Comes in: `api/app`.
"""
