"""When facts are learned: gradient flow and descent of one attention layer (section 5 of the paper).

The names stand in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
