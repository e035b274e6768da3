"""Settings: the paper's defaults, every range, YAML in and out."""

from __future__ import annotations

import dataclasses
import inspect
import re

import numpy as np
import pytest
import yaml

from calirare._util.errors import InputError
from calirare.leave_one_out import ALO, METHODS, Grouped
from calirare.leave_one_out.eice import EiceSettings
from calirare.run import Calibration, Data, Settings, Training, read_yaml
from calirare.run import ignored_settings as ignored
from calirare.run.schema import attribute_help, method_options, options_of, words_for

GROUPS = {"training": Training, "calibration": Calibration, "eice": EiceSettings, "data": Data}


def test_the_defaults_are_the_papers():
    settings = Settings.of(preset="paper")
    assert (settings.training.detector(0).hidden, settings.training.n_layers, settings.training.dropout) == (16, 2, 0.5)
    assert (settings.training.learning_rate, settings.training.weight_decay) == (0.01, 5e-4)
    assert (settings.intervals.coverage, settings.eice.weight) == (0.9, 0.1)
    assert settings.loo == ALO()


@pytest.mark.parametrize("method", METHODS)
def test_settings_go_through_yaml_unchanged(method, tmp_path):
    settings = Settings.of(
        method="ts", epochs=7, loo=METHODS[method](damping=0.003), seed=2**40, coverage=0.85, device="cpu", rare_class=3
    )
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(settings.to_mapping()))
    assert Settings.from_mapping(read_yaml(path)) == settings
    assert Settings.from_mapping({}) == Settings()
    assert list(settings.to_mapping()) == [field.name for field in dataclasses.fields(Settings)]
    assert next(iter(settings.to_mapping()["loo"])) == "method"


def test_numbers_of_numpy_become_pythons():
    """As a grid or a column holds them: YAML knows Python's alone."""
    given = Settings.of(
        epochs=np.int64(30), prevalence=np.float64(0.1), rare_class=np.str_("fraud"), directed=np.bool_(1)
    )
    assert given == Settings.of(epochs=30, prevalence=0.1, rare_class="fraud", directed=True)
    assert yaml.safe_dump(given.to_mapping())
    with pytest.raises(InputError, match=r"training.epochs must be a whole number or auto, got 0.5"):
        Settings.of(epochs=np.float32(0.5))


def test_whole_numbers_may_stand_for_real_ones():
    settings = Settings.from_mapping({"training": {"dropout": 0}, "loo": {"damping": 1}})
    assert (settings.training.dropout, settings.loo.damping) == (0, 1)
    assert Settings.from_mapping({"training": {"epochs": "auto"}, "loo": {"damping": None}}) == Settings()
    with pytest.raises(InputError, match="weight_decay must be a number, got 'much'"):
        Settings.of(weight_decay="much")


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "magic"},
        {"hops": 0},
        {"calibrate_for": "both"},
        {"device": "tpu"},
        {"device": "cuda:"},
        {"epochs": 0},
        {"hidden": 0},
        {"n_layers": -1},
        {"dropout": 1.0},
        {"learning_rate": 0.0},
        {"learning_rate": float("inf")},
        {"weight_decay": float("nan")},
        {"seed": -1},
        {"seed": 2**63},
        {"coverage": 0.0},
        {"coverage": float("nan")},
        {"loo.damping": 0.0},
        {"loo.damping": float("inf")},
        {"folds": 1},
        {"folds": -2},
        {"eice.weight": 1.5},
        {"uncertainty": "none"},
    ],
)
def test_a_value_out_of_range_is_refused(wrong):
    name = next(iter(wrong))
    with pytest.raises(InputError, match=rf"\b{name.removeprefix('loo_').removeprefix('eice_')} must be ") as error:
        Settings.of(**wrong)
    assert ". " not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("value", [1, "a", True, 2.5, [1], None], ids=repr)
def test_every_setting_has_its_types(group, value):
    for option in options_of(GROUPS[group], (group,)):
        kinds = option.kinds
        fits = (
            (type(value) in kinds)
            or (value is None and None in kinds)
            or (type(value) is int and float in kinds)
            or (type(value) is list and tuple in kinds)
        )
        refused = rf"^f: {group}\.{option.path[-1]} must be {words_for(kinds)}, got "
        try:
            Settings.from_mapping({group: {option.path[-1]: value}}, "f")
            assert fits
        except InputError as error:  # out of range is told by another sentence
            assert bool(re.match(refused, str(error))) is not fits  # noqa: PT017


@pytest.mark.parametrize("number", ["5e-4", "5E-4", ".5e-3", "0.5e-3", "5.e-4", "+5e-4"])
@pytest.mark.parametrize(
    ("group", "name"), [("training", "weight_decay"), ("training", "learning_rate"), ("loo", "damping")]
)
def test_numbers_with_an_exponent_are_numbers(group, name, number, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"{group}: {{{name}: {number}}}\n")
    assert getattr(getattr(Settings.from_mapping(read_yaml(path)), group), name) == 5e-4


def test_an_unknown_name_lists_all_there_are():
    with pytest.raises(
        InputError, match=r"^f: unknown setting 'bogus'; there are preset, method, seed, device, training, .*, data$"
    ):
        Settings.from_mapping({"bogus": 1}, "f")
    with pytest.raises(
        InputError, match=r"'data.bogus'; there are transactions, dataset, root, task, positive_only, rare_class"
    ):
        Settings.from_mapping({"data": {"bogus": 1}}, "f")
    with pytest.raises(
        InputError, match=r"^f: unknown setting 'bogus'; there are preset, method, seed, device, training, .*, data$"
    ):
        Settings().but("f", bogus=1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("epoch", "epochs"),
        ("wieght_decay", "weight_decay"),
        ("damping", "loo.damping"),
        ("n_groups", "loo.n_groups"),
        ("refresh", "eice.refresh"),
        ("lo", "loo"),
        ("loo.n_groop", "loo.n_groups"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name, meant):
    with pytest.raises(InputError, match=rf"unknown setting '.*'; did you mean '?{meant}'?\?"):
        Settings.of(**{name: 1})


def test_short_names_stand_in_a_file_too():
    values = {"epochs": 3, "calibrate_for": "balanced", "loo.seed": 2, "data": {"split": "all"}}
    assert Settings.from_mapping(values) == Settings.of(
        epochs=3, calibrate_for="balanced", loo=ALO(seed=2), split="all"
    )
    with pytest.raises(InputError, match="settings: it must hold names and values"):
        Settings.from_mapping(["epochs"])


def test_a_nested_key_suggests_the_nearest():
    for values, hint in (
        ({"traning": {}}, "did you mean 'training'"),
        ({"training": {"epoch": 1}}, "did you mean 'training.epochs'"),
        ({"loo": {"method": "grouped", "sed": 2}}, "with grouped: unknown setting 'loo.sed'; did you mean 'loo.seed'"),
        ({"loo": "groped"}, "did you mean 'grouped'"),
    ):
        with pytest.raises(InputError, match=hint):
            Settings.from_mapping(values)


@pytest.mark.parametrize("method", METHODS)
def test_an_option_of_another_method_is_refused(method):
    own = {option.path[-1] for option in method_options()[method]}
    for options in method_options().values():
        for name in {option.path[-1] for option in options} - own:
            with pytest.raises(InputError, match=rf"with {method}: unknown setting 'loo\.{name}'"):
                Settings.of(loo=method, **{f"loo.{name}": 1})


def test_a_method_is_given_by_name_by_itself_or_by_its_options():
    assert Settings.of(loo=Grouped(n_groups=2), **{"loo.seed": 3}).loo == Grouped(n_groups=2, seed=3)
    assert Settings.of(**{"loo.n_groups": 3}, loo="grouped").loo == Grouped(n_groups=3)
    assert Settings.of(loo={"method": "grouped", "n_groups": 3}).loo == Grouped(n_groups=3)
    assert Settings.of(loo=ALO(seed=3)).but(loo={"form": "gram"}).loo == ALO(seed=3, form="gram")
    assert Settings.of(loo=ALO(seed=3)).but(loo="alo").loo == ALO(seed=3), "its options stay"
    assert Settings.of(loo=ALO(seed=3)).but(loo="grouped").but(loo="alo").loo == ALO()
    assert Settings.of(training={"hidden": 3}, epochs=5).training == Training(hidden=3, epochs=5)


@pytest.mark.parametrize("content", ["[", "a: b: c", "\tx", "!!python/name:os.system ''"])
def test_what_is_no_yaml_is_refused(content, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=r"c\.yaml: is not YAML") as error:
        read_yaml(path)
    assert "\n" not in str(error.value)


def test_an_empty_file_holds_nothing_and_a_list_is_refused(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("# nothing\n")
    assert read_yaml(path) == {}
    path.write_text("- epochs\n")
    with pytest.raises(InputError, match="must hold names and values"):
        read_yaml(path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)


def test_a_preset_lies_beneath_everything_else_that_is_said():
    paper = Settings.of(preset="paper")
    assert (paper.training.model, paper.calibration.calibrate_for) == ("gcn", "balanced")
    assert Settings.of(calibrate_for="population", preset="paper").calibration.calibrate_for == "population"
    nested = Settings.from_mapping({"preset": "paper", "training": {"hidden": 3}})
    assert (nested.training.model, nested.training.hidden) == ("gcn", 3)
    assert Settings.from_mapping(nested.to_mapping()) == nested
    with pytest.raises(InputError, match="preset must be one of default, paper"):
        Settings.of(preset="mine")


def test_algorithm_2_is_of_a_graph_convolution():
    assert Settings.of(method="calirare", epochs=9).model == "gcn"
    with pytest.raises(InputError, match="model must be gcn with method calirare, got 'trees'"):
        Settings.of(method="calirare", model="trees")


def test_helps_are_found_in_docstrings_without_indentation_as_python_3_13_stores_them():
    bare = type("Bare", (), {"__doc__": inspect.cleandoc(Training.__doc__)})
    assert attribute_help(bare)["epochs"] == attribute_help(Training)["epochs"]
    assert set(attribute_help(bare)) == set(attribute_help(Training))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"loo": ALO(damping=0.01)}, "because of damping 0.01"),
        ({"loo": Grouped(damping=0.01)}, "because of loo grouped and damping 0.01"),
        ({"loo": ALO(form="primal")}, "because of loo alo"),
    ],
)
def test_what_plays_no_part_is_noted(settings, why):
    (note,) = ignored(Settings.of(preset="paper", epochs=5, **settings))
    assert why in note


def test_what_plays_its_part_is_not():
    for changes in ({}, {"loo": "grouped", "folds": 0}):
        assert ignored(Settings.of(preset="paper", **changes)) == []
    assert ignored(Settings()) == []


def test_settings_of_one_network_have_no_part_in_others():
    said = ignored(Settings.of(model="trees", epochs=9, hidden=3))
    assert said == ["epochs and hidden changed nothing with model trees: they belong to models gcn and hops"]
    said = ignored(Settings.of(folds=3))
    assert said == ["folds changed nothing with model auto: they belong to models gcn and hops"]
    assert ignored(Settings.of(model="hops", epochs=9, folds=3)) == []
