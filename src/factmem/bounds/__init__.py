"""Section 6 of the paper: how many bits a model needs, and how many a given one holds.

All quantities are in bits; what is in nats says so in its name. The names stand in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
