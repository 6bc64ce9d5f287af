"""Associative memories (section 3 of the paper). `__init__.pyi` lists the public names."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
