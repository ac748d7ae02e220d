"""The hot answers of the Kafka protocol, written by hand for every version that Kafka 4.3.1 serves.

| module        | encoders                                        |
|---------------|-------------------------------------------------|
| produce       | `encode_produce`                                |
| fetch         | `encode_fetch`, which gives pieces              |
| metadata      | `encode_metadata`                               |
| api_versions  | `encode_api_versions`                           |
| list_offsets  | `encode_list_offsets`                           |
| groups        | `encode_heartbeat`, `encode_offset_commit`, `encode_join_group`, `encode_sync_group` |
| leaders       | `NodeEndpoint`: KIP-951 in Produce and Fetch    |
"""
