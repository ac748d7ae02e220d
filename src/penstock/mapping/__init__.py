"""Kafka batches to Pulsar entries and back: whole batches, by kernels, without loss (spec 001).

| module       | what is in it                                                                       |
|--------------|-------------------------------------------------------------------------------------|
| produce      | `batch_to_entry`, `body_to_entry`: a RecordBatch, or records made here, to a PulsarBatch |
| fetch        | `entry_to_batch`: an Entry to a KafkaBatch or a verdict; `placeholder`, `hole` |
| undecodable  | `Undecodable`, `Reason`: chunked, encrypted, corrupt, marker, unnumbered; `OnUndecodable` |
| split        | `split_batch`, `slice_records`: records under other offset deltas                    |
| escape       | headers that are not text, as properties                                            |
| to_pulsar    | the kernel below `produce`                                                          |
| to_kafka     | the kernel below `fetch`                                                            |

The mapping is described in docs/gateway/mapping.md.
"""

from __future__ import annotations

from penstock.mapping.fetch import KafkaBatch, entry_to_batch, hole, placeholder
from penstock.mapping.produce import DEFAULT_HEADROOM, PulsarBatch, batch_to_entry, body_to_entry
from penstock.mapping.split import slice_records
from penstock.mapping.undecodable import OnUndecodable, Reason, Undecodable

__all__ = [
    "DEFAULT_HEADROOM",
    "KafkaBatch",
    "OnUndecodable",
    "PulsarBatch",
    "Reason",
    "Undecodable",
    "batch_to_entry",
    "body_to_entry",
    "entry_to_batch",
    "hole",
    "placeholder",
    "slice_records",
]
