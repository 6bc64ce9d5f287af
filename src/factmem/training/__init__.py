"""Training by gradient descent: the paper's protocols, with many runs stacked.

The public names are listed in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
