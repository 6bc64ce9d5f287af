"""Section 3 of the paper: memories that map keys to values, and the best one there can be.

The names stand in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
