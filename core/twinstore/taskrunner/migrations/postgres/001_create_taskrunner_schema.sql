CREATE TABLE IF NOT EXISTS taskrunner.pack_runs (
    run_id TEXT COLLATE "C" NOT NULL,
    plan_hash TEXT COLLATE "C" NOT NULL,
    plan JSONB NOT NULL,
    failure_policy JSONB NOT NULL,
    requested_at TIMESTAMPTZ(3) NOT NULL,
    created_at TIMESTAMPTZ(3) NOT NULL,
    updated_at TIMESTAMPTZ(3) NOT NULL,
    steps JSONB NOT NULL,
    tenant_id TEXT COLLATE "C",
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT pack_runs_pkey PRIMARY KEY (run_id),
    CONSTRAINT pack_runs_plan_hash_check CHECK (plan_hash <> '')
);

CREATE INDEX IF NOT EXISTS idx_pack_runs_updated
    ON taskrunner.pack_runs (updated_at DESC, run_id);

CREATE INDEX IF NOT EXISTS idx_pack_runs_tenant_updated
    ON taskrunner.pack_runs (tenant_id, updated_at DESC, run_id) WHERE tenant_id IS NOT NULL;

CREATE INDEX IF NOT EXISTS idx_pack_runs_no_tenant_updated
    ON taskrunner.pack_runs (updated_at DESC, run_id) WHERE tenant_id IS NULL;

CREATE TABLE IF NOT EXISTS taskrunner.pack_run_logs (
    run_id TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    timestamp TIMESTAMPTZ(3) NOT NULL,
    level TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    step_id TEXT COLLATE "C",
    metadata JSONB NOT NULL,
    CONSTRAINT pack_run_logs_pkey PRIMARY KEY (run_id, sequence),
    CONSTRAINT pack_run_logs_level_check CHECK (level IN ('trace', 'debug', 'info', 'warn', 'error')),
    CONSTRAINT pack_run_logs_event_type_check CHECK (event_type <> ''),
    CONSTRAINT pack_run_logs_run_id_fkey FOREIGN KEY (run_id) REFERENCES taskrunner.pack_runs (run_id) ON DELETE CASCADE
);

CREATE INDEX IF NOT EXISTS idx_pack_run_logs_run_timestamp
    ON taskrunner.pack_run_logs (run_id, timestamp, sequence);

CREATE INDEX IF NOT EXISTS idx_pack_run_logs_timestamp
    ON taskrunner.pack_run_logs (timestamp, run_id, sequence);

CREATE TABLE IF NOT EXISTS taskrunner.pack_artifacts (
    run_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    source_path TEXT COLLATE "C",
    stored_path TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    notes TEXT COLLATE "C",
    captured_at TIMESTAMPTZ(3) NOT NULL,
    CONSTRAINT pack_artifacts_pkey PRIMARY KEY (run_id, name),
    CONSTRAINT pack_artifacts_type_check CHECK (type <> ''),
    CONSTRAINT pack_artifacts_status_check CHECK (status IN ('pending', 'copied', 'materialized', 'skipped')),
    CONSTRAINT pack_artifacts_run_id_fkey FOREIGN KEY (run_id) REFERENCES taskrunner.pack_runs (run_id) ON DELETE CASCADE
);

CREATE TABLE IF NOT EXISTS taskrunner.pack_run_approvals (
    run_id TEXT COLLATE "C" NOT NULL,
    approval_id TEXT COLLATE "C" NOT NULL,
    required_grants TEXT[] COLLATE "C" NOT NULL,
    step_ids TEXT[] COLLATE "C" NOT NULL,
    messages TEXT[] COLLATE "C" NOT NULL,
    reason_template TEXT COLLATE "C",
    requested_at TIMESTAMPTZ(3) NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    actor_id TEXT COLLATE "C",
    completed_at TIMESTAMPTZ(3),
    summary TEXT COLLATE "C",
    tenant_id TEXT COLLATE "C",
    CONSTRAINT pack_run_approvals_pkey PRIMARY KEY (run_id, approval_id),
    CONSTRAINT pack_run_approvals_status_check CHECK (status IN ('pending', 'approved', 'rejected', 'expired')),
    CONSTRAINT pack_run_approvals_run_id_fkey FOREIGN KEY (run_id) REFERENCES taskrunner.pack_runs (run_id) ON DELETE CASCADE
);

CREATE INDEX IF NOT EXISTS idx_pack_run_approvals_run_status
    ON taskrunner.pack_run_approvals (run_id, status);
