"""Generates encoders."""

from __future__ import annotations

from typing import Any

from barnabas.common.dataclass import dataclass
from barnabas.protocol.codec import runtime
from barnabas.protocol.codec.decoding import version_lacks
from barnabas.protocol.codec.source import Source
from barnabas.protocol.fields import FIXED, Field
from barnabas.protocol.message import Encoder, Message, Request, Struct
from barnabas.protocol.versions import NONE


def compile_encoder(message: type[Message], version: int) -> Encoder:
    """Returns the encoder of one version: ``encode(message, head)``."""
    encoder: Encoder = _EncoderSource(message, version).build()
    return encoder


@dataclass(slots=True)
class _Piece:
    """A number to be packed (``code`` and ``value``), or an array of them (``array``, its length in ``count``)."""

    code: str
    value: str
    array: str = ""
    count: str = ""


class _EncoderSource(Source):
    """Writes one encoder.

    ``run`` holds the pieces that are not written yet. Lengths, array counts and the empty tag section join the run
    before them, so a whole partition often takes one call.
    """

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.run: list[_Piece] = []
        self.append = "append"
        self.scope.update(
            uvarint=runtime.uvarint,
            UVARINT=runtime.UVARINT,
            write_tags=runtime.write_tags,
            pack_length=runtime.pack_length,
            refuse=runtime.refuse,
            fail=runtime.fail,
        )

    def build(self) -> Any:
        self.emit(0, "def codec(o, head=None):")
        self.emit(1, "parts = [b'']; append = parts.append")
        self.struct_body(1, "o", self.message)
        self.flush(1)
        self.emit(1, "if head is None: del parts[0]")
        self.emit(1, "else: parts[0] = pack_length(sum(map(len, parts)) + len(head)) + head")
        self.emit(1, "return parts")
        return runtime.build(f"{self.message.__name__} v{self.version} encoder", self.text(), self.scope)

    # -- runs

    def flush(self, depth: int) -> None:
        if self.run:
            self.emit(depth, f"{self.append}({self.packed(self.run)})")
            self.run = []

    def packed(self, run: list[_Piece]) -> str:
        """Returns the expression for the bytes of a run."""
        if all(not piece.array for piece in run):
            codes = "".join(piece.code for piece in run)
            if codes == "x":
                return "b'\\0'"
            values = ", ".join(piece.value for piece in run if piece.code != "x")
            return f"{self.struct(codes, 'pack')}({values})"
        prefix = "B" if self.flexible else "i"
        packers = self.bind(
            "P", runtime.FusedPackers(tuple((prefix, piece.code) if piece.array else piece.code for piece in run))
        )
        lengths = ", ".join(piece.count for piece in run if piece.array)
        values = ", ".join(
            f"{piece.value}, *{piece.array}" if piece.array else piece.value for piece in run if piece.code != "x"
        )
        return f"{packers}[{lengths}]({values})"

    def length(self, depth: int, size: str, flexible: bool, wide: bool) -> None:
        """Writes a length prefix held in the variable ``size`` (compact: already one larger, zero for null)."""
        if not flexible:
            self.run.append(_Piece("i" if wide else "h", size))
            self.flush(depth)
            return
        before = self.run
        self.run = []
        if not before:
            self.emit(depth, f"{self.append}(UVARINT[{size}] if {size} < 128 else uvarint({size}))")
            return
        self.emit(depth, f"if {size} < 128: {self.append}({self.packed([*before, _Piece('B', size)])})")
        self.emit(depth, f"else: {self.append}({self.packed(before)} + uvarint({size}))")

    # -- structs

    def struct_body(self, depth: int, obj: str, cls: type[Struct]) -> None:
        self.refuse_lost_fields(depth, obj, cls)
        tagged: list[Field] = []
        for field in cls.fields:
            if version_lacks(field, self.version):
                continue
            if field.is_tagged(self.version):
                tagged.append(field)
            else:
                self.field(depth, f"{obj}.{field.name}", field)
        if self.flexible:
            self.tags(depth, obj, tagged)

    def refuse_lost_fields(self, depth: int, obj: str, cls: type[Struct]) -> None:
        lost = [field for field in cls.fields if version_lacks(field, self.version) and not field.ignorable]
        if lost:
            names = ", ".join(f"{cls.__qualname__}.{field.name}" for field in lost).replace(", ", "', '")
            condition = " or ".join(self.differs(f"{obj}.{field.name}", field) for field in lost)
            self.emit(depth, f"if {condition}: refuse({self.message.__name__!r}, {self.version}, '{names}')")

    def differs(self, value: str, field: Field) -> str:
        """Returns an expression that is true when the field does not have its default value."""
        if field.default_factory is list:
            return f"({value} is None or {value})" if field.nullable != NONE else value
        if field.default_factory is not None:
            return f"{value} != {self.bind('D', field.default_factory())}"
        if field.default is None:
            return f"{value} is not None"
        if field.default == 0:
            return value
        return f"{value} != {self.literal(field.default)}"

    def tags(self, depth: int, obj: str, tagged: list[Field]) -> None:
        unknown = f"{obj}.unknown_tagged_fields"
        any_set = " or ".join([unknown, *(self.differs(f"{obj}.{field.name}", field) for field in tagged)])
        before = self.run
        self.run = []
        self.emit(depth, f"if {any_set}:")
        inner = depth + 1
        if before:
            self.emit(inner, f"{self.append}({self.packed(before)})")
        if not tagged:
            self.emit(inner, f"write_tags({self.append}, (), {unknown})")
        else:
            known, outer = self.fresh("tags"), self.append
            self.emit(inner, f"{known} = []")
            for field in sorted(tagged, key=lambda item: item.tag or 0):
                parts = self.fresh("parts")
                self.append = f"{parts}.append"
                self.emit(inner, f"if {self.differs(f'{obj}.{field.name}', field)}:")
                self.emit(inner + 1, f"{parts} = []")
                self.field(inner + 1, f"{obj}.{field.name}", field)
                self.flush(inner + 1)
                self.emit(inner + 1, f"{known}.append(({field.tag}, b''.join({parts})))")
            self.append = outer
            self.emit(inner, f"write_tags({self.append}, {known}, {unknown})")
        self.emit(depth, f"else: {self.append}({self.packed([*before, _Piece('x', '')])})")

    # -- fields

    def field(self, depth: int, value: str, field: Field) -> None:
        nullable = self.version in field.nullable
        flexible = self.flexible if field.flexible is None else self.version in field.flexible
        if field.kind in FIXED:
            if field.kind == "uuid":  # struct would silently pad or cut it
                self.emit(depth, f"if len({value}) != 16: fail()")
            self.run.append(_Piece(FIXED[field.kind], value))
        elif field.kind == "array":
            assert field.element is not None
            self.array(depth, value, field.element, nullable, flexible)
        elif field.kind == "struct":
            assert isinstance(field.element, type)
            self.nested(depth, value, field.element, nullable, field.is_tagged(self.version))
        else:
            self.variable(depth, value, field.kind, nullable, flexible)

    def variable(self, depth: int, value: str, kind: str, nullable: bool, flexible: bool) -> None:
        data, size = self.fresh("b"), self.fresh("n")
        encode = f"{data}.encode()" if kind == "string" else data
        self.emit(depth, f"{data} = {value}")
        one = " + 1" if flexible else ""
        if nullable:
            self.emit(depth, f"if {data} is None: {data} = b''; {size} = {0 if flexible else -1}")
            self.emit(depth, f"else: {data} = {encode}; {size} = len({data}){one}")
        else:
            self.emit(depth, f"{data} = {encode}; {size} = len({data}){one}")
        if self.is_bounded and flexible and kind == "string":
            self.emit(depth, f"if {size} > {Request.max_string + 1}: fail()")
        self.length(depth, size, flexible, wide=kind != "string")
        self.emit(depth, f"{self.append}({data})")

    def array(self, depth: int, value: str, element: str | type[Struct], nullable: bool, flexible: bool) -> None:
        items, count = self.fresh("a"), self.fresh("n")
        one = " + 1" if flexible else ""
        self.emit(depth, f"{items} = {value}")
        inner = depth
        if nullable:
            # In either branch, the preceding run is packed together with the bytes that follow.
            null = _Piece("x", "") if flexible else _Piece("i", "-1")
            self.emit(depth, f"if {items} is None: {self.append}({self.packed([*self.run, null])})")
            self.emit(depth, "else:")
            inner += 1
        if isinstance(element, str) and element in FIXED:
            self.emit(inner, f"{count} = len({items})")
            if element == "uuid":
                self.emit(inner, f"if any(len(u) != 16 for u in {items}): fail()")
            self.run.append(_Piece(FIXED[element], f"{count}{one}", items, count))
            if nullable:
                self.flush(inner)
            return
        self.emit(inner, f"{count} = len({items}){one}")
        self.length(inner, count, flexible, wide=True)
        item = self.fresh("o")
        self.emit(inner, f"for {item} in {items}:")
        if isinstance(element, str):
            self.variable(inner + 1, item, element, nullable=False, flexible=flexible)
        else:
            self.struct_body(inner + 1, item, element)
        self.flush(inner + 1)

    def nested(self, depth: int, value: str, element: type[Struct], nullable: bool, tagged: bool) -> None:
        """Writes a nested struct. A nullable one starts with a byte: 1 if present; -1 if null (0 in a tagged field)."""
        obj = self.fresh("o")
        self.emit(depth, f"{obj} = {value}")
        if not nullable:
            self.struct_body(depth, obj, element)
            return
        self.flush(depth)
        self.emit(depth, f"if {obj} is None: {self.append}({runtime.null_struct(tagged)!r})")
        self.emit(depth, "else:")
        self.run.append(_Piece("b", "1"))
        self.struct_body(depth + 1, obj, element)
        self.flush(depth + 1)
