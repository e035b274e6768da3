"""What a leave-one-out says about itself."""

from __future__ import annotations

from calirare.leave_one_out import Diagnostics, SolverReport


def test_a_solver_report_is_one_short_line_however_many_labels_there_are():
    report = SolverReport(
        ("CONVERGED",) * 199 + ("MAX_ITERATIONS",), tuple(range(1, 201)), tuple(1e-7 * i for i in range(200))
    )
    assert repr(report) == "SolverReport(199 of 200 converged, iterations <= 200, residuals <= 2e-05)"
    assert len(repr(Diagnostics("newton", "cg", 5e-4, solver=report))) < 400


def test_a_residual_that_is_no_number_shows():
    report = SolverReport(("CONVERGED", "NON_FINITE"), (3, 1), (1e-8, float("nan")))
    assert repr(report) == "SolverReport(1 of 2 converged, iterations <= 3, residuals <= nan)"


def test_nothing_solved():
    assert repr(SolverReport((), (), ())) == "SolverReport(0 of 0 converged, iterations <= 0, residuals <= 0)"
