-- ScheduleRepository.list with the deleted ones: the unique index by name holds the others only.
CREATE INDEX IF NOT EXISTS idx_schedules_tenant_every_name
    ON scheduler.schedules (tenant_id, name, id);
-- WorkerRepository.list of one tenant.
CREATE INDEX IF NOT EXISTS idx_workers_tenant_heartbeat
    ON scheduler.workers (tenant_id, last_heartbeat_at, id);
