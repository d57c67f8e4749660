from __future__ import annotations

import logging
import math
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.config_def import (
    CaseInsensitiveValidString,
    CompositeValidator,
    ConfigDef,
    ConfigError,
    Importance,
    LambdaValidator,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Password,
    Range,
    Type,
    Validator,
    ValidList,
    ValidString,
    convert_to_string,
    parse_type,
)
from barnabas.common.errors import Errors, InvalidConfigurationError


def definition() -> ConfigDef:
    return (
        ConfigDef()
        .define("port", Type.INT, 9092, Range.between(0, 65535), Importance.HIGH, "Where to listen.")
        .define("host", Type.STRING, None, NonEmptyString(), Importance.LOW, "The address.")
        .define("log.dirs", Type.LIST, documentation="Must be given.")
        .define("secret", Type.PASSWORD, "changeit")
        .define("ratio", Type.DOUBLE, "0.5")
        .define("hidden", Type.BOOLEAN, False, internal=True)
    )


def test_texts_become_values_and_the_rest_has_defaults() -> None:
    values = definition().parse({"port": " 9093 ", "log.dirs": "/a, /b ,/c", "hidden": "TRUE"})
    assert values.get_int("port") == 9093
    assert values.get_optional_str("host") is None
    assert values.get_list("log.dirs") == ("/a", "/b", "/c")
    assert values.get_password("secret") == Password("changeit")
    assert values.get_float("ratio") == 0.5
    assert values.get_bool("hidden") is True
    assert values.is_set("port")
    assert not values.is_set("host")
    assert dict(values) == {
        "port": 9093,
        "host": None,
        "log.dirs": ("/a", "/b", "/c"),
        "secret": Password("changeit"),
        "ratio": 0.5,
        "hidden": True,
    }


def test_unknown_names_are_kept() -> None:
    values = definition().parse({"log.dirs": "/a", "my.plugin.colour": "red"})
    assert dict(values.unknown) == {"my.plugin.colour": "red"}
    assert "my.plugin.colour" not in values
    assert dict(values.originals) == {"log.dirs": "/a", "my.plugin.colour": "red"}


def test_the_result_does_not_change() -> None:
    given_properties = {"log.dirs": "/a"}
    values = definition().parse(given_properties)
    given_properties["port"] = "1"
    assert not values.is_set("port")
    with pytest.raises(TypeError):
        values.originals["port"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        values._values["port"] = 1  # type: ignore[index]


def test_a_getter_of_the_wrong_type_is_a_mistake_in_the_program() -> None:
    values = definition().parse({"log.dirs": "/a"})
    for wrong in (values.get_str, values.get_bool, values.get_float, values.get_list, values.get_class):
        with pytest.raises(TypeError, match=r"port must be a .*: 9092"):
            wrong("port")
    with pytest.raises(TypeError):
        values.get_int("hidden")  # a bool is an int for Python, but not for anybody who reads a configuration
    with pytest.raises(TypeError):
        values.get_str("host")
    with pytest.raises(KeyError):
        values.get_str("no.such.setting")


def test_a_missing_setting() -> None:
    with pytest.raises(ConfigError, match=r"^Configuration log\.dirs is missing and has no default\.$") as caught:
        definition().parse({})
    assert caught.value.name == "log.dirs"
    assert isinstance(caught.value, InvalidConfigurationError)
    assert Errors.for_exception(caught.value) is Errors.INVALID_CONFIG


def test_validate_tells_of_all_faults() -> None:
    results = {result.name: result for result in definition().validate({"port": "x", "ratio": "y", "secret": "z"})}
    assert {name for name, result in results.items() if result.errors} == {"port", "ratio", "log.dirs"}
    assert results["secret"].value == Password("z")
    assert results["host"].value is None
    assert list(results) == list(definition().keys)


def test_definitions_can_be_put_together_but_not_twice() -> None:
    both = ConfigDef(definition(), ConfigDef().define("other", Type.SHORT, 1))
    assert list(both.keys)[-1] == "other"
    with pytest.raises(ValueError, match="port is defined twice"):
        ConfigDef(definition(), definition())


def test_a_default_is_checked_when_it_is_defined() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        ConfigDef().define("n", Type.INT, 0, Range.at_least(1))
    with pytest.raises(ConfigError, match="32 bits"):
        ConfigDef().define("n", Type.INT, 2**31)
    assert ConfigDef().define("n", Type.LIST, "a,b").default_values() == {"n": ("a", "b")}


def test_a_key_can_describe_itself() -> None:
    key = definition().keys["port"]
    assert key.valid_values == "[0,...,65535]"
    assert key.has_default
    assert not definition().keys["log.dirs"].has_default
    assert definition().keys["log.dirs"].valid_values == ""
    assert key.importance is Importance.HIGH
    assert definition().keys["hidden"].internal


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Type.BOOLEAN, "True", True),
        (Type.BOOLEAN, " false ", False),
        (Type.BOOLEAN, True, True),
        (Type.STRING, "  a b  ", "a b"),
        (Type.SHORT, "-32768", -32768),
        (Type.INT, "2147483647", 2**31 - 1),
        (Type.INT, 5, 5),
        (Type.LONG, "-9223372036854775808", -(2**63)),
        (Type.DOUBLE, "1e3", 1000.0),
        (Type.DOUBLE, 2, 2.0),
        (Type.DOUBLE, math.inf, math.inf),
        (Type.LIST, "", ()),
        (Type.LIST, "  ", ()),
        (Type.LIST, "a", ("a",)),
        (Type.LIST, "a , b,,c,", ("a", "b", "", "c", "")),
        (Type.LIST, ["a", "b"], ("a", "b")),
        (Type.PASSWORD, "x", Password("x")),
        (Type.PASSWORD, Password("x"), Password("x")),
        (Type.CLASS, "collections.OrderedDict", OrderedDict),
        (Type.CLASS, OrderedDict, OrderedDict),
        *[(kind, None, None) for kind in Type],
    ],
)
def test_values_of_each_type(kind: Type, value: object, expected: object) -> None:
    parsed = parse_type("key", value, kind)
    assert parsed == expected
    assert type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Type.BOOLEAN, "yes", "must be true or false"),
        (Type.BOOLEAN, 1, "must be true or false"),
        (Type.STRING, 5, "must be a string, not of type int"),
        (Type.SHORT, "32768", "at most 16 bits"),
        (Type.INT, "2147483648", "at most 32 bits"),
        (Type.INT, 2**31, "at most 32 bits"),
        (Type.INT, "1.5", "must be an integer"),
        (Type.INT, True, "not of type bool"),
        (Type.INT, 1.0, "not of type float"),
        (Type.LONG, "9" * 30, "at most 64 bits"),
        (Type.LONG, "", "cannot be an empty string"),
        (Type.DOUBLE, "half", "must be a number"),
        (Type.DOUBLE, True, "not of type bool"),
        (Type.DOUBLE, 10**400, "must be a number"),
        (Type.LIST, 5, "must be a comma-separated list"),
        (Type.LIST, b"a,b", "must be a comma-separated list"),
        (Type.CLASS, 5, "must be a class"),
        (Type.CLASS, "org.apache.kafka.NoSuchClass", "the class does not exist"),
        (Type.CLASS, "collections.NoSuchClass", "the class does not exist"),
        (Type.CLASS, "collections.abc", "the class does not exist"),
        (Type.CLASS, "not a name", "must be the dotted name"),
        (Type.CLASS, "", "must be the dotted name"),
    ],
)
def test_values_that_cannot_be(kind: Type, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_type("some.key", value, kind)
    assert str(caught.value).startswith("Configuration some.key cannot be ")
    assert caught.value.name == "some.key"
    assert len(str(caught.value)) < 250


def test_a_class_inside_a_class_and_a_module_that_fails(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "barnabas_plugin_whole.py").write_text("class Outer:\n    class Inner: ...\n")
    (tmp_path / "barnabas_plugin_needy.py").write_text("import barnabas_plugin_missing\n")
    (tmp_path / "barnabas_plugin_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    inner = parse_type("key", "barnabas_plugin_whole.Outer.Inner", Type.CLASS)
    assert inner.__qualname__ == "Outer.Inner"
    assert convert_to_string(inner) == "barnabas_plugin_whole.Outer.Inner"
    with pytest.raises(ConfigError, match="barnabas_plugin_needy needs barnabas_plugin_missing"):
        parse_type("key", "barnabas_plugin_needy.Plugin", Type.CLASS)
    with pytest.raises(ConfigError, match=r"cannot be imported \(division by zero\)"):
        parse_type("key", "barnabas_plugin_broken.Plugin", Type.CLASS)


def test_a_password_is_not_shown() -> None:
    values = definition().parse({"log.dirs": "/a", "secret": "s3cret"})
    assert "s3cret" not in repr(values)
    assert "s3cret" not in str(values["secret"])
    assert values.get_password("secret").value == "s3cret"
    assert convert_to_string(values["secret"], Type.PASSWORD) == "[hidden]"
    assert len({Password("a"), Password("a"), Password("b")}) == 2
    with pytest.raises(ConfigError) as caught:
        parse_type("secret", 12345, Type.PASSWORD)
    assert "12345" not in str(caught.value)
    assert Type.PASSWORD.is_sensitive
    assert not Type.STRING.is_sensitive


@given(
    st.one_of(
        st.tuples(st.just(Type.BOOLEAN), st.booleans()),
        st.tuples(st.just(Type.LONG), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(Type.LIST), st.lists(st.text("abc", min_size=1)).map(tuple)),
        st.tuples(st.just(Type.STRING), st.text("abc ").map(str.strip)),
    )
)
def test_a_value_as_text_parses_to_the_same(kind_and_value: tuple[Type, object]) -> None:
    kind, value = kind_and_value
    assert parse_type("key", convert_to_string(value, kind), kind) == value


VALID: list[tuple[Validator, list[object]]] = [
    (Range.at_least(1), [1, 2**62, 1.5]),
    (Range.between(0, 1), [0, 0.5, 1]),
    (Range(), [-5, 5]),
    (ValidString.of("a", "b"), ["a", "b"]),
    (CaseInsensitiveValidString.of("Abc"), ["abc", "ABC"]),
    (ValidList.of("a", "b"), [(), ("a",), ("b", "a")]),
    (ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=True), [None, (), ("x", "y")]),
    (ListSize(2), [(), ("a", "b")]),
    (NonEmptyString(), ["a", None]),
    (NonEmptyStringWithoutControlChars(), ["a é", None]),
    (NonNull(), [0, ""]),
    (CompositeValidator(NonNull(), Range.at_least(3)), [3]),
    (LambdaValidator(lambda _name, _value: None, "anything"), [None]),
]
INVALID: list[tuple[Validator, object, str]] = [
    (Range.at_least(1), 0, "it must be at least 1"),
    (Range.at_least(2**62), 2**62 - 1, "it must be at least"),
    (Range.between(0, 1), 1.1, "it must be at most 1"),
    (Range.between(0, 1), math.nan, "it must be a number"),
    (Range.at_least(1), None, "a value is required"),
    (ValidString.of("a", "b"), "A", "it must be one of a, b"),
    (ValidString.of("a", "b"), None, "cannot be null"),
    (CaseInsensitiveValidString.of("a"), "b", "in upper or lower case"),
    (CaseInsensitiveValidString.of("a"), None, "in upper or lower case"),
    (ValidList.of("a", "b"), ("a", "c"), "c is not one of a, b"),
    (ValidList.of("a", "b"), ("a", "a"), "duplicate entry"),
    (ValidList.of("a", empty_allowed=False), (), "at least one of a"),
    (ValidList.of("a"), None, "a value is required"),
    (ValidList.any_non_duplicate_values(empty_allowed=False, null_allowed=False), (), "at least one entry"),
    (ValidList.any_non_duplicate_values(empty_allowed=False, null_allowed=False), ("",), "it has an empty entry"),
    (ListSize(2), ("a", "b", "c"), "it has 3 entries, at most 2"),
    (NonEmptyString(), "", "it must not be empty"),
    (NonEmptyStringWithoutControlChars(), "", "it must not be empty"),
    (NonEmptyStringWithoutControlChars(), "a\x1b[2J\x85", r"codes 27, 133"),
    (NonNull(), None, "a value is required"),
    (CompositeValidator(NonNull(), Range.at_least(3)), 2, "at least 3"),
]


@pytest.mark.parametrize(("validator", "values"), VALID)
def test_validators_let_pass(validator: Validator, values: list[object]) -> None:
    for value in values:
        validator.ensure_valid("key", value)


@pytest.mark.parametrize(("validator", "value", "reason"), INVALID)
def test_validators_refuse(validator: Validator, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        validator.ensure_valid("key", value)
    assert str(caught.value).startswith("Configuration key cannot be ")
    assert "\x1b" not in str(caught.value)


def test_validators_say_what_they_allow() -> None:
    texts = [str(validator) for validator, _ in VALID]
    assert texts == [
        "[1,...]",
        "[0,...,1]",
        "[...]",
        "[a, b]",
        "(case insensitive) [ABC]",
        "[a, b]",
        "",
        "at most 2 entries",
        "non-empty string",
        "non-empty string without ISO control characters",
        "non-null",
        "non-null, [3,...]",
        "anything",
    ]
    with pytest.raises(ValueError, match="needs allowed values"):
        ValidList.of(empty_allowed=False)


def test_repeats_in_a_list_are_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    definition = ConfigDef().define("policy", Type.LIST, "", ValidList.of("a", "b"))
    with caplog.at_level(logging.WARNING):
        assert definition.parse({"policy": "b,a,b"}).get_list("policy") == ("b", "a")
    assert "policy has duplicate entries" in caplog.text
    assert definition.parse_value("policy", "a") == ("a",)
