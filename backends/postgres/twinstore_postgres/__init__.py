"""The PostgreSQL driver of twinstore: psycopg 3, row-level security, plain SQL migrations."""
