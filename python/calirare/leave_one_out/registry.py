"""Every leave-one-out method by its name: the one place where a new one is entered."""

from __future__ import annotations

from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.grouped import Grouped
from calirare.leave_one_out.influence import Influence
from calirare.leave_one_out.method import LeaveOneOutMethod
from calirare.leave_one_out.newton import Newton
from calirare.leave_one_out.retrain import Retrain

METHODS: dict[str, type[LeaveOneOutMethod]] = {
    method.name: method for method in (ALO, Influence, Newton, Retrain, Grouped)
}
