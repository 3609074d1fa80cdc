"""OpenAI's Responses API: items in, items out, and stored responses that requests can continue."""
