"""What batches decide, all of it pure: their states, what runs next, what a line's end means."""
