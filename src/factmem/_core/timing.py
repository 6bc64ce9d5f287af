"""Compile time and run time, told apart."""

import time
from types import TracebackType
from typing import Any

__all__ = ["Stopwatch"]

_COMPILING = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class Stopwatch:
    """Measures a block of code: the seconds that jax spent compiling, and all others.

    Whoever stops it makes sure that results are there (`jax.block_until_ready`).

    Examples:
        >>> with Stopwatch() as watch:
        ...     total = sum(range(1000))
        >>> watch.seconds >= 0, watch.compile_seconds
        (True, 0.0)
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """Run time: all that was not compilation."""
        self.compile_seconds = 0.0
        """Time that jax spent lowering and compiling."""

    def __enter__(self) -> "Stopwatch":
        from jax import monitoring

        monitoring.register_event_duration_secs_listener(self._heard)
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from jax import monitoring

        elapsed = time.perf_counter() - self._start
        monitoring.unregister_event_duration_listener(self._heard)
        self.seconds = max(0.0, elapsed - self.compile_seconds)

    def _heard(self, event: str, duration_secs: float, **_: Any) -> None:
        if event in _COMPILING:
            self.compile_seconds += duration_secs
