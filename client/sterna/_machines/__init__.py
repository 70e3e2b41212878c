"""The SDK's rules, without asyncio: each machine takes events and returns frames and outcomes."""
