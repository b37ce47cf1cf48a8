-- Graph jobs and their events. Tables, columns, defaults, the foreign key and the indexes named first are the
-- customer's; the collations, checks and further indexes are ours. Instants keep six digits, of which the
-- library writes three.

CREATE TABLE IF NOT EXISTS scheduler.graph_jobs (
    id             UUID NOT NULL,
    tenant_id      TEXT COLLATE "C" NOT NULL,
    type           SMALLINT NOT NULL,
    status         SMALLINT NOT NULL,
    payload        JSONB NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    correlation_id TEXT COLLATE "C",
    CONSTRAINT graph_jobs_pkey PRIMARY KEY (id),
    CONSTRAINT graph_jobs_type_check CHECK (type BETWEEN 0 AND 1),
    CONSTRAINT graph_jobs_status_check CHECK (status BETWEEN 0 AND 5)
);

CREATE INDEX IF NOT EXISTS idx_graph_jobs_tenant_status
    ON scheduler.graph_jobs (tenant_id, status, created_at DESC);
CREATE INDEX IF NOT EXISTS idx_graph_jobs_tenant_type_status
    ON scheduler.graph_jobs (tenant_id, type, status, created_at DESC);
-- list_build_jobs and list_overlay_jobs without a status.
CREATE INDEX IF NOT EXISTS idx_graph_jobs_tenant_type_created
    ON scheduler.graph_jobs (tenant_id, type, created_at DESC, id);
-- list_jobs without type and status.
CREATE INDEX IF NOT EXISTS idx_graph_jobs_tenant_created
    ON scheduler.graph_jobs (tenant_id, created_at DESC, id);

CREATE TABLE IF NOT EXISTS scheduler.graph_job_events (
    id         BIGSERIAL NOT NULL,
    job_id     UUID NOT NULL,
    tenant_id  TEXT COLLATE "C" NOT NULL,
    status     SMALLINT NOT NULL,
    payload    JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    CONSTRAINT graph_job_events_pkey PRIMARY KEY (id),
    CONSTRAINT graph_job_events_job_id_fkey FOREIGN KEY (job_id)
        REFERENCES scheduler.graph_jobs (id) ON DELETE CASCADE,
    CONSTRAINT graph_job_events_status_check CHECK (status BETWEEN 0 AND 5)
);

CREATE INDEX IF NOT EXISTS idx_graph_job_events_job
    ON scheduler.graph_job_events (job_id, created_at DESC);
-- append_event: an event has its id once, and copies go along it in the order of every other store.
CREATE UNIQUE INDEX IF NOT EXISTS uq_graph_job_events_event
    ON scheduler.graph_job_events ((payload->>'eventId') COLLATE "C");

ALTER TABLE scheduler.graph_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.graph_jobs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.graph_jobs;
CREATE POLICY tenant_isolation ON scheduler.graph_jobs
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

ALTER TABLE scheduler.graph_job_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.graph_job_events FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.graph_job_events;
CREATE POLICY tenant_isolation ON scheduler.graph_job_events
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE
    ON scheduler.graph_jobs, scheduler.graph_job_events
    TO :"application_role";
-- UPDATE too, because a copy lets new events be numbered above those that it brought.
GRANT USAGE, UPDATE ON SEQUENCE scheduler.graph_job_events_id_seq TO :"application_role";
