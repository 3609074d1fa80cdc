"""OpenAI's conversations: items under one id, which responses read and extend."""
