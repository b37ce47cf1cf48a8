"""A module whose documents have ids of other forms, as a host installs it: parcels, scans, tickets, stubs."""
