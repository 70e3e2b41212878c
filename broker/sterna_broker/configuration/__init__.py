"""What the broker is told to be: where manifests come from, what they mean together, and how they change while it runs.

`source` reads, `applied` keeps what administrators changed, `objects` is the whole as an immutable set, `inheritance`
and `checks` are its rules, `compiling` turns it into what the engine takes, and `live` is the one that changes it.
Everything but `live` decides without touching engine or network.
"""
