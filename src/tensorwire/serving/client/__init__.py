"""Calls to a model server, plain (`Client`) and for asyncio (`AsyncClient`).

    address.py       where a model is: the URL, the model, its version or label
    protocols/       requests and answers, without I/O: rest, rpc and kserve make calls of tensors,
                     and tensors of answers
    call.py          which requests a call needs, without I/O: the signature first, then the
                     request, and retries
    sync.py aio.py   the two clients, which send the requests

A call is a generator: it yields a Call to send, or a Pause to wait, and gets the Answer. So there
is one set of rules, and two loops of a dozen lines that drive them.
"""
