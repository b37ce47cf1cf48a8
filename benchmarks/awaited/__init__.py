"""What asyncio costs: the facade over threads compared with the clients' own asyncio, on one core."""
