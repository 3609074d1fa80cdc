"""Media in prompts: what clients send is checked and decoded before a projector encodes it."""
