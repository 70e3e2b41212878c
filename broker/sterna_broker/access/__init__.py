"""Who may come in, and that nobody listens: TLS on every port, users with hashed passwords, authentication.

`gate` puts the parts together and is what the rest of the broker speaks to. What a user may *do* is not decided here:
everybody who was let in may do everything, until there are permissions.
"""
