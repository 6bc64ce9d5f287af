"""The figures and claims of the paper, one file per figure and per theorem.

Public names are listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
