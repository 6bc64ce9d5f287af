"""Constants that several packages share. Importing this module does not load jax."""

__all__ = ["DEFAULT_WEIGHT_BITS"]

DEFAULT_WEIGHT_BITS = 16
"""Bits per weight at which fits, certificates and capacities are checked by default."""
