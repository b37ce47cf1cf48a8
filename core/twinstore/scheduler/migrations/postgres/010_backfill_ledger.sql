-- The ledger of the backfill: jobs with their lease, and the ranges of keys they copy.
-- It belongs to no tenant. It changes in one transaction with the rows, so it lives beside them.

CREATE TABLE IF NOT EXISTS scheduler.backfill_jobs (
    job_id           TEXT COLLATE "C" PRIMARY KEY,
    settings         JSONB NOT NULL,
    state            TEXT COLLATE "C" NOT NULL CHECK (state IN ('running', 'complete')),
    generation       BIGINT NOT NULL CHECK (generation >= 1),
    as_of            TIMESTAMPTZ(3) NOT NULL,
    started_at       TIMESTAMPTZ(3) NOT NULL,
    position         TEXT COLLATE "C",
    lease_holder     TEXT COLLATE "C",
    lease_fence      BIGINT NOT NULL DEFAULT 0,
    lease_expires_at TIMESTAMPTZ
);

CREATE TABLE IF NOT EXISTS scheduler.backfill_ranges (
    job_id      TEXT COLLATE "C" NOT NULL REFERENCES scheduler.backfill_jobs (job_id) ON DELETE CASCADE,
    number      BIGINT NOT NULL CHECK (number >= 1),
    entity      TEXT COLLATE "C" NOT NULL,
    lower       TEXT[] COLLATE "C",
    upper       TEXT[] COLLATE "C",
    state       TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'copying', 'live')),
    tally       JSONB,
    position    TEXT COLLATE "C",
    finished_at TIMESTAMPTZ(3),
    PRIMARY KEY (job_id, number)
);

CREATE INDEX IF NOT EXISTS idx_backfill_ranges_entity
    ON scheduler.backfill_ranges (job_id, entity, number);

GRANT SELECT, INSERT, UPDATE, DELETE
    ON scheduler.backfill_jobs, scheduler.backfill_ranges
    TO :"application_role";
