"""What the next step computes: admission, prefill chunking, preemption, recovery."""
