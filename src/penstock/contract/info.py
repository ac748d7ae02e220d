"""What a document says about itself: Info, Contact, License, Tag, External Documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.contract.readers import list_of, part, text, url
from penstock.contract.shape import Part, spec

__all__ = ["Contact", "ExternalDocs", "Info", "License", "Tag", "external_docs", "tags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact(Part):
    """Contact Object."""

    SPEC_NAME: ClassVar[str] = "a Contact Object"
    name: str | None = spec(text)
    url: str | None = spec(url)
    email: str | None = spec(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class License(Part):
    """License Object."""

    SPEC_NAME: ClassVar[str] = "a License Object"
    name: str | None = spec(text, required=True)
    url: str | None = spec(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDocs(Part):
    """External Documentation Object."""

    SPEC_NAME: ClassVar[str] = "an External Documentation Object"
    description: str | None = spec(text)
    url: str | None = spec(url, required=True)


external_docs = part(ExternalDocs, "externalDocs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag(Part):
    """Tag Object."""

    SPEC_NAME: ClassVar[str] = "a Tag Object"
    name: str | None = spec(text, required=True)
    description: str | None = spec(text)
    external_docs: ExternalDocs | None = spec(external_docs)


tags = list_of(part(Tag, "tags"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Info(Part):
    """Info Object."""

    SPEC_NAME: ClassVar[str] = "the Info Object"
    title: str = spec(text, required=True, default="")
    version: str = spec(text, required=True, default="")
    description: str | None = spec(text)
    terms_of_service: str | None = spec(url)
    contact: Contact | None = spec(part(Contact))
    license: License | None = spec(part(License))
    tags: tuple[Tag, ...] = spec(tags, default=())
    external_docs: ExternalDocs | None = spec(external_docs)
