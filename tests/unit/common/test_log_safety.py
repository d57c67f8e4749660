"""Client strings in log lines: escaped, cut, and limited in number."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.log_safety import (
    MAX_ARGUMENT,
    LimitedLogger,
    SafeRecordFactory,
    escape,
    install,
    report_suppressed,
    safe_text,
)

FORGED = "app\n2026-01-01 00:00:00 ERROR  the disk is gone  [barnabas.log]"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a process writes whose own handler is on the root logger, as that of an embedded broker is."""
    before = logging.getLogRecordFactory()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    install()
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        logging.setLogRecordFactory(before)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with \\ and ü and 日本", "plain, with \\ and ü and 日本"),
        ("a\r\n\tb", "a\\r\\n\\tb"),
        ("\x1b[2J\x7f\x85\x9b", "\\x1b[2J\\x7f\\x85\\x9b"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\u202egnp\u2066\u200f\u061c", "\\u202egnp\\u2066\\u200f\\u061c"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_act_upon_is_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown
    shown.encode()


@pytest.mark.parametrize("character", ["x", "\n", "\u202e"])
def test_a_long_text_is_cut_to_the_bound(character: str) -> None:
    shown = safe_text(character * 30_000)
    assert len(shown) <= MAX_ARGUMENT
    assert shown.endswith(" more characters)")
    assert safe_text(shown) == shown


def test_no_argument_forges_a_line(lines: io.StringIO) -> None:
    log = logging.getLogger("barnabas.test_log_safety")
    log.error("client %s", FORGED)
    log.error("client %r", FORGED)
    log.error("failed: %s", ValueError(FORGED))
    log.error("of %(who)s", {"who": FORGED})
    log.error("groups %s, %d of them, %.1f %%, %s", [FORGED], 3, 0.5, None)
    log.error(f"made by hand: {FORGED}")  # noqa: G004 - a call site that forgot
    log.error("client %s", "x" * 30_000)
    written = lines.getvalue().splitlines()
    assert len(written) == 7
    assert all(line.startswith("ERROR ") for line in written)
    assert "3 of them, 0.5 %, None" in written[4]
    assert len(written[6]) < MAX_ARGUMENT + 100


def test_a_traceback_cannot_forge_a_line_either(lines: io.StringIO) -> None:
    log = logging.getLogger("barnabas.test_log_safety")
    try:
        raise ValueError(FORGED + "\x1b[31m")
    except ValueError:
        log.exception("failed")
    first, *others = lines.getvalue().splitlines()
    assert first == "ERROR failed"
    assert others
    assert all(line.startswith("  ") for line in others)
    assert "\x1b" not in lines.getvalue()


def test_records_of_others_stay_as_they_are(lines: io.StringIO) -> None:
    logging.getLogger("barnabase").error("a\nb")
    logging.getLogger("of.the.application").error("%s", "a\nb")
    assert lines.getvalue() == "ERROR a\nb\n" * 2


def test_it_is_installed_once(lines: io.StringIO) -> None:
    factory = logging.getLogRecordFactory()
    assert isinstance(factory, SafeRecordFactory)
    install()
    assert logging.getLogRecordFactory() is factory


class TestLimit:
    def make(self, clock: MockClock) -> LimitedLogger:
        return LimitedLogger(logging.getLogger("barnabas.test_log_safety"), clock=clock, lines=3, window_ms=10_000)

    def test_lines_of_one_site_are_limited_and_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = MockClock()
        log = self.make(clock)
        for number in range(1_237):
            log.warning("bad request %d", number)
        log.warning("another site")
        assert caplog.messages == ["bad request 0", "bad request 1", "bad request 2", "another site"]
        caplog.clear()
        clock.advance(10_000)
        log.warning("bad request %d", 5_000)
        assert caplog.messages == [
            "... 1,234 similar lines suppressed in the last 10 s: bad request %d",
            "bad request 5000",
        ]

    def test_the_count_comes_although_the_site_is_silent(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = MockClock()
        log = self.make(clock)
        for _ in range(5):
            log.error("failed")
        caplog.clear()
        clock.advance(9_999)
        report_suppressed()
        assert caplog.messages == []
        clock.advance(1)
        report_suppressed()
        report_suppressed()
        assert caplog.record_tuples == [
            (
                "barnabas.test_log_safety",
                logging.ERROR,
                "... 2 similar lines suppressed in the last 10 s: failed",
            )
        ]

    def test_the_record_names_the_call_site(self, caplog: pytest.LogCaptureFixture) -> None:
        log = self.make(MockClock())
        caplog.set_level(logging.DEBUG)
        log.info("a")
        log.debug("b")
        log.log(logging.WARNING, "c")
        log.error("d")
        log.critical("e")
        assert {record.funcName for record in caplog.records} == {"test_the_record_names_the_call_site"}

    def test_debug_lines_are_not_limited(self, caplog: pytest.LogCaptureFixture) -> None:
        log = self.make(MockClock())
        caplog.set_level(logging.DEBUG)
        for _ in range(10):
            log.debug("a")
        assert len(caplog.messages) == 10
