-- The ledger of copies in a schema of its own: jobs with their lease, the processes that work on them, the
-- ranges of keys they copy, and what could not be moved. It belongs to no tenant. It changes in one transaction
-- with the rows that are copied, so it lives in the target, beside them.

DO $$
BEGIN
    -- CREATE SCHEMA IF NOT EXISTS needs the right to create even where the schema exists.
    IF to_regnamespace('twinstore') IS NULL THEN
        CREATE SCHEMA twinstore;
    END IF;
END
$$;

CREATE TABLE IF NOT EXISTS twinstore.jobs (
    id          TEXT COLLATE "C" PRIMARY KEY,
    settings    JSONB NOT NULL,
    state       TEXT COLLATE "C" NOT NULL CHECK (state IN ('running', 'complete')),
    generation  BIGINT NOT NULL,
    as_of       TIMESTAMPTZ(3) NOT NULL,
    started_at  TIMESTAMPTZ(3) NOT NULL,
    position    TEXT COLLATE "C",
    planned     BIGINT NOT NULL,
    holder      TEXT COLLATE "C",
    fence       BIGINT NOT NULL,
    expires_at  TIMESTAMPTZ(3),
    stop        BOOLEAN NOT NULL,
    stop_reason TEXT COLLATE "C",
    max_rate    BIGINT,
    row_version BIGINT NOT NULL DEFAULT 1
);

CREATE TABLE IF NOT EXISTS twinstore.workers (
    job_id      TEXT COLLATE "C" NOT NULL,
    worker      TEXT COLLATE "C" NOT NULL,
    expires_at  TIMESTAMPTZ(3) NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (job_id, worker)
);

CREATE TABLE IF NOT EXISTS twinstore.ranges (
    job_id      TEXT COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL,
    entity      TEXT COLLATE "C" NOT NULL,
    lower       TEXT COLLATE "C",
    upper       TEXT COLLATE "C",
    state       TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'copying', 'live', 'failed')),
    worker      TEXT COLLATE "C",
    fence       BIGINT NOT NULL,
    attempts    BIGINT NOT NULL,
    tally       JSONB NOT NULL,
    position    TEXT COLLATE "C",
    finished_at TIMESTAMPTZ(3),
    row_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (job_id, number)
);

CREATE INDEX IF NOT EXISTS idx_ranges_entity_state
    ON twinstore.ranges (job_id, entity, state, number);

CREATE TABLE IF NOT EXISTS twinstore.quarantine (
    job_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    line   BIGINT NOT NULL,
    part   BIGINT NOT NULL,
    entity TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    key    TEXT COLLATE "C",
    reason TEXT COLLATE "C" NOT NULL,
    raw    TEXT COLLATE "C",
    PRIMARY KEY (job_id, number, line, part)
);

CREATE TABLE IF NOT EXISTS twinstore.conflicts (
    job_id      TEXT COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL,
    line        BIGINT NOT NULL,
    entity      TEXT COLLATE "C" NOT NULL,
    tenant      TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C" NOT NULL,
    overwritten BOOLEAN NOT NULL,
    PRIMARY KEY (job_id, number, line)
);

GRANT USAGE ON SCHEMA twinstore TO :"application_role";
GRANT SELECT, INSERT, UPDATE, DELETE
    ON twinstore.jobs, twinstore.workers, twinstore.ranges, twinstore.quarantine, twinstore.conflicts
    TO :"application_role";
GRANT SELECT ON twinstore.schema_migrations TO :"application_role";

-- A ledger that an earlier version kept in schema scheduler is carried over once. Its ranges in progress are open
-- again, because no worker of this version holds them.
DO $$
BEGIN
    IF to_regclass('scheduler.backfill_jobs') IS NULL OR to_regclass('scheduler.backfill_ranges') IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO twinstore.jobs (id, settings, state, generation, as_of, started_at, position, planned,
                                holder, fence, expires_at, stop)
    SELECT j.job_id, j.settings, j.state, j.generation, j.as_of, j.started_at, j.position,
           (SELECT coalesce(max(r.number), 0) FROM scheduler.backfill_ranges r WHERE r.job_id = j.job_id),
           j.lease_holder, j.lease_fence, j.lease_expires_at, false
      FROM scheduler.backfill_jobs j
    ON CONFLICT DO NOTHING;
    INSERT INTO twinstore.ranges (job_id, number, entity, lower, upper, state, fence, attempts, tally,
                                  position, finished_at)
    SELECT r.job_id, r.number, r.entity, array_to_json(r.lower)::text, array_to_json(r.upper)::text,
           CASE r.state WHEN 'copying' THEN 'pending' ELSE r.state END, 0, 0,
           CASE r.state WHEN 'live' THEN coalesce((
               SELECT jsonb_agg(jsonb_build_object('kind', kind.key, 'label', tenant.key, 'count', tenant.value)
                                ORDER BY kind.key, tenant.key)
                 FROM jsonb_each(r.tally) kind, jsonb_each(kind.value) tenant), '[]') ELSE '[]' END,
           r.position, CASE r.state WHEN 'live' THEN r.finished_at END
      FROM scheduler.backfill_ranges r
    ON CONFLICT DO NOTHING;
END
$$;
