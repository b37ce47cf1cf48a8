"""A module whose documents have generated ids, as a host installs it: parcels and their scans."""
