"""A module of rows with ObjectIds, UUIDs, decimals and bytes, as a host installs it."""
