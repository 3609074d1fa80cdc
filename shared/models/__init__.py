"""Models as the fleet speaks of them: where their files come from, who should serve them."""
