"""Tests run with warnings as errors, ranks never promoted, and shapes checked throughout."""

import os
import signal

import jax
import pytest
from hypothesis import HealthCheck, settings

# A shell that runs tests in the background lets them ignore Ctrl-C, and so all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_rank_promotion", "raise")

# Programs of tests run for moments: to compile them well takes longer than they do. In the
# environment too, for the processes that tests start.
jax.config.update("jax_disable_most_optimizations", True)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"

# Compiling the first example takes long and says nothing about the code: no deadlines.
quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=60, derandomize=True, **quiet)
settings.register_profile("thorough", max_examples=1000, **quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def float64():
    """64-bit numbers inside a test; arrays must not leave it."""
    with jax.enable_x64(True):
        yield
