"""Calls to a model server, plain (`Client`) and for asyncio (`AsyncClient`).

    address.py       where a model is: the URL, the model, its version or label
    protocols/       what is said, without I/O: rest, rpc and kserve make calls of tensors, and
                     tensors of answers
    conversation.py  what is said when, without I/O: the signature first, then the request, again
                     where that may help
    sync.py aio.py   who sends it

A conversation is a generator: it yields a Call to send, or a Pause to wait, and gets the Answer. So
there is one set of rules, and two loops of a dozen lines that drive them.
"""
