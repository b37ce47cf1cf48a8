"""What asyncio costs: the facade over threads beside the clients' own asyncio, on one core."""
