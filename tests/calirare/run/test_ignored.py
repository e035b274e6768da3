"""Settings that play no part in a run are named in its notes."""

from __future__ import annotations

import pytest

from calirare import ALO, Grouped, Influence, Settings
from calirare.run import ignored_settings as ignored


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"loo": "newton"}, "because of loo newton"),
        ({"loo": ALO(damping=0.01)}, "because of damping 0.01"),
        ({"loo": Grouped(damping=0.01)}, "because of loo grouped and damping 0.01"),
        ({"loo": Influence(convention="official")}, "because of loo influence and convention official"),
        ({"loo": ALO(steps=2)}, "because of loo alo"),
    ],
)
def test_what_plays_no_part_is_noted(settings, why):
    (note,) = ignored(Settings.of(preset="paper", epochs=5, **settings))
    assert why in note


def test_what_plays_its_part_is_not():
    for changes in ({}, {"loo": "newton", "folds": 0}):
        assert ignored(Settings.of(preset="paper", **changes)) == []
    assert ignored(Settings()) == []


def test_settings_of_one_network_have_no_part_in_others():
    said = ignored(Settings.of(model="trees", epochs=9, hidden=3))
    assert said == ["epochs and hidden changed nothing with model trees: they belong to models gcn and hops"]
    said = ignored(Settings.of(folds=3))
    assert said == ["folds changed nothing with model auto: they belong to models gcn and hops"]
    assert ignored(Settings.of(model="hops", epochs=9, folds=3)) == []
