"""Settings that play no part in a run, each with a sentence that says so."""

from __future__ import annotations

from calirare.models import networks
from calirare.run.settings import Settings

NETWORK = ("epochs", "hidden", "n_layers", "dropout", "learning_rate", "weight_decay")


def ignored_settings(settings: Settings) -> list[str]:
    """Returns a note for each thing asked for that other settings leave out."""
    notes = (_network(settings), _check(settings), _decision(settings), _known(settings))
    return [note for note in notes if note]


def _network(settings: Settings) -> str:
    """Returns a note where settings of one network are given to detectors that choose their own, or have none."""
    model, plain = settings.model, Settings()
    if model in networks():
        return ""
    names = [name for name in NETWORK if getattr(settings.training, name) != getattr(plain.training, name)]
    hops = settings.training.hops
    names += ["hops"] if hops is not None and (model == "auto" or hops == "auto") else []
    names += ["loo"] if settings.loo != plain.loo else []
    names += ["folds"] if settings.calibration.folds != plain.calibration.folds else []
    if not names:
        return ""
    return f"{' and '.join(names)} changed nothing with model {model}: they belong to models {' and '.join(networks())}"


def _check(settings: Settings) -> str:
    """Returns a note where cross-validation of the leave-one-out loss is left out."""
    folds, loo = settings.calibration.folds, settings.loo
    if settings.method != "jackknife" or not folds or settings.model not in networks():
        return ""
    why = [] if settings.plain_alo else [f"loo {loo.name}"]
    if loo.prints != "corrected":
        why.append(f"convention {loo.prints}")
    if loo.damping is not None:
        why.append(f"damping {loo.damping:g}")
    if not why:
        return ""
    return (
        f"the leave-one-out loss was not compared with {folds}-fold cross-validation, because of {' and '.join(why)}: "
        "that check is for loo alo as it is, without a damping"
    )


def _decision(settings: Settings) -> str:
    """Returns a note where a rule of decision other than the chosen one was given something."""
    names = settings.decision.idle
    return f"{' and '.join(names)} changed nothing with decide {settings.decision.decide}" if names else ""


def _known(settings: Settings) -> str:
    """Returns a note where it is said which labels represent the population, and known rare nodes are the only ones."""
    if not settings.positive_only or settings.calibration.calibrate_on == "auto":
        return ""
    return "calibrate_on changed nothing with labels positive-only: no label shows how common the rare class is"
