"""Settings that play no part in a run, each with a sentence that says so."""

from __future__ import annotations

from collections.abc import Iterator

from calirare.models import networks
from calirare.run.settings import Settings

NETWORK = ("epochs", "hidden", "n_layers", "dropout", "learning_rate", "weight_decay")


def ignored_settings(settings: Settings) -> list[str]:
    """Returns a note for each requested thing that other settings leave out."""
    return list(_notes(settings))


def _notes(settings: Settings) -> Iterator[str]:
    model, plain, loo, folds = settings.model, Settings(), settings.loo, settings.calibration.folds
    if model not in networks():  # settings of one network, of detectors that choose their own or have none
        names = [name for name in NETWORK if getattr(settings.training, name) != getattr(plain.training, name)]
        hops = settings.training.hops
        names += ["hops"] if hops is not None and model == "auto" else []
        names += ["loo"] if loo != plain.loo else []
        names += ["folds"] if folds != plain.calibration.folds else []
        if names:
            kinds = " and ".join(networks())
            yield f"{' and '.join(names)} changed nothing with model {model}: they belong to models {kinds}"
    elif settings.method == "jackknife" and folds:  # whose leave-one-out loss is cross-validated, unless
        why = [] if settings.plain_alo else [f"loo {loo.name}"]
        why += [] if loo.damping is None else [f"damping {loo.damping:g}"]
        if why:
            yield (
                f"the leave-one-out loss was not compared with {folds}-fold cross-validation, because of "
                f"{' and '.join(why)}: that check is for loo alo as it is, without a damping"
            )
    if settings.decision.idle:
        yield f"{' and '.join(settings.decision.idle)} changed nothing with decide {settings.decision.decide}"
    if settings.positive_only and settings.calibration.calibrate_on != "auto":
        yield "calibrate_on changed nothing with positive_only: no label shows how common the rare class is"
