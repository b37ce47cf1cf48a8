-- V001_CreateSchedulerSchema: the tables and indexes of the scheduler.
-- TEXT sorts in byte order (COLLATE "C"), as the other store does; instants have milliseconds.
-- Values are written by the library: there are no triggers, and defaults only where a bulk load needs them.

DO $$
BEGIN
    -- CREATE SCHEMA IF NOT EXISTS needs the right to create even where the schema exists.
    IF to_regnamespace('scheduler') IS NULL THEN
        CREATE SCHEMA scheduler;
    END IF;
END
$$;

CREATE TABLE IF NOT EXISTS scheduler.schedules (
    id             TEXT COLLATE "C" PRIMARY KEY,
    tenant_id      TEXT COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    name           TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    when_cron      TEXT COLLATE "C" NOT NULL CHECK (when_cron <> ''),
    schema_version TEXT COLLATE "C" NOT NULL CHECK (schema_version <> ''),
    created_by     TEXT COLLATE "C" NOT NULL CHECK (created_by <> ''),
    updated_by     TEXT COLLATE "C" NOT NULL CHECK (updated_by <> ''),
    enabled        BOOLEAN NOT NULL DEFAULT TRUE,
    timezone       TEXT COLLATE "C" NOT NULL DEFAULT 'UTC',
    mode           SMALLINT NOT NULL DEFAULT 0 CHECK (mode BETWEEN 0 AND 1),
    selection      JSONB NOT NULL,
    only_if        JSONB NOT NULL DEFAULT '{}',
    notify         JSONB NOT NULL DEFAULT '{}',
    limits         JSONB NOT NULL DEFAULT '{}',
    subscribers    TEXT[] COLLATE "C" NOT NULL DEFAULT '{}',
    created_at     TIMESTAMPTZ(3) NOT NULL,
    updated_at     TIMESTAMPTZ(3) NOT NULL,
    deleted_at     TIMESTAMPTZ(3),
    deleted_by     TEXT COLLATE "C",
    CONSTRAINT schedules_updated_after_created CHECK (updated_at >= created_at),
    CONSTRAINT schedules_deletion_markers CHECK ((deleted_at IS NULL) = (deleted_by IS NULL)),
    CONSTRAINT schedules_deleted_is_disabled CHECK (deleted_at IS NULL OR NOT enabled)
);

CREATE UNIQUE INDEX IF NOT EXISTS uq_schedules_tenant_name
    ON scheduler.schedules (tenant_id, name) WHERE deleted_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_schedules_tenant_enabled
    ON scheduler.schedules (tenant_id, enabled) WHERE deleted_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_schedules_active
    ON scheduler.schedules (tenant_id, id) WHERE enabled AND deleted_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_schedules_when_cron
    ON scheduler.schedules (when_cron);

CREATE TABLE IF NOT EXISTS scheduler.triggers (
    id            TEXT COLLATE "C" PRIMARY KEY,
    tenant_id     TEXT COLLATE "C" NOT NULL,
    schedule_id   TEXT COLLATE "C" NOT NULL
                  CONSTRAINT uq_triggers_schedule UNIQUE
                  REFERENCES scheduler.schedules (id) ON DELETE CASCADE,
    when_cron     TEXT COLLATE "C" NOT NULL,
    timezone      TEXT COLLATE "C" NOT NULL,
    enabled       BOOLEAN NOT NULL,
    next_fire_at  TIMESTAMPTZ(3),
    last_fire_at  TIMESTAMPTZ(3),
    last_run_id   TEXT COLLATE "C",
    fire_count    BIGINT NOT NULL DEFAULT 0,
    misfire_count BIGINT NOT NULL DEFAULT 0,
    created_at    TIMESTAMPTZ(3) NOT NULL,
    updated_at    TIMESTAMPTZ(3) NOT NULL
);

CREATE INDEX IF NOT EXISTS idx_triggers_due
    ON scheduler.triggers (next_fire_at, tenant_id, id) WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_triggers_tenant_next
    ON scheduler.triggers (tenant_id, next_fire_at NULLS FIRST, id);

-- schedule_id has no foreign key: history outlives everything.
CREATE TABLE IF NOT EXISTS scheduler.runs (
    id             TEXT COLLATE "C" PRIMARY KEY,
    tenant_id      TEXT COLLATE "C" NOT NULL,
    schema_version TEXT COLLATE "C" NOT NULL,
    schedule_id    TEXT COLLATE "C",
    error          TEXT COLLATE "C",
    retry_of       TEXT COLLATE "C",
    trigger        SMALLINT NOT NULL CHECK (trigger BETWEEN 0 AND 5),
    state          SMALLINT NOT NULL CHECK (state BETWEEN 0 AND 5),
    stats          JSONB NOT NULL,
    reason         JSONB,
    deltas         JSONB NOT NULL DEFAULT '[]',
    created_at     TIMESTAMPTZ(3) NOT NULL,
    started_at     TIMESTAMPTZ(3),
    finished_at    TIMESTAMPTZ(3),
    row_version    BIGINT NOT NULL DEFAULT 1
);

CREATE INDEX IF NOT EXISTS idx_runs_tenant_created
    ON scheduler.runs (tenant_id, created_at DESC, id);
CREATE INDEX IF NOT EXISTS idx_runs_tenant_schedule_created
    ON scheduler.runs (tenant_id, schedule_id, created_at DESC, id);
CREATE INDEX IF NOT EXISTS idx_runs_state_created
    ON scheduler.runs (state, created_at, id);
CREATE INDEX IF NOT EXISTS idx_runs_pending
    ON scheduler.runs (tenant_id, created_at, id) WHERE state IN (0, 1);
CREATE INDEX IF NOT EXISTS idx_runs_finished
    ON scheduler.runs (finished_at, id) WHERE finished_at IS NOT NULL;

-- payload is the whole impact set; the other columns are taken from it. run_id has no foreign key.
CREATE TABLE IF NOT EXISTS scheduler.impact_snapshots (
    snapshot_id     TEXT COLLATE "C" PRIMARY KEY,
    tenant_id       TEXT COLLATE "C" NOT NULL,
    run_id          TEXT COLLATE "C",
    selector_digest TEXT COLLATE "C" NOT NULL,
    content_digest  TEXT COLLATE "C" NOT NULL,
    payload         JSONB NOT NULL,
    image_count     INTEGER NOT NULL CHECK (image_count >= 0),
    generated_at    TIMESTAMPTZ(3) NOT NULL
);

CREATE INDEX IF NOT EXISTS idx_impact_snapshots_selector
    ON scheduler.impact_snapshots (tenant_id, selector_digest, generated_at DESC, snapshot_id);
CREATE INDEX IF NOT EXISTS idx_impact_snapshots_run
    ON scheduler.impact_snapshots (tenant_id, run_id, generated_at DESC, snapshot_id);
CREATE INDEX IF NOT EXISTS idx_impact_snapshots_tenant
    ON scheduler.impact_snapshots (tenant_id, generated_at DESC, snapshot_id);
CREATE INDEX IF NOT EXISTS idx_impact_snapshots_generated
    ON scheduler.impact_snapshots (generated_at, snapshot_id);

CREATE TABLE IF NOT EXISTS scheduler.audit (
    id             TEXT COLLATE "C" PRIMARY KEY,
    tenant_id      TEXT COLLATE "C" NOT NULL,
    category       TEXT COLLATE "C" NOT NULL,
    action         TEXT COLLATE "C" NOT NULL,
    occurred_at    TIMESTAMPTZ(3) NOT NULL,
    actor          JSONB NOT NULL,
    entity_id      TEXT COLLATE "C",
    schedule_id    TEXT COLLATE "C",
    run_id         TEXT COLLATE "C",
    correlation_id TEXT COLLATE "C",
    metadata       JSONB NOT NULL DEFAULT '{}',
    message        TEXT COLLATE "C"
);

CREATE INDEX IF NOT EXISTS idx_audit_tenant_occurred
    ON scheduler.audit (tenant_id, occurred_at DESC, id);
CREATE INDEX IF NOT EXISTS idx_audit_tenant_schedule
    ON scheduler.audit (tenant_id, schedule_id, occurred_at DESC, id);
CREATE INDEX IF NOT EXISTS idx_audit_tenant_run
    ON scheduler.audit (tenant_id, run_id, occurred_at DESC, id);
CREATE INDEX IF NOT EXISTS idx_audit_tenant_category
    ON scheduler.audit (tenant_id, category, occurred_at DESC, id);

CREATE TABLE IF NOT EXISTS scheduler.run_summaries (
    tenant_id   TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL,
    updated_at  TIMESTAMPTZ(3) NOT NULL,
    last_run    JSONB,
    recent      JSONB NOT NULL,
    counters    JSONB NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, schedule_id)
);
