"""Generates decoders."""

from __future__ import annotations

import struct
from typing import Any

from barnabas.protocol.codec import runtime
from barnabas.protocol.codec.source import Source
from barnabas.protocol.fields import FIXED, WIDTH, Field
from barnabas.protocol.message import Decoder, Message, Request, Struct


def compile_decoder(message: type[Message], version: int) -> Decoder:
    """Returns the decoder of one version: ``decode(buffer, start, end) -> (message, position)``."""
    decoder: Decoder = _DecoderSource(message, version).build()
    return decoder


def minimum_size(element: str | type[Struct], version: int, flexible: bool) -> int:
    """Returns the smallest encoded size of one array element.

    An array that claims more elements than the remaining bytes could hold is refused before a list is made for it.
    """
    if isinstance(element, str):
        if element in WIDTH:
            return WIDTH[element]
        return 1 if flexible else 4 if element == "bytes" else 2
    size = 1 if flexible else 0
    for field in element.fields:
        if version in field.versions and not field.is_tagged(version):
            size += _minimum_field(field, version, flexible)
    return max(size, 1)


def _minimum_field(field: Field, version: int, flexible: bool) -> int:
    if field.kind in WIDTH:
        return WIDTH[field.kind]
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return 1 if version in field.nullable else minimum_size(field.element, version, flexible)
    if field.flexible is not None:
        flexible = version in field.flexible
    return 1 if flexible else 2 if field.kind == "string" else 4


class _DecoderSource(Source):
    """Writes one decoder.

    ``run`` holds the fixed-size reads not written yet, as (format code, assignment target). A field of variable size
    has to know the position, so it adds its length prefix to the run and then flushes it.
    """

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.run: list[tuple[str, str]] = []
        self.scope.update(
            new=Struct.__new__,
            unpack_from=struct.unpack_from,
            long_uvarint=runtime.long_uvarint,
            read_uvarint=runtime.read_uvarint,
            unknown_tags=runtime.unknown_tags,
            fail=runtime.fail,
            too_many_entries=runtime.too_many_entries,
        )

    def build(self) -> Any:
        limit = f", entries={self.message.max_entries}" if issubclass(self.message, Request) else ""
        self.emit(0, f"def codec(buf, pos, end{limit}):")
        if _has_records(self.message):
            self.emit(1, "view = buf if type(buf) is memoryview else memoryview(buf)")
        top = self.struct_body(1, self.message)
        self.flush(1)
        self.emit(1, "if pos > end: fail()")
        self.emit(1, f"return {top}, pos")
        return runtime.build(f"{self.message.__name__} v{self.version} decoder", self.text(), self.scope)

    # -- fixed-size runs

    def flush(self, depth: int, *extra: tuple[str, str]) -> None:
        run = [*self.run, *extra]
        self.run = []
        if not run:
            return
        codes = "".join(code for code, _ in run)
        targets = ", ".join(target for _, target in run)
        if codes == "B":
            self.emit(depth, f"{targets} = buf[pos]; pos += 1")
            return
        comma = "," if len(run) == 1 else ""
        self.emit(depth, f"{targets}{comma} = {self.struct(codes, 'unpack_from')}(buf, pos)")
        self.emit(depth, f"pos += {struct.calcsize('>' + codes)}")

    def length(self, depth: int, flexible: bool, wide: bool) -> str:
        """Reads a length prefix; a compact length keeps its wire form: the length plus one, 0 for null."""
        name = self.fresh("n")
        if not flexible:
            self.flush(depth, ("i" if wide else "h", name))
            return name
        self.flush(depth, ("B", name))
        # The second byte is read inline: nearly all varints of more than one byte have two (up to 16,383).
        self.emit(depth, f"if {name} > 127:")
        self.emit(depth + 1, "second = buf[pos]")
        self.emit(depth + 1, f"if second < 128: {name} += (second << 7) - 128; pos += 1")
        self.emit(depth + 1, f"else: {name}, pos = long_uvarint(buf, pos, {name})")
        return name

    # -- structs

    def struct_body(self, depth: int, cls: type[Struct]) -> str:
        obj = self.fresh("o")
        self.emit(depth, f"{obj} = new({self.bind('C', cls)})")
        tagged: list[Field] = []
        for field in cls.fields:
            if version_lacks(field, self.version):
                self.assign_default(depth, obj, field)
            elif field.is_tagged(self.version):
                tagged.append(field)
                self.assign_default(depth, obj, field)
            else:
                self.field(depth, f"{obj}.{field.name}", field)
        if self.flexible:
            self.tags(depth, obj, tagged)
        else:
            self.emit(depth, f"{obj}.unknown_tagged_fields = None")
        return obj

    def assign_default(self, depth: int, obj: str, field: Field) -> None:
        if field.default_factory is list:
            value = "[]"
        elif field.default_factory is not None:
            value = f"{self.bind('F', field.default_factory)}()"
        else:
            value = self.literal(field.default)
        self.emit(depth, f"{obj}.{field.name} = {value}")

    def tags(self, depth: int, obj: str, tagged: list[Field]) -> None:
        count = self.fresh("t")
        self.flush(depth, ("B", count))
        unknown = f"{obj}.unknown_tagged_fields"
        self.emit(depth, f"{unknown} = None")
        self.emit(depth, f"if {count}:")
        self.emit(depth + 1, f"if {count} > 127: {count}, pos = long_uvarint(buf, pos, {count})")
        if self.is_bounded:
            self.emit(depth + 1, f"if {count} > {len(tagged)}: entries -= {count} - {len(tagged)}")
            self.emit(depth + 1, "if entries < 0: too_many_entries()")
        if not tagged:
            self.emit(depth + 1, f"{unknown}, pos = unknown_tags(buf, pos, end, {count})")
            return
        tag, size, stop = self.fresh("tag"), self.fresh("size"), self.fresh("stop")
        self.emit(depth + 1, f"for _ in range({count}):")
        inner = depth + 2
        self.emit(inner, f"{tag}, pos = read_uvarint(buf, pos)")
        self.emit(inner, f"{size}, pos = read_uvarint(buf, pos)")
        self.emit(inner, f"{stop} = pos + {size}")
        self.emit(inner, f"if {stop} > end: fail()")
        for position, field in enumerate(tagged):
            self.emit(inner, f"{'if' if position == 0 else 'elif'} {tag} == {field.tag}:")
            self.field(inner + 1, f"{obj}.{field.name}", field)
            self.flush(inner + 1)
        self.emit(inner, "else:")
        self.emit(inner + 1, f"if {unknown} is None: {unknown} = {{}}")
        self.emit(inner + 1, f"{unknown}[{tag}] = bytes(buf[pos:{stop}])")
        self.emit(inner + 1, f"pos = {stop}")
        self.emit(inner, f"if pos != {stop}: fail()")

    # -- fields

    def field(self, depth: int, target: str, field: Field) -> None:
        nullable = self.version in field.nullable
        flexible = self.flexible if field.flexible is None else self.version in field.flexible
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind], target))
        elif field.kind == "array":
            assert field.element is not None
            self.array(depth, target, field.element, nullable, flexible)
        elif field.kind == "struct":
            assert isinstance(field.element, type)
            self.nested(depth, target, field.element, nullable, field.is_tagged(self.version))
        else:
            self.variable(depth, target, field.kind, nullable, flexible)

    def variable(self, depth: int, target: str, kind: str, nullable: bool, flexible: bool) -> None:
        """Reads a string, bytes or records: a length and that many bytes."""
        size = self.length(depth, flexible, wide=kind != "string")
        stop = self.fresh("e")
        null = f"{size} == 0" if flexible else f"{size} == -1"
        present = size if flexible else f"{size} >= 0"
        read = {
            "string": f"str(buf[pos:{stop}], 'utf-8')",
            "bytes": f"bytes(buf[pos:{stop}])",
            "records": f"view[pos:{stop}]",
        }[kind]
        inner = depth
        if nullable:
            self.emit(depth, f"if {null}: {target} = None")
            self.emit(depth, "else:")
            inner += 1
        self.emit(inner, f"{stop} = pos + {size}{' - 1' if flexible else ''}")
        too_long = f" or {size} > {Request.max_string + 1}" if self.is_bounded and flexible and kind == "string" else ""
        self.emit(inner, f"if {stop} > end or not {present}{too_long}: fail()")
        self.emit(inner, f"{target} = {read}")
        self.emit(inner, f"pos = {stop}")

    def array(self, depth: int, target: str, element: str | type[Struct], nullable: bool, flexible: bool) -> None:
        count = self.length(depth, flexible, wide=True)
        inner = depth
        if nullable:
            self.emit(depth, f"if {count} == {0 if flexible else -1}: {target} = None")
            self.emit(depth, "else:")
            inner += 1
        if flexible:
            self.emit(inner, f"{count} -= 1")
        smallest = minimum_size(element, self.version, flexible)
        self.emit(inner, f"if {count} < 0 or {count} * {smallest} > end - pos: fail()")
        if self.is_bounded:
            self.emit(inner, f"entries -= {count}")
            self.emit(inner, "if entries < 0: too_many_entries()")
        if isinstance(element, str) and element in FIXED:
            unpackers = self.bind("A", runtime.ArrayUnpackers(FIXED[element]))
            self.emit(inner, f"{target} = list({unpackers}[{count}](buf, pos))")
            self.emit(inner, f"pos += {count} * {WIDTH[element]}")
            return
        items, append = self.fresh("l"), self.fresh("append")
        self.emit(inner, f"{items} = []; {append} = {items}.append")
        self.emit(inner, f"for _ in range({count}):")
        if isinstance(element, str):
            item = self.fresh("x")
            self.variable(inner + 1, item, element, nullable=False, flexible=flexible)
        else:
            item = self.struct_body(inner + 1, element)
        self.flush(inner + 1)
        self.emit(inner + 1, f"{append}({item})")
        self.emit(inner, f"{target} = {items}")

    def nested(self, depth: int, target: str, element: type[Struct], nullable: bool, tagged: bool) -> None:
        inner = depth
        if nullable:
            marker = self.fresh("m")
            self.flush(depth, ("b", marker))
            self.emit(depth, f"if {marker} {'== 0' if tagged else '< 0'}: {target} = None")
            self.emit(depth, "else:")
            inner += 1
        obj = self.struct_body(inner, element)
        if nullable:
            self.flush(inner)
        self.emit(inner, f"{target} = {obj}")


def version_lacks(field: Field, version: int) -> bool:
    return version not in field.versions and not field.is_tagged(version)


def _has_records(cls: type[Struct]) -> bool:
    return any(
        field.kind == "records" or (isinstance(field.element, type) and _has_records(field.element))
        for field in cls.fields
    )
