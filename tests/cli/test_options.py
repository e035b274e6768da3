"""The options of `calirare train` are the fields of the settings: every one is there and takes effect."""

from __future__ import annotations

import argparse
import json

import pytest
import yaml

import calirare_lab.options as generate
from calirare.cli import options
from calirare.cli.options import budget
from calirare.cli.parser import parser_of
from calirare.leave_one_out import METHODS
from calirare.run import Settings, options_of, read_yaml, typed
from calirare.run.schema import method_options

# A value other than the default for what a kind alone does not tell.
CHOSEN = {
    "device": "cpu",
    "n_layers": 3,
    "rare_class": "fraud",
    "chosen": ("epochs",),
    "one_hot": ("region", "branch"),
    "drop_columns": ("case_no", "closed_on"),
    "unknown": ("?", "2"),
    "edge_columns": ("amount", "time"),
    "entities": ("card", "merchant"),
    "windows": ("1d", "7d"),
    "categories": ("shop_type", "city"),
    "shared": ("sender", "receiver"),
    "dropout": 0.25,
    "coverage": 0.75,
    "min_precision": 0.75,
    "min_recall": 0.75,
    "guarantee": 0.75,
    "eice.weight": 0.5,
    "eice.coverage": 0.75,
    "eice.paths": ("confidence", "scores"),
    "calibrate_for": "balanced",
    "loo.form": "primal",
    "prevalence": 0.02,
}
SETTINGS = list(options_of(Settings))
OPTIONS = [option["name"] for option in options.table()]
OF_METHODS = [(method, option) for method, every in method_options().items() for option in every]


def other(option):
    """Returns a value of a setting that is not its default."""
    if option.name in CHOSEN:
        return CHOSEN[option.name]
    for kind in option.kinds:
        if kind is bool:
            return not option.default
        if kind in (int, float):
            return kind(7) if option.default in (None, "auto") else kind(2 * option.default or 3)
        if isinstance(kind, str) and kind != option.default:
            return kind
    return "something"


def words(option, value):
    """Returns the words that give a setting a value on the command line."""
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    if option.name not in OPTIONS:
        return ["--set", f"{'.'.join(option.path)}={text.lower() if isinstance(value, bool) else text}"]
    name = option.name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", text]


def held(settings, path):
    """Returns the value of a setting, from the nested mapping that YAML holds."""
    at = settings.to_mapping()
    for key in path:
        at = at[key]
    return tuple(at) if isinstance(at, list) else at


def settings_of(line, base=Settings()):  # noqa: B008
    """Returns the settings that a command line requests."""
    values = parser_of("train").values(line)
    chosen = base.but("command line", **values["settings"])
    return chosen.but("--set", **typed(chosen, values["assignments"], "--set"))


def test_the_file_is_up_to_date():
    text = options.TABLE.read_text(encoding="utf-8")
    assert text == generate.as_text(), "the fields have changed: run `make options`"
    assert json.loads(text) == options.table()


def test_there_is_an_option_for_every_setting_but_those_that_set_gives():
    assert len(OPTIONS) == len(set(OPTIONS))
    given_by_set = {option.name for option in SETTINGS} - set(OPTIONS)
    assert set(OPTIONS) < {option.name for option in SETTINGS}
    assert given_by_set == {option.name for option in SETTINGS if option.path[0] in ("loo", "eice")} | set(generate.SET)


@pytest.mark.parametrize("option", SETTINGS, ids=lambda option: option.name)
def test_every_setting_takes_effect(option):
    value = other(option)
    assert value != option.default
    settings = settings_of(words(option, value))
    assert held(settings, option.path) == value
    at = rest = settings.to_mapping()
    for key in option.path[:-1]:
        at = at[key]
    if option.path[0] not in ("loo", "preset"):
        at[option.path[-1]] = option.default
        rest["decision"]["decide"] = "cost"  # an option of another rule chooses the rule
        assert Settings.from_mapping(rest) == Settings(), "nothing else changed"
    assert Settings.from_mapping(yaml.safe_load(yaml.safe_dump(settings.to_mapping()))) == settings
    assert Settings.of(**{option.name: value}) == settings, "Python's name is the same"


@pytest.mark.parametrize(("method", "option"), OF_METHODS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_every_option_of_every_method_takes_effect(method, option):
    value = other(option)
    assert value != option.default
    for line in (
        ["--set", f"loo.method={method}", *words(option, value)],
        [*words(option, value), "--set", f"loo={method}"],
    ):
        settings = settings_of(line)
        assert settings.loo.name == method
        assert held(settings, option.path) == value
        assert settings == Settings(loo=METHODS[method](**{option.path[-1]: value}))


@pytest.mark.parametrize(
    ("word", "value"), [("none", None), ("0.5", 0.5), ("5e-4", 5e-4), ("3", 3.0)], ids=["none", "real", "exp", "whole"]
)
def test_what_may_be_none_is_set_back_by_that_word(word, value):
    assert settings_of(["--set", f"loo.damping={word}"]).loo.damping == value


def test_options_win_over_a_nested_file_and_the_rest_of_it_stays(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(
        "training: {model: gcn, epochs: 5, hidden: 4}\ncalibration: {folds: 0}\nloo: {method: alo, form: primal}\n"
    )
    base = Settings.from_mapping(read_yaml(config))
    chosen = settings_of(["--epochs", "6", "--set", "hidden=3", "--set", "loo=alo", "--set", "loo.seed=3"], base)
    assert (chosen.training.epochs, chosen.training.hidden, chosen.calibration.folds) == (6, 3, 0)
    assert chosen.loo == METHODS["alo"](form="primal", seed=3), "the method that is there keeps its options"
    other = settings_of(["--set", "loo=grouped", "--set", "loo.n_groups=5"], base)
    assert other.loo == METHODS["grouped"](n_groups=5), "another has its own"


def test_a_list_goes_on_where_it_is_typed_again():
    settings = parser_of("train").values(["--one-hot", "a,b", "--one-hot", "c", "--weight", "x", "--weight", "y"])[
        "settings"
    ]
    assert settings == {"one_hot": ("a", "b", "c"), "weight": "y"}
    assert parser_of("explain").values(["--run", "r", "--node", "1", "2", "--node", "3"])["node"] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b", ("a", "b")), ('"amount, EUR",kind', ("amount, EUR", "kind")), ('5",a', ('5"', "a")), ("a,,", ("a",))],
)
def test_a_word_with_a_comma_stands_in_quotes(text, words):
    assert options.words(text) == words


@pytest.mark.parametrize(("text", "value"), [("100", 100), ("1", 1), ("1%", 0.01), ("0.02", 0.02), ("1.0", 1.0)])
def test_a_budget_is_a_number_or_a_share(text, value):
    assert budget(text) == value
    assert type(budget(text)) is type(value), "1 is one sample, 1.0 are all"


@pytest.mark.parametrize("text", ["0", "-3", "2.5", "0%", "101%", "many", "nan", "inf"])
def test_other_budgets_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of samples such as 100, or a share"):
        budget(text)
