CREATE INDEX IF NOT EXISTS idx_ranges_finished
    ON twinstore.ranges (job_id, finished_at, number);
