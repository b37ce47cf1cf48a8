CREATE TABLE IF NOT EXISTS tracking.sessions (
    session_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    machine_id TEXT COLLATE "C" NOT NULL,
    docker_slot INTEGER,
    status TEXT COLLATE "C" NOT NULL,
    last_heartbeat TIMESTAMPTZ(3) NOT NULL,
    current_task_id TEXT COLLATE "C",
    started_at TIMESTAMPTZ(3) NOT NULL,
    completed_at TIMESTAMPTZ(3),
    metadata JSONB NOT NULL DEFAULT '{}',
    created_at TIMESTAMPTZ(3) NOT NULL,
    updated_at TIMESTAMPTZ(3) NOT NULL,
    recovery_attempts INTEGER NOT NULL DEFAULT 0,
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT sessions_pkey PRIMARY KEY (session_id),
    CONSTRAINT sessions_status_check CHECK (status IN ('active', 'paused', 'completed', 'failed', 'stalled'))
);

CREATE INDEX IF NOT EXISTS idx_sessions_project_id
    ON tracking.sessions (project_id);

CREATE INDEX IF NOT EXISTS idx_sessions_machine_id
    ON tracking.sessions (machine_id);

CREATE INDEX IF NOT EXISTS idx_sessions_status
    ON tracking.sessions (status);

CREATE INDEX IF NOT EXISTS idx_sessions_last_heartbeat
    ON tracking.sessions (last_heartbeat);

CREATE INDEX IF NOT EXISTS idx_sessions_project_status
    ON tracking.sessions (project_id, status);

CREATE INDEX IF NOT EXISTS idx_sessions_machine_status
    ON tracking.sessions (machine_id, status);

CREATE INDEX IF NOT EXISTS idx_sessions_expiry
    ON tracking.sessions (completed_at, session_id) WHERE completed_at IS NOT NULL AND status IN ('completed', 'failed');

CREATE INDEX IF NOT EXISTS idx_sessions_started
    ON tracking.sessions (started_at DESC, session_id);

CREATE INDEX IF NOT EXISTS idx_sessions_status_started
    ON tracking.sessions (status, started_at DESC, session_id);

CREATE INDEX IF NOT EXISTS idx_sessions_project_started
    ON tracking.sessions (project_id, started_at DESC, session_id);

CREATE INDEX IF NOT EXISTS idx_sessions_project_status_started
    ON tracking.sessions (project_id, status, started_at DESC, session_id);

CREATE INDEX IF NOT EXISTS idx_sessions_machine_started
    ON tracking.sessions (machine_id, started_at DESC, session_id);

CREATE INDEX IF NOT EXISTS idx_sessions_machine_status_started
    ON tracking.sessions (machine_id, status, started_at DESC, session_id);

CREATE INDEX IF NOT EXISTS idx_sessions_status_heartbeat
    ON tracking.sessions (status, last_heartbeat, session_id);

GRANT SELECT, INSERT, UPDATE, DELETE ON tracking.sessions TO :"application_role";

CREATE TABLE IF NOT EXISTS tracking.tasks (
    task_id TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    github_issue_id TEXT COLLATE "C",
    task_name TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    started_at TIMESTAMPTZ(3),
    completed_at TIMESTAMPTZ(3),
    error_message TEXT COLLATE "C",
    created_at TIMESTAMPTZ(3) NOT NULL,
    updated_at TIMESTAMPTZ(3) NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT tasks_pkey PRIMARY KEY (task_id),
    CONSTRAINT tasks_status_check CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'blocked'))
);

CREATE INDEX IF NOT EXISTS idx_tasks_session_id
    ON tracking.tasks (session_id);

CREATE INDEX IF NOT EXISTS idx_tasks_project_id
    ON tracking.tasks (project_id);

CREATE INDEX IF NOT EXISTS idx_tasks_status
    ON tracking.tasks (status);

CREATE INDEX IF NOT EXISTS idx_tasks_session_status
    ON tracking.tasks (session_id, status);

CREATE INDEX IF NOT EXISTS idx_tasks_project_status
    ON tracking.tasks (project_id, status);

CREATE INDEX IF NOT EXISTS idx_tasks_expiry
    ON tracking.tasks (completed_at, task_id) WHERE completed_at IS NOT NULL AND status IN ('completed', 'failed');

CREATE INDEX IF NOT EXISTS idx_tasks_created
    ON tracking.tasks (created_at, task_id);

CREATE INDEX IF NOT EXISTS idx_tasks_status_created
    ON tracking.tasks (status, created_at, task_id);

CREATE INDEX IF NOT EXISTS idx_tasks_session_created
    ON tracking.tasks (session_id, created_at, task_id);

CREATE INDEX IF NOT EXISTS idx_tasks_session_status_created
    ON tracking.tasks (session_id, status, created_at, task_id);

CREATE INDEX IF NOT EXISTS idx_tasks_project_created
    ON tracking.tasks (project_id, created_at, task_id);

CREATE INDEX IF NOT EXISTS idx_tasks_project_status_created
    ON tracking.tasks (project_id, status, created_at, task_id);

GRANT SELECT, INSERT, UPDATE, DELETE ON tracking.tasks TO :"application_role";

CREATE TABLE IF NOT EXISTS tracking.machines (
    machine_id TEXT COLLATE "C" NOT NULL,
    hostname TEXT COLLATE "C" NOT NULL,
    docker_slots INTEGER[] NOT NULL DEFAULT '{}',
    active_sessions TEXT[] COLLATE "C" NOT NULL DEFAULT '{}',
    status TEXT COLLATE "C" NOT NULL,
    last_heartbeat TIMESTAMPTZ(3) NOT NULL,
    metadata JSONB NOT NULL DEFAULT '{}',
    created_at TIMESTAMPTZ(3) NOT NULL,
    updated_at TIMESTAMPTZ(3) NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT machines_pkey PRIMARY KEY (machine_id),
    CONSTRAINT machines_status_check CHECK (status IN ('online', 'offline', 'maintenance'))
);

CREATE INDEX IF NOT EXISTS idx_machines_status
    ON tracking.machines (status);

CREATE INDEX IF NOT EXISTS idx_machines_last_heartbeat
    ON tracking.machines (last_heartbeat);

CREATE INDEX IF NOT EXISTS idx_machines_status_machine
    ON tracking.machines (status, machine_id);

GRANT SELECT, INSERT, UPDATE, DELETE ON tracking.machines TO :"application_role";

GRANT USAGE ON SCHEMA tracking TO :"application_role";

GRANT SELECT ON tracking.schema_migrations TO :"application_role";
