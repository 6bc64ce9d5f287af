"""Letting go of what jax has compiled: it keeps every program, about 70 MB a shape, for ever.

A worker that goes through the shapes of a large figure would need tens of gigabytes. So it forgets
its programs whenever it has grown too large; those that it needs again it compiles again.
"""

import ctypes
import gc
import sys

__all__ = ["Memory", "resident"]

_MOST = 2 * 2**30
"""Bytes, beyond which a process forgets its programs."""
_GROWTH = 1.5


class Memory:
    """Keeps this process from growing without end.

    Args:
        most: bytes that it may take before it lets go.
    """

    def __init__(self, most: int = _MOST) -> None:
        self.most = most

    def trim(self) -> bool:
        """Forgets all programs if this process has grown too large; says whether it did."""
        if "jax" not in sys.modules or resident() <= self.most:
            return False
        import jax

        jax.clear_caches()
        gc.collect()
        _return_to_system()
        # What it holds besides programs, it needs: to let go after every task would only be slow.
        self.most = max(self.most, round(_GROWTH * resident()))
        return True


def resident() -> int:
    """Bytes of memory that this process takes."""
    import psutil

    return psutil.Process().memory_info().rss


def _return_to_system() -> None:
    """glibc keeps freed memory to itself unless it is asked; others have nothing to ask."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
