"""The demo: a service moves from MongoDB to PostgreSQL, with proof, on embedded servers."""
