"""Directives that write what the code says: errors, options, commands.

``{headpond-errors}``, ``{headpond-options}``, ``{headpond-command} NAME``.
"""

import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_MADE_BY_US = ("Engine", "Ragged")  # classes that users make themselves


class Errors(SphinxDirective):
    """The table of error kinds that ``headpond explain`` prints."""

    def run(self) -> list[nodes.Node]:
        from headpond import _core

        lines = []
        for code, python_class, summary, advice in _core.error_kinds():
            lines += [f"`{code}` {{py:exc}}`headpond.{python_class}`"]
            lines += [f": {summary} {advice}", ""]
        return self.parse_text_to_nodes("\n".join(lines))


def options() -> Iterator[tuple[str, str]]:
    """The engine's options, each with what its docstring says of it.

    Raises:
        ValueError: An option without a text, or a text without an option.
    """
    from headpond import engine

    arguments = inspect.cleandoc(engine.Engine.__doc__ or "").partition("Args:\n")[2]
    arguments = arguments.partition("\n\n")[0]
    texts = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE))
    if set(texts) != set(engine._OPTIONS):
        raise ValueError(f"documented are {sorted(texts)}, there are {sorted(engine._OPTIONS)}")
    for name in engine._OPTIONS:
        yield name, " ".join(texts[name].split())


class Options(SphinxDirective):
    """The engine's options and their environment variables."""

    def run(self) -> list[nodes.Node]:
        lines = []
        for name, text in options():
            lines += [f"`{name}` `HEADPOND_{name.upper()}`", f": {_markdown(text)}", ""]
        return self.parse_text_to_nodes("\n".join(lines))


def _markdown(text: str) -> str:
    """Roles of reStructuredText in MyST's spelling."""
    return re.sub(r":(\w+):`(\w+)`", r"{py:\1}`headpond.\2`", text)


class Command(SphinxDirective):
    """What ``headpond COMMAND --help`` prints."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        from headpond.cli import make_parser

        os.environ["COLUMNS"] = "88"  # argparse wraps at it
        commands = make_parser()._subparsers
        assert commands is not None
        (choices,) = (action.choices for action in commands._group_actions)
        text = choices[self.arguments[0]].format_help()  # type: ignore[index]
        return [nodes.literal_block(text, text, language="text")]


def hide_made_by_others(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str
) -> tuple[str, str | None] | None:
    """No constructor for classes that only headpond makes."""
    if what in ("class", "exception") and name.rpartition(".")[2] not in _MADE_BY_US:
        return "", None
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("headpond-errors", Errors)
    app.add_directive("headpond-options", Options)
    app.add_directive("headpond-command", Command)
    app.connect("autodoc-process-signature", hide_made_by_others)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
