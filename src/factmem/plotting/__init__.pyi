from .flow_curves import flow_curves as flow_curves
from .matplotlib_backend import draw_matplotlib as draw_matplotlib
from .plot import Plot as Plot
from .plotly_backend import draw_plotly as draw_plotly
from .save import check_format as check_format
from .save import save_figure as save_figure
from .training_curve import training_curve as training_curve
