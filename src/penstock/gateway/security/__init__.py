"""Who a Kafka client is, and over what it talks.

| module      | what is in it                                                                    |
|-------------|----------------------------------------------------------------------------------|
| protocols   | what a listener speaks: TLS or not, SASL or not                                  |
| certificates | the certificate of the TLS listeners, read again when its files change          |
| mechanisms  | PLAIN and OAUTHBEARER: the bytes of a client become credentials                  |
| tokens      | what a token tells of itself: a principal, and when it ends                      |
| session     | the steps of one connection from a stranger to a principal                       |
| stamp       | the header `source-identity` on produced records                                 |

Nothing here decides what a principal may do: Pulsar does, asked with the client's own credentials.
"""

from __future__ import annotations
