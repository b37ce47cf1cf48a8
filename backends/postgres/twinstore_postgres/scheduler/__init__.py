"""The scheduler on PostgreSQL: one file per entity, named as in the contracts."""
