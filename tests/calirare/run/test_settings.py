"""Settings: the paper's defaults, every range, YAML in and out."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from calirare._util.errors import InputError
from calirare.run.settings import DATA, Settings, check_data, read_yaml


def test_the_defaults_are_the_papers():
    settings = Settings()
    assert (settings.hidden, settings.n_layers, settings.dropout) == (16, 2, 0.5)
    assert (settings.learning_rate, settings.weight_decay) == (0.01, 5e-4)
    assert (settings.coverage, settings.eice_weight) == (0.9, 0.1)


def test_settings_go_through_yaml_unchanged(tmp_path):
    settings = Settings(method="ts", epochs=7, damping=0.003, seed=2**40, coverage=0.85, device="cpu")
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(settings.to_mapping()))
    assert Settings.from_mapping(read_yaml(path)) == settings
    assert Settings.from_mapping({}) == Settings()
    assert set(settings.to_mapping()) == {field.name for field in dataclasses.fields(Settings)}


def test_flags_are_true_or_false():
    assert Settings.from_mapping({"sharpen": True}).sharpen
    assert not Settings.from_mapping({"sharpen": False}).sharpen


def test_whole_numbers_may_stand_for_real_ones():
    assert Settings.from_mapping({"dropout": 0, "damping": 1}).dropout == 0
    assert Settings.from_mapping({"epochs": "auto", "damping": "auto"}) == Settings()
    assert Settings.from_mapping({"weight_decay": "auto"}).weight_decay == "auto"
    with pytest.raises(InputError, match="weight_decay must be auto or a positive number, got 'much'"):
        Settings(weight_decay="much")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="weight_decay must be a number with method calirare"):
        Settings(weight_decay="auto", method="calirare")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 2.0),
        ("epochs", True),
        ("epochs", "many"),
        ("epochs", None),
        ("hidden", 16.0),
        ("hidden", "16"),
        ("dropout", "auto"),
        ("dropout", False),
        ("damping", "low"),
        ("method", 3),
        ("seed", 1.0),
        ("device", None),
        ("sharpen", 1),
        ("sharpen", "yes"),
    ],
)
def test_a_wrong_type_is_refused(name, value):
    with pytest.raises(InputError, match=f"^my file: {name} must be "):
        Settings.from_mapping({name: value}, "my file")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epochs", 50.5, "epochs must be a whole number or auto, got 50.5"),
        ("weight_decay", "abc", "weight_decay must be a number or auto, got 'abc'"),
        ("damping", [1], r"damping must be a number or auto, got \[1\]"),
        ("hops", 1.5, "hops must be a whole number or auto, got 1.5"),
        ("hidden", "abc", "hidden must be like 16, got 'abc'"),
        ("dropout", "auto", "dropout must be like 0.5, got 'auto'"),
    ],
)
def test_a_refused_type_is_told_every_kind_that_is_taken(name, value, message):
    with pytest.raises(InputError, match=f"^f: {message}$"):
        Settings.from_mapping({name: value}, "f")


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "magic"},
        {"hops": 0},
        {"hops": "auto", "method": "calirare"},
        {"target": "both"},
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
        {"damping": 0.0},
        {"damping": float("inf")},
        {"folds": 1},
        {"folds": -2},
        {"eice_weight": 1.0},
    ],
)
def test_a_value_out_of_range_is_refused(wrong):
    with pytest.raises(InputError, match=f"^setting {next(iter(wrong))} must be ") as error:
        Settings.from_mapping(wrong)
    assert ". " not in str(error.value)


def test_settings_become_those_of_a_training():
    training = Settings(hidden=3, dropout=0.1, seed=8).training(9)
    assert (training.epochs, training.hidden, training.dropout, training.seed) == (9, 3, 0.1, 8)


def test_every_option_of_the_data_has_its_types():
    good = {"dataset": "cora", "minority": 3, "label_rate": 30, "symmetrize": True, "root": None}
    check_data(good, "f")
    check_data({"minority": "fraud"}, "f")
    for name, kinds in DATA.items():
        for value in (1, "a", True, 2.5, [1]):
            fits = type(value) in kinds
            if fits:
                check_data({name: value}, "f")
            else:
                with pytest.raises(InputError, match=f"^f: {name} must be "):
                    check_data({name: value}, "f")


@pytest.mark.parametrize("number", ["5e-4", "5E-4", ".5e-3", "0.5e-3", "5.e-4", "+5e-4"])
@pytest.mark.parametrize("name", ["weight_decay", "learning_rate", "damping"])
def test_numbers_with_an_exponent_are_numbers(name, number, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"{name}: {number}\n")
    assert getattr(Settings.from_mapping(read_yaml(path)), name) == 5e-4


@pytest.mark.parametrize("check", [Settings.from_mapping, check_data])
def test_an_unknown_name_lists_all_there_are(check):
    with pytest.raises(
        InputError, match=r"^f: unknown setting 'bogus'; the settings are method, .*, device; of the data"
    ):
        check({"bogus": 1}, "f")
    with pytest.raises(InputError, match="dataset, root, minority, label_rate, split, features"):
        check({"bogus": 1}, "f")


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


@pytest.mark.parametrize("name", ["hops", "weight_decay"])
def test_a_word_other_than_auto_is_refused_without_a_file_too(name):
    with pytest.raises(InputError, match=f"^setting {name} must be auto or a (whole|positive) number.*, got 'all'$"):
        Settings(**{name: "all"})
