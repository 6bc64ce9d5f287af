"""Learning dynamics of one attention layer: gradient flow, SGD and the stages of training.

The public names are listed in `__init__.pyi`.

Reference: section 5 of the paper.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
