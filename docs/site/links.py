"""Links from code that names something public to the reference."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import find_pending_xref_condition, make_refnode

_HOMES = ("distlab", "distlab.data", "distlab.errors", "distlab.events", "distlab.experimental")
_CODE = re.compile(r"(?:dl|distlab|distlab_dashboard)\.[\w.]+")


class PublicNames(SphinxPostTransform):
    """Links names to the reference before Sphinx guesses among equal last parts."""

    default_priority = 5

    def run(self, **_kwargs: object) -> None:
        """Replaces references in docstrings and signatures, and code such as `dl.Run` in pages."""
        for xref in list(self.document.findall(pending_xref)):
            if xref["refdomain"] == "py":
                xref.attributes.pop("refspecific", None)  # asks for a guess
                shown = find_pending_xref_condition(xref, "resolved") or xref
                within = (xref.get("py:module"), xref.get("py:class"))
                self._link(xref, xref["reftarget"], ".".join(filter(None, within)), shown[0])
        for code in list(self.document.findall(nodes.literal)):
            name = code.astext().partition("(")[0]
            linked = isinstance(code.parent, nodes.reference | pending_xref)
            if _CODE.fullmatch(name) and not linked:
                self._link(code, name, "", code.deepcopy())

    def _link(self, node: nodes.Element, name: str, within: str, shown: nodes.Node) -> None:
        """Replaces a node by a link, where the reference has the name."""
        homes = [within, within.rpartition(".")[0], *_HOMES]
        names = [re.sub(r"^dl\.", "distlab.", name), *(f"{home}.{name}" for home in homes)]
        objects = self.env.domains.python_domain.objects
        for full in names:
            if (entry := objects.get(full)) is not None:
                page = self.env.docname
                link = make_refnode(
                    self.app.builder, page, entry.docname, entry.node_id, shown, full
                )
                node.replace_self(link)
                return


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the links."""
    app.add_post_transform(PublicNames)
    return {"parallel_read_safe": True}
