CREATE TABLE IF NOT EXISTS scheduler.locks (
    lock_key TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    holder_id TEXT COLLATE "C" NOT NULL,
    acquired_at TIMESTAMPTZ(3) NOT NULL,
    expires_at TIMESTAMPTZ(3) NOT NULL,
    renewed_at TIMESTAMPTZ(3),
    fence BIGINT NOT NULL,
    metadata JSONB NOT NULL,
    CONSTRAINT locks_pkey PRIMARY KEY (tenant_id, lock_key)
);

CREATE INDEX IF NOT EXISTS idx_locks_expires
    ON scheduler.locks (expires_at);

ALTER TABLE scheduler.locks ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.locks FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.locks;
CREATE POLICY tenant_isolation ON scheduler.locks
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.locks TO :"application_role";
