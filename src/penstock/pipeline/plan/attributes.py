"""What a route may set an attribute to: the rules of core, cut to what every engine can test on a text.

`source` and `dataschema` have a grammar; an event for which the text does not follow it is rejected.
`time` is set to a moment, so its text is always legal.
"""

from __future__ import annotations

from penstock.events.rules import NON_EMPTY, REQUIRED, is_text, is_uri, is_uri_reference

__all__ = ["GRAMMAR", "is_legal", "may_be_missing"]

GRAMMAR = {"source": is_uri_reference, "dataschema": is_uri}


def is_legal(attribute: str, text: str) -> bool:
    """Tell whether an attribute may have this text.

    >>> is_legal("subject", "a"), is_legal("subject", ""), is_legal("source", "a b")
    (True, False, False)
    """
    if (not text and attribute in NON_EMPTY) or not is_text(text):
        return False
    return attribute not in GRAMMAR or GRAMMAR[attribute](text)


def may_be_missing(attribute: str) -> bool:
    """Tell whether an event can do without the attribute."""
    return attribute not in REQUIRED
