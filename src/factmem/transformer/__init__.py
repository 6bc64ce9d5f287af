"""The one-layer transformer: model, attention, constructions, compiler, certificate and files.

The public names are listed in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
