from .content import KeyNumber as KeyNumber
from .content import Report as Report
from .content import Section as Section
from .page import report_html as report_html
from .page import write_report as write_report
from .reproduction import Reproduction as Reproduction
from .reproduction import reproduce as reproduce
