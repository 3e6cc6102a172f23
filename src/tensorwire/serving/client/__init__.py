"""Clients for model servers: `Client` for threads and `AsyncClient` for asyncio.

    address.py       the address of a model: URL, name, version or label
    protocols/       REST, gRPC and KServe without I/O: requests from tensors, tensors from answers
    call.py          the requests of a call, without I/O: signature, inference, retries
    sync.py aio.py   the two clients, which send the requests

A call is a generator: it yields a Call to send, or a Pause to wait for, and gets the Answer. So the
logic is written once, and the two clients only drive it.
"""
