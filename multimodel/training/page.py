"""Pages as trees of elements, so that whatever comes from data is escaped."""

import base64
import mimetypes
import xml.etree.ElementTree as ElementTree

Element = ElementTree.Element


def element(tag, *children, **attributes):
    """An HTML or SVG element.

    Args:
        tag: its name.
        children: elements, and anything else as text; None is left out.
        attributes: `class_` stands for `class` and `aria_label` for `aria-label`; those that are None are left out.
    """
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    made = Element(tag, {names[name]: str(value) for name, value in attributes.items() if value is not None})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif child is not None and len(made):
            made[-1].tail = (made[-1].tail or "") + str(child)
        elif child is not None:
            made.text = (made.text or "") + str(child)
    return made


def page(title, css, *content):
    """A whole HTML document that needs no other file, as str."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", css),
    )
    html = element("html", head, element("body", *content), lang="en")
    return "<!DOCTYPE html>\n" + ElementTree.tostring(html, encoding="unicode", method="html")


def data_uri(file):
    """A file's content in place of its address."""
    kind = mimetypes.guess_type(file.name)[0]
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def note(*content):
    """A paragraph that explains, in a quieter colour."""
    return element("p", *content, class_="muted")


def table(caption, head, rows, words=1):
    """A table whose first column names its rows; it scrolls sideways by itself where it is too wide.

    Args:
        caption: for those who cannot see where it stands.
        head: names of the columns.
        rows: lists of cells, elements or text.
        words: how many columns, from the left, hold words; the others hold numbers.
    """
    kinds = ["words"] * words + ["number"] * (len(head) - words)

    def row(name, *cells):
        others = [element("td", cell, class_=kind) for cell, kind in zip(cells, kinds[1:], strict=True)]
        return element("tr", element("th", name, class_=kinds[0], scope="row"), *others)

    names = [element("th", name, scope="col", class_=kind) for name, kind in zip(head, kinds, strict=True)]
    made = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", *names)),
        element("tbody", *(row(*cells) for cells in rows)),
    )
    return scroller(caption, made)


def scroller(label, *content, **attributes):
    """A region that scrolls sideways, also by the keyboard."""
    return element("div", *content, class_="scroller", role="region", aria_label=label, tabindex=0, **attributes)
