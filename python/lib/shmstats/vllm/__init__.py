"""A stats line for all of vLLM's API servers together.

vLLM loads this package by its entry points; there is nothing to call. `python -m shmstats.vllm
doctor` says why there is no line. Nothing here imports vLLM before vLLM itself has loaded it.
"""

from .launch import name_region

__all__ = ["name_region"]
