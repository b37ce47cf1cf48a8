-- How often a range was found with a worker that is dead. Ranges of an earlier release begin with 0.
ALTER TABLE twinstore.ranges ADD COLUMN IF NOT EXISTS deaths BIGINT NOT NULL DEFAULT 0;
