"""What can be wrong with the access settings."""


class AccessError(ValueError):
    """Certificates or users that cannot be used; the text names the flag and the file, and holds no secret."""
