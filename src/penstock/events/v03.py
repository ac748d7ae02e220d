"""CloudEvents 0.3 as a reader meets it: `schemaurl` and `datacontentencoding` become their 1.0 forms."""

from __future__ import annotations

from penstock.events.content import Data, Json, absent
from penstock.events.types import read_base64

__all__ = ["upgrade"]


def upgrade(attributes: dict[str, str], data: Data) -> tuple[dict[str, str], Data]:
    """Give attributes and data of a 0.3 event as 1.0; ValueError if the declared base64 is none."""
    renamed = {("dataschema" if name == "schemaurl" else name): text for name, text in attributes.items()}
    renamed["specversion"] = "1.0"
    # 0.3, datacontentencoding: "If set to base64, data is a base64 encoded string".
    if renamed.pop("datacontentencoding", "").lower() != "base64" or data is absent:
        return renamed, data
    text = data.value if isinstance(data, Json) else data
    if not isinstance(text, (str, bytes)):
        raise ValueError("datacontentencoding is base64, but data is not a string")
    return renamed, read_base64(text)
