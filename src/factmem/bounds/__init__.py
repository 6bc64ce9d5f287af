"""Information bounds: how many bits a model needs, and how many a given model stores.

All quantities are in bits, unless the name says nats.

The public names are listed in `__init__.pyi`.

Reference: section 6 of the paper.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
