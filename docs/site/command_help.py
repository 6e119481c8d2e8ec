"""The directive `command-help`: what every command prints with `--help`."""

from __future__ import annotations

import argparse

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from distlab import cli


class CommandHelp(SphinxDirective):
    """One section for each command."""

    def run(self) -> list[nodes.Node]:
        """Returns the sections."""
        parser = cli._parser()
        (commands,) = (
            action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
        )
        return [_section(name, command) for name, command in commands.choices.items()]


def _section(name: str, command: argparse.ArgumentParser) -> nodes.section:
    title = f"distlab {name}"
    text = command.format_help()
    return nodes.section(
        "",
        nodes.title(title, title),
        nodes.literal_block(text, text, language="text", classes=["command-help"]),
        ids=[title.replace(" ", "-")],
        names=[title],
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
