"""Media in prompts: checked and decoded before a projector encodes them."""
