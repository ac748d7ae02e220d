"""The asyncio client of the Pulsar binary protocol and its admin REST calls.

| module        | what is in it                                                                   |
|---------------|---------------------------------------------------------------------------------|
| client        | `PulsarClient`: opens what follows                                              |
| producer      | `Producer`: ready batches out, receipts in; access modes                        |
| reader        | `Reader`: entries from a place, without a cursor                                |
| consumer      | `Consumer`: entries of a durable subscription, acknowledged                     |
| subscription  | `Delivery`; what reader and consumer share                                      |
| session       | how each of them comes back when topic, connection or broker goes               |
| lookup, pool  | which broker owns a topic; one connection for each broker                       |
| connection    | handshake, requests, keep-alive, dispatch of frames                             |
| window, flow  | what a producer may have under way; how much a reader asks for                  |
| refusal       | the broker's error codes as rows                                                |
| admin         | `Admin`: the REST calls that the gateway needs                                  |

Only `penstock.errors` are raised: PulsarRefused when a broker says no, Unreachable when it says nothing,
WireError when it talks nonsense.
"""

from __future__ import annotations

from penstock.brokers.pulsar.admin import Admin, Creation
from penstock.brokers.pulsar.client import PulsarClient
from penstock.brokers.pulsar.consumer import Consumer, SubscriptionType
from penstock.brokers.pulsar.options import Options
from penstock.brokers.pulsar.producer import AccessMode, Producer
from penstock.brokers.pulsar.reader import Reader
from penstock.brokers.pulsar.refusal import is_denied, is_retriable
from penstock.brokers.pulsar.service_url import Broker, Host, ServiceUrl
from penstock.brokers.pulsar.subscription import Delivery
from penstock.brokers.pulsar.window import Receipt

__all__ = [
    "AccessMode",
    "Admin",
    "Broker",
    "Consumer",
    "Creation",
    "Delivery",
    "Host",
    "Options",
    "Producer",
    "PulsarClient",
    "Reader",
    "Receipt",
    "ServiceUrl",
    "SubscriptionType",
    "is_denied",
    "is_retriable",
]
