from .drawing import check_format as check_format
from .drawing import save_figure as save_figure
from .flow_curves import flow_curves as flow_curves
from .matplotlib_backend import printed as printed
from .plot import Plot as Plot
from .plotly_backend import interactive as interactive
from .training_curve import training_curve as training_curve
