"""Plots: one description, drawn by matplotlib for papers and by plotly for web pages.

The public names are listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
