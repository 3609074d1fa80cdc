"""Who is computed next: adapters and prompts in turns, and newcomers that need not wait for a step.

May import: the engine's words. Comes in: the scheduler's planner, and the worker with its loop.
"""
