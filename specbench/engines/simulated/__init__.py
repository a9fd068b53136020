"""A simulated engine: a real HTTP server with vLLM's dialect over a small categorical language model.

Its tokens are really sampled and its speculation is real speculative sampling; only time is made up,
by a step-cost model. `python -m specbench.engines.simulated --help` lists its flags.
"""
