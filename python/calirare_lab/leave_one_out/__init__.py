"""Leave-one-out methods for comparison and reproduction: exact Hessian, influence functions, retraining."""

from calirare_lab.leave_one_out.comparison import DEFAULT_METHODS, Comparison, agreement_of, compare
from calirare_lab.leave_one_out.exact import Influence, Newton
from calirare_lab.leave_one_out.hessian import HessianRange, hessian_times, safe_damping, solve, spectrum_ends
from calirare_lab.leave_one_out.real_valued import jackknife_plus
from calirare_lab.leave_one_out.retraining import MAX_STEPS, TOLERANCE, Retrain, Steps, retrain

__all__ = [
    "DEFAULT_METHODS",
    "MAX_STEPS",
    "TOLERANCE",
    "Comparison",
    "HessianRange",
    "Influence",
    "Newton",
    "Retrain",
    "Steps",
    "agreement_of",
    "compare",
    "hessian_times",
    "jackknife_plus",
    "retrain",
    "safe_damping",
    "solve",
    "spectrum_ends",
]
