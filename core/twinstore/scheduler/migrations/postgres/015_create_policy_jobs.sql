CREATE TABLE IF NOT EXISTS scheduler.policy_jobs (
    id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    policy_id TEXT COLLATE "C" NOT NULL,
    policy_version INTEGER,
    mode SMALLINT NOT NULL,
    priority SMALLINT NOT NULL,
    run_id TEXT COLLATE "C",
    correlation_id TEXT COLLATE "C",
    status SMALLINT NOT NULL,
    attempt_count INTEGER NOT NULL,
    created_at TIMESTAMPTZ(3) NOT NULL,
    updated_at TIMESTAMPTZ(3) NOT NULL,
    available_at TIMESTAMPTZ(3) NOT NULL,
    lease_owner TEXT COLLATE "C",
    lease_expires_at TIMESTAMPTZ(3),
    payload JSONB NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT policy_jobs_pkey PRIMARY KEY (id),
    CONSTRAINT policy_jobs_mode_check CHECK (mode BETWEEN 0 AND 2),
    CONSTRAINT policy_jobs_priority_check CHECK (priority BETWEEN 0 AND 2),
    CONSTRAINT policy_jobs_status_check CHECK (status BETWEEN 0 AND 5)
);

CREATE UNIQUE INDEX IF NOT EXISTS uq_policy_jobs_tenant_run
    ON scheduler.policy_jobs (tenant_id, run_id) WHERE run_id IS NOT NULL;

CREATE INDEX IF NOT EXISTS idx_policy_jobs_tenant_status
    ON scheduler.policy_jobs (tenant_id, status, created_at DESC, id);

CREATE INDEX IF NOT EXISTS idx_policy_jobs_tenant_created
    ON scheduler.policy_jobs (tenant_id, created_at DESC, id);

CREATE INDEX IF NOT EXISTS idx_policy_jobs_tenant_policy
    ON scheduler.policy_jobs (tenant_id, policy_id, created_at DESC, id);

CREATE INDEX IF NOT EXISTS idx_policy_jobs_available
    ON scheduler.policy_jobs (priority DESC, available_at, created_at, id) WHERE status IN (0);

CREATE INDEX IF NOT EXISTS idx_policy_jobs_tenant_available
    ON scheduler.policy_jobs (tenant_id, priority DESC, available_at, created_at, id) WHERE status IN (0);

CREATE INDEX IF NOT EXISTS idx_policy_jobs_lease
    ON scheduler.policy_jobs (lease_expires_at) WHERE status IN (1);

ALTER TABLE scheduler.policy_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.policy_jobs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.policy_jobs;
CREATE POLICY tenant_isolation ON scheduler.policy_jobs
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.policy_jobs TO :"application_role";
