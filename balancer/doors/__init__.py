"""Where clients come in: each door turns its API into the neutral request and back."""
