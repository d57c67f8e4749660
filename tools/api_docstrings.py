"""An extension of Griffe for the API reference of the documentation site, which is made of docstrings.

It sees to what a reader of the source knows and a reader of one docstring does not:

- An operation of the admin client is a function of another module (``list_topics = blocking(topics.list_topics)``).
  It is shown as a method, with the parameters and the docstring of that function.
- The asynchronous and the mock clients have the methods of the ordinary ones. A method without a docstring of its own
  is shown with that of the ordinary client, and a link to it.
- A name between single backticks, such as `KafkaProducer` or `commit`, links to its entry, if there is one.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from griffe import Attribute, Class, Docstring, ExprCall, Extension, Function, Module, Object, Parameters

PAGES: Final[dict[str, tuple[str, ...] | None]] = {
    "barnabas.clients.producer": None,
    "barnabas.clients.consumer": None,
    "barnabas.clients.admin": None,
    "barnabas.clients.testing": ("Fate", "Handled", "ScriptedCluster", "StoredRecord"),
    "barnabas.clients.producer.errors": None,
    "barnabas.clients.consumer.errors": None,
    "barnabas.embedded": ("EmbeddedBroker",),
    "barnabas.spark": ("register",),
}
"""The modules whose names are shown, and which; None stands for ``__all__``."""
PRODUCER: Final = "barnabas.clients.producer.KafkaProducer"
CONSUMER: Final = "barnabas.clients.consumer.KafkaConsumer"
ADMIN: Final = "barnabas.clients.admin.KafkaAdminClient"
TWINS: Final = {
    "barnabas.clients.producer.AsyncKafkaProducer": PRODUCER,
    "barnabas.clients.producer.MockProducer": PRODUCER,
    "barnabas.clients.consumer.AsyncKafkaConsumer": CONSUMER,
    "barnabas.clients.consumer.MockConsumer": CONSUMER,
    "barnabas.clients.admin.AsyncKafkaAdminClient": ADMIN,
}
"""Clients that have the methods of another one."""
WRAPPERS: Final = {"blocking": set[str](), "awaited": {"async"}}
"""The functions that make a method of an operation, and the labels of what they make."""
_NAME: Final = re.compile(r"(?<![`\[])`([A-Za-z_]\w*(?:\.[a-z_]\w*)?)(\(\))?`(?!`)")


class PublicApi(Extension):
    """Completes the docstrings of the public API when the package has been read."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        shown = {path: pkg[path.partition(".")[2]] for module in PAGES for path in names_of(pkg, module)}
        for path in (ADMIN, "barnabas.clients.admin.AsyncKafkaAdminClient"):
            show_operations(pkg, shown[path].final_target)
        for path, ordinary in TWINS.items():
            complete(shown[path].final_target, shown[ordinary].final_target, ordinary)
        links = {path.rpartition(".")[2]: path for path in shown}
        for path, found in shown.items():
            add_links(found.final_target if found.is_alias else found, path, links)


def names_of(pkg: Module, module: str) -> list[str]:
    """Returns the full names of what a module shows."""
    names = PAGES[module]
    if names is None:
        names = tuple(str(name) for name in pkg[module.partition(".")[2]].exports or ())
    return [f"{module}.{name}" for name in names]


def show_operations(pkg: Module, client: Class) -> None:
    """Replaces attributes that are made of operations by methods."""
    for name, member in list(client.members.items()):
        if not isinstance(member, Attribute) or not isinstance(member.value, ExprCall):
            continue
        wrapper = str(member.value.function)
        if wrapper in WRAPPERS:
            operation = pkg[f"clients.admin.{member.value.arguments[0]}"]
            self, *others = operation.parameters
            self = copy.copy(self)
            self.name, self.annotation = "self", None
            method = Function(
                name,
                parameters=Parameters(self, *others),
                returns=operation.returns,
                docstring=operation.docstring and copy.copy(operation.docstring),
                parent=client,
                lineno=member.lineno,
                endlineno=member.endlineno,
            )
            method.labels |= WRAPPERS[wrapper]
            client.set_member(name, method)


def complete(twin: Class, ordinary: Class, path: str) -> None:
    """Gives methods without a docstring that of the ordinary client."""
    for name, member in twin.members.items():
        known = ordinary.members.get(name)
        if name.startswith("_") or member.docstring is not None or known is None or known.docstring is None:
            continue
        assert isinstance(member, Object)
        link = f"As [`{ordinary.name}.{name}`][{path}.{name}]."
        member.docstring = Docstring(f"{known.docstring.value}\n\n{link}", parent=member)


def add_links(found: Object, path: str, links: dict[str, str]) -> None:
    """Makes names between backticks links, in the docstrings of a class and of its members."""
    members = found.members if isinstance(found, Class) else {}

    def replace(match: re.Match[str]) -> str:
        owner, _, member = match[1].partition(".")
        if owner in links:
            target = links[owner] if not member else f"{links[owner]}.{member}"
        elif owner in members and not member:
            target = f"{path}.{owner}"
        else:
            target = path
        return match[0] if target == path else f"[`{match[1]}{match[2] or ''}`][{target}]"

    for one in (found, *members.values()):
        if isinstance(one, Object) and one.docstring is not None:
            one.docstring = Docstring(_NAME.sub(replace, one.docstring.value), parent=one)
