"""Bound the memory that compiled programs take in a worker.

jax keeps every program that it has compiled, about 70 MB per shape. A worker that goes through the
shapes of a large figure would need tens of gigabytes, so it drops all programs whenever the process
has grown too large. Programs that are needed again are compiled again.
"""

import ctypes
import gc
import sys

__all__ = ["CompilationCacheTrimmer", "resident_bytes"]

_MAX_BYTES = 2 * 2**30
_GROWTH = 1.5


class CompilationCacheTrimmer:
    """Drops compiled programs when the process exceeds a limit.

    Args:
        max_bytes: resident memory at which programs are dropped.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self.max_bytes = max_bytes

    def trim(self) -> bool:
        """Drop all compiled programs if the process is too large; return whether it was."""
        if "jax" not in sys.modules or resident_bytes() <= self.max_bytes:
            return False
        import jax

        jax.clear_caches()
        gc.collect()
        _return_freed_memory()
        # What remains cannot be freed; with the old limit, every task would trim again in vain.
        self.max_bytes = max(self.max_bytes, round(_GROWTH * resident_bytes()))
        return True


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    import psutil

    return psutil.Process().memory_info().rss


def _return_freed_memory() -> None:
    """Ask glibc to return freed memory to the system; other C libraries do so by themselves."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
