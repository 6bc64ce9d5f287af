"""Compile time and run time, measured separately."""

import time
from types import TracebackType
from typing import Any

__all__ = ["Stopwatch"]

_COMPILE_EVENTS = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class Stopwatch:
    """A context manager that measures the compile time and the run time of a block.

    Call `jax.block_until_ready` on the results before the block ends.

    Examples:
        >>> with Stopwatch() as watch:
        ...     total = sum(range(1000))
        >>> watch.seconds >= 0, watch.compile_seconds
        (True, 0.0)
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """Run time: the elapsed time without compilation."""
        self.compile_seconds = 0.0
        """Time that jax spent on lowering and compilation."""

    def __enter__(self) -> "Stopwatch":
        from jax import monitoring

        monitoring.register_event_duration_secs_listener(self._on_event)
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
        monitoring.unregister_event_duration_listener(self._on_event)
        self.seconds = max(0.0, elapsed - self.compile_seconds)

    def _on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        if event in _COMPILE_EVENTS:
            self.compile_seconds += duration_secs
