CREATE TABLE IF NOT EXISTS scheduler.execution_logs (
    tenant_id TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    logged_at TIMESTAMPTZ(3) NOT NULL,
    level SMALLINT NOT NULL,
    logger TEXT COLLATE "C",
    message TEXT COLLATE "C" NOT NULL,
    data JSONB NOT NULL,
    CONSTRAINT execution_logs_pkey PRIMARY KEY (run_id, sequence),
    CONSTRAINT execution_logs_level_check CHECK (level BETWEEN 0 AND 4),
    CONSTRAINT execution_logs_run_id_fkey FOREIGN KEY (run_id) REFERENCES scheduler.runs (id) ON DELETE CASCADE
);

CREATE INDEX IF NOT EXISTS idx_execution_logs_tenant_run
    ON scheduler.execution_logs (tenant_id, run_id, sequence);

CREATE INDEX IF NOT EXISTS idx_execution_logs_logged
    ON scheduler.execution_logs (logged_at, run_id, sequence);

ALTER TABLE scheduler.execution_logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.execution_logs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.execution_logs;
CREATE POLICY tenant_isolation ON scheduler.execution_logs
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, DELETE ON scheduler.execution_logs TO :"application_role";
