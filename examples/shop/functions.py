"""Functions of the shop, named in pipeline.yaml."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.events import CloudEvent, Dead, EventBatch, Json

MANAGER_FROM = 1000


def enrich(batch: EventBatch) -> Iterator[CloudEvent | Dead]:
    """Count the things in a large order and say who looks at it."""
    for order in batch:
        data = order.attributes()
        lines = data.get("lines", [])
        if not isinstance(lines, list):
            yield Dead("lines is not a list")
            continue
        reviewer = "manager" if data["total"] >= MANAGER_FROM else "clerk"
        items = sum(line["count"] for line in lines)
        yield order.to_cloudevent().replace(data=Json({**data, "items": items, "reviewer": reviewer}))


def ship(batch: EventBatch) -> Iterator[CloudEvent]:
    """Send a parcel for an order that nobody needs to look at."""
    for order in batch:
        placed = order.attributes()["order"]
        parcel = Json({"order": placed, "parcel": f"p-{placed}", "carrier": "pigeon"})
        yield order.to_cloudevent().replace({"type": "com.shop.shipment.sent", "subject": placed}, parcel)
