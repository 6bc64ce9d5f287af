"""How many facts a transformer's weights can hold, where it holds them and when it learns them.

The public names stand in `__init__.pyi`, one by one. Each is loaded on first use, so that
`import factmem` is quick and loads no jax.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
