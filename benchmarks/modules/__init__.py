"""How long whole modules take: loaded through their services, copied and verified entity by entity."""
