from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.common.properties import PropertiesError, format_properties, load_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("  a=b", {"a": "b"}),
        ("a=b  ", {"a": "b  "}),
        ("a=b=c", {"a": "b=c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("# a=b\n! c=d\n  # e=f\ng=h # i", {"g": "h # i"}),
        ("a=b\\\n  c", {"a": "bc"}),
        ("a=b\\\r\n\tc", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("# a\\\nb=c", {"b": "c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n", {"a": "b"}),
        ("\\\n# a=b\nc=d", {"c": "d"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b c", {"a b": "c"}),
        ("a\\:b c", {"a:b": "c"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=C:\\temp", {"a": "C:\temp"}),
        ("\\u0061=\\u00e9\\u00E9", {"a": "éé"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=b\x0bc", {"a": "b\x0bc"}),
        ("\x0c a=b", {"a": "b"}),
    ],
)
def test_the_format_of_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u", "a=\\u12g4", "\\uxxxx=b"])
def test_a_broken_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match=r"line 3: .*four hexadecimal digits"):
        parse_properties(f"# comment\nx=y\n{text}")


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(PropertiesError, match=r"line 1: .*surrogate pair is incomplete"):
        parse_properties("a=\\ud83d")


def test_the_line_of_a_fault_is_the_first_of_a_continued_one() -> None:
    with pytest.raises(PropertiesError, match="line 2:"):
        parse_properties("\na=b,\\\n\\\n\\u12")


def test_a_file_is_iso_8859_1(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"a=\xe9\n")
    assert load_properties(path) == {"a": "é"}


def test_a_fault_in_a_file_is_reported_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("a=\\u1")
    with pytest.raises(PropertiesError, match=r"server\.properties: line 1"):
        load_properties(path)
    with pytest.raises(FileNotFoundError):
        load_properties(tmp_path / "other.properties")


@given(st.dictionaries(st.text(), st.text()), st.lists(st.text()))
@example({" a b ": "  c  ", "#": "#", "!": "!", "": ""}, ["x\ny=z"])
def test_what_is_written_reads_back(properties: dict[str, str], comments: list[str]) -> None:
    text = format_properties(properties, comments)
    assert text.isascii()
    assert parse_properties(text) == properties


@given(st.text(alphabet="ab=: \t\f\\#!\r\nu0d8", max_size=40))
def test_any_text_gives_settings_or_one_error(text: str) -> None:
    try:
        properties = parse_properties(text)
    except PropertiesError:
        return
    "".join([*properties, *properties.values()]).encode()  # nothing in it that cannot be sent
