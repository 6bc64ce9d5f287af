"""How many facts a transformer's weights can hold, where it holds them and when it learns them.

`__init__.pyi` lists the public names. Each is loaded on first use, so that `import factmem` is fast
and loads no jax.
"""

from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("factmem")
    return _load(name)
