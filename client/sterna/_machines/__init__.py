"""The SDK's rules as machines without a loop, in the manner of h11: events go in, frames and outcomes come out as data.

Nothing here knows asyncio, grpc, a clock or a random number, nor anything of the SDK but errors, modes and what
encodes and decodes (the import contracts hold that). So each machine is tested by itself: walked against a model, and
through every short sequence of events. What waits, dials and writes are the faces above: `_lane` and `_lifeline`.
"""
