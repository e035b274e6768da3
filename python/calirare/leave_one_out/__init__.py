"""Leave-one-out models without retraining, and the paper's jackknife intervals (Algorithms 1 and 2)."""

from calirare.leave_one_out.algorithm1 import UNCERTAINTIES, UncertaintyName, jackknife
from calirare.leave_one_out.alo import ALO, Grouped, alo_change
from calirare.leave_one_out.choice import Choice, choose_method
from calirare.leave_one_out.directions import (
    LeftOut,
    change_of_logits,
    left_out,
    messages,
    pre_activation,
)
from calirare.leave_one_out.ends import Known, LogitMap
from calirare.leave_one_out.folds import FoldNetworks, fold_networks, keep_constants
from calirare.leave_one_out.formula import leave_out_own, loo_coefficients, primal_directions, sampled_leverages
from calirare.leave_one_out.held_out import HeldOut, Retraining
from calirare.leave_one_out.interval_result import JackknifeResult, class_sets
from calirare.leave_one_out.label_influence import LabelInfluence, influence
from calirare.leave_one_out.leaving_out import leave_one_out
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem, check_at_least, drawn
from calirare.leave_one_out.own_logits import Agreement, OwnLogits, choose_damping, closed_form_fits
from calirare.leave_one_out.result import Diagnostics, LooResult, closed_bytes, models_of
from calirare.leave_one_out.streaming import Streaming, streams
from calirare.leave_one_out.tangent import Tangent
from calirare.leave_one_out.trust import Quality, from_folds, quality, quality_of
from calirare.models import adam_moments as adam_moments

METHODS: dict[str, type[LeaveOneOutMethod]] = {each.name: each for each in (ALO, Grouped)}
