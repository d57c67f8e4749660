"""sasl.jaas.config: what Java's tokenizer reads, and errors without secrets."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import InvalidConfigurationError
from barnabas.security.sasl.jaas import OAUTHBEARER_LOGIN_MODULE, PLAIN_LOGIN_MODULE, jaas_for, parse_jaas


def test_an_entry() -> None:
    entry = parse_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule REQUIRED // a comment\n"
        '  username="admin" password=\'s e"c\' /* and\n another */ '
        'user_alice="al\\"ice\\\\ \\101\\t;" user_bob-2=word.1 ;\n'
    )
    assert (entry.login_module, entry.control_flag) == (PLAIN_LOGIN_MODULE, "required")
    assert entry.options == {
        "username": "admin",
        "password": 's e"c',
        "user_alice": 'al"ice\\ A\t;',
        "user_bob-2": "word.1",
    }
    assert entry.required("username") == "admin"
    with pytest.raises(InvalidConfigurationError, match="PlainLoginModule needs the option serviceName"):
        entry.required("serviceName")


def test_a_word_may_have_any_character_beyond_ascii() -> None:
    assert parse_jaas("a.B required user=Jos\u00e9\U0001f511-2;").options == {"user": "Jos\u00e9\U0001f511-2"}


def test_an_entry_without_options() -> None:
    assert parse_jaas(f"{OAUTHBEARER_LOGIN_MODULE} required;").options == {}


@pytest.mark.mechanism("A12")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have one login module: it has 0"),
        ("hush;", "login module at position 0 must be followed by one of optional, required"),
        ("a.B required password=hush; c.D required;", "must have one login module: it has 2"),
        ("a.B always password=hush;", "must be followed by one of"),
        ("a.B required password=hush", "must end with a semicolon"),
        ("a.B required password=ha hush;", "expected name=value at position 25"),
        ("a.B required password=", "option password has no value"),
        ("a.B required password=;", "option password has no value"),
        ("a.B required =hush;", "an option has no name at position 13"),
        ('a.B required password="hush;', "unterminated quotes at position 22"),
        ('a.B required password="hu\nsh";', "unterminated quotes at position 22"),
        ("a.B required password=hush!;", "unexpected character at position 26"),
        ("a.B required /* hush", "unexpected character at position 13"),
        ("; a.B required;", "expected the class of a login module at position 0"),
        ("x" * (1 << 21), "too long"),
    ],
)
def test_errors_say_where_and_show_no_value(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message) as caught:
        parse_jaas(text)
    assert "hush" not in str(caught.value)


@pytest.mark.mechanism("A12")
def test_no_secret_in_a_repr() -> None:
    assert "hush" not in repr(parse_jaas('a.B required password="hush";'))


def test_the_module_must_be_the_mechanisms() -> None:
    text = f"{PLAIN_LOGIN_MODULE} required username=a password=b;"
    assert jaas_for("PLAIN", text).options["username"] == "a"
    assert jaas_for("MY-OWN", text).options["username"] == "a"
    with pytest.raises(InvalidConfigurationError, match=r"module of SCRAM-SHA-256 is .*ScramLoginModule, not .*Plain"):
        jaas_for("SCRAM-SHA-256", text)


@given(st.text(max_size=60) | st.text("abc \"'\\=;/*\n01", max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidConfigurationError):
        parse_jaas(f"a.B required {text}")


@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(st.characters(exclude_characters="\r\n")))
)
def test_any_value_can_be_quoted(options: dict[str, str]) -> None:
    quoted = " ".join(
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"')) for name, value in options.items()
    )
    assert parse_jaas(f"a.B required {quoted};").options == options
