"""Settings that play no part in a run, each with a sentence that says so."""

from __future__ import annotations

from calirare.run.settings import Settings


def ignored(settings: Settings) -> list[str]:
    """Returns a note for each thing asked for that other settings leave out."""
    return [note for note in (_check(settings), _sharpen(settings)) if note]


def _check(settings: Settings) -> str:
    """Returns a note where cross-validation of the leave-one-out loss is left out."""
    if settings.method != "jackknife" or not settings.folds:
        return ""
    why = []
    if settings.loo != "alo":
        why.append(f"loo {settings.loo}")
    if settings.convention != "corrected":
        why.append(f"convention {settings.convention}")
    if settings.damping != "auto":
        why.append(f"damping {settings.damping:g}")
    if not why:
        return ""
    return (
        f"the leave-one-out loss was not compared with {settings.folds}-fold cross-validation, because of "
        f"{' and '.join(why)}: that check is for loo alo, convention corrected and damping auto"
    )


def _sharpen(settings: Settings) -> str:
    """Returns a note where the sharpened map is not there or not the chosen one."""
    if not settings.sharpen:
        return ""
    if settings.method != "jackknife":
        return f"sharpen changed nothing: it belongs to the balanced map of method jackknife, not to {settings.method}"
    if settings.target != "balanced":
        return f"sharpen changed the balanced map alone, and the predictions are for the target {settings.target}"
    return ""
