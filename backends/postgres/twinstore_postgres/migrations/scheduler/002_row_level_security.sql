-- Row-level security and grants for the tables of 001.
-- A missing or empty app.tenant_id sees nothing and writes nothing; FORCE binds the owner too.
-- The setting is read in a sub-select, which the server evaluates once per statement, not once per row.

ALTER TABLE scheduler.schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.schedules FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.schedules;
CREATE POLICY tenant_isolation ON scheduler.schedules
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
           OR (SELECT current_setting('app.tenant_id', true)) = 'system')
    WITH CHECK (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
                OR (SELECT current_setting('app.tenant_id', true)) = 'system');

ALTER TABLE scheduler.triggers ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.triggers FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.triggers;
CREATE POLICY tenant_isolation ON scheduler.triggers
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
           OR (SELECT current_setting('app.tenant_id', true)) = 'system')
    WITH CHECK (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
                OR (SELECT current_setting('app.tenant_id', true)) = 'system');

ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.runs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.runs;
CREATE POLICY tenant_isolation ON scheduler.runs
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
           OR (SELECT current_setting('app.tenant_id', true)) = 'system')
    WITH CHECK (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
                OR (SELECT current_setting('app.tenant_id', true)) = 'system');

ALTER TABLE scheduler.impact_snapshots ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.impact_snapshots FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.impact_snapshots;
CREATE POLICY tenant_isolation ON scheduler.impact_snapshots
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
           OR (SELECT current_setting('app.tenant_id', true)) = 'system')
    WITH CHECK (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
                OR (SELECT current_setting('app.tenant_id', true)) = 'system');

ALTER TABLE scheduler.audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.audit FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.audit;
CREATE POLICY tenant_isolation ON scheduler.audit
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
           OR (SELECT current_setting('app.tenant_id', true)) = 'system')
    WITH CHECK (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
                OR (SELECT current_setting('app.tenant_id', true)) = 'system');

ALTER TABLE scheduler.run_summaries ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.run_summaries FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON scheduler.run_summaries;
CREATE POLICY tenant_isolation ON scheduler.run_summaries
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
           OR (SELECT current_setting('app.tenant_id', true)) = 'system')
    WITH CHECK (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), ''))
                OR (SELECT current_setting('app.tenant_id', true)) = 'system');

GRANT USAGE ON SCHEMA scheduler TO :"application_role";
GRANT SELECT, INSERT, UPDATE, DELETE
    ON scheduler.schedules, scheduler.triggers, scheduler.runs, scheduler.impact_snapshots,
       scheduler.run_summaries
    TO :"application_role";
-- Audit records are append-only.
GRANT SELECT, INSERT ON scheduler.audit TO :"application_role";
GRANT SELECT ON scheduler.schema_migrations TO :"application_role";
