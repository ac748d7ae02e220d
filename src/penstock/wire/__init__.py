"""The bytes of the two protocols: what travels on the sockets, with no socket in sight.

| module       | what is in it                                                            |
|--------------|--------------------------------------------------------------------------|
| kafka        | requests, answers, record batches, error codes of the Kafka protocol     |
| pulsar       | commands and entries of the Pulsar binary protocol                       |
| kernels      | compiled loops over bytes that both and the pipeline use                 |
| framing      | `FrameBuffer`: a stream cut into frames, in place                        |
| compression  | inflating what a stranger sent, never beyond a limit                     |
| buffer       | `Buffer`, `as_array`: bytes as kernels see them                          |
"""
