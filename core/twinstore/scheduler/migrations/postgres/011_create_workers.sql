CREATE TABLE IF NOT EXISTS scheduler.workers (
    id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C",
    hostname TEXT COLLATE "C" NOT NULL,
    process_id INTEGER,
    job_types TEXT[] COLLATE "C" NOT NULL,
    max_concurrent_jobs INTEGER NOT NULL,
    current_jobs INTEGER NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    last_heartbeat_at TIMESTAMPTZ(3) NOT NULL,
    registered_at TIMESTAMPTZ(3) NOT NULL,
    metadata JSONB NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT workers_pkey PRIMARY KEY (id),
    CONSTRAINT workers_status_check CHECK (status IN ('active', 'draining', 'stopped', 'dead'))
);

CREATE INDEX IF NOT EXISTS idx_workers_status_heartbeat
    ON scheduler.workers (status, last_heartbeat_at, id);

ALTER TABLE scheduler.workers ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.workers FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.workers;
CREATE POLICY tenant_isolation ON scheduler.workers
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id IS NOT DISTINCT FROM (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id IS NOT DISTINCT FROM (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.workers TO :"application_role";
