"""Priority rules: the published ones, one file each; a new one is a file and a line here."""

from twin.ordering.rules.f1 import F1
from twin.ordering.rules.fcfs import FCFS
from twin.ordering.rules.ljf import LJF
from twin.ordering.rules.logged_order import LOGGED_ORDER
from twin.ordering.rules.rule import Rule, Waiting
from twin.ordering.rules.saf import SAF
from twin.ordering.rules.sjf import SJF
from twin.ordering.rules.unicef import UNICEF
from twin.ordering.rules.wfp3 import WFP3

RULES = (FCFS, SJF, SAF, LJF, WFP3, UNICEF, F1, LOGGED_ORDER)
"""Every priority rule."""

__all__ = ["F1", "FCFS", "LJF", "LOGGED_ORDER", "RULES", "SAF", "SJF", "UNICEF", "WFP3", "Rule", "Waiting"]
